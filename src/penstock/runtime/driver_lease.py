"""Keeps a second driver of a pipeline away, also one on another machine, and ends a driver that was replaced.

On one machine, locks in the state directory see to it. They say nothing about a driver whose state was copied
or moved to another machine. So if the pipeline uses a store that other machines can reach (`staging`, or
`relay_log.archive`), its folder there has the object `driver.json`: which driver runs, and its *generation*,
which grows with each. No two drivers have one generation.

1. **A driver renews its lease** every 15 seconds (`store/lease.py`). Another one watches it for 45. If it is
   renewed meanwhile, the other one is refused. Otherwise its driver was killed or suspended, or its machine
   is cut off, and the other one *takes over*.
2. **Before and after each epoch** a driver checks that its last renewal is less than 30 seconds old. After it
   was suspended it is older: then the renewal finds out who has the lease.
3. **Targets refuse an earlier driver.** A driver can be suspended between its check and its commit. So who
   takes over first *fences* each target (`sinks.base.Fencing`): what an earlier driver has begun there fails,
   and what it begins later, too. `fenced_all` records that this is done; a driver that ends before leaves
   that to the next one.
4. **What nobody foresaw is found.** If a target has already recorded an epoch that this run has planned, and
   now tries for the first time, somebody else has written it. Then the table is read again
   (`spark/epochs.py`).

Nothing that is wrong without a word depends on clocks: 1 and 2 do, 3 and 4 do not.

The next driver in the same directory need not watch: locks prove that its predecessor has ended, with its JVM
(`spark/lock.py`). That holds as long as one kernel keeps the locks (`identity`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.errors import DriverReplaced, LeaseHeld
from penstock.sinks.refusals import REPLACED_HINT
from penstock.store.base import Store
from penstock.store.lease import PROCESS, Holder, ProcessLease, folder_id

log = logging.getLogger(__name__)

LEASE = "driver.json"
TIMES = PROCESS
_IDENTITY = "driver-id"


def identity(folder: Path) -> str:
    """The id of a state directory under this kernel. A copy, and the same directory on another machine or
    after a reboot, have another one."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return folder_id(folder, _IDENTITY, boot)


class DriverLease(ProcessLease):
    """The lease of this driver. `id_`: that of the state directory on this machine. `known`: the generation
    of the last driver in the state. Thread-safe."""

    name = "driver"
    damaged_hint = "Make sure that no driver of this pipeline runs. Then remove it."

    def __init__(self, store: Store, id_: str, known: int) -> None:
        super().__init__(store, LEASE, TIMES, id_)
        self._known = known
        self.generation = 0
        self.must_fence = False
        """Whether an earlier driver may still write, so that targets must be fenced before anything is
        planned."""

    def take(self, stopping: Callable[[], bool] = lambda: False) -> None:
        """Returns when this driver has the lease. Raises `LeaseHeld` if another driver lives."""
        last = self.wait_until_free(stopping)
        is_new = not last.stopped and not self._is_own(last)
        self.must_fence = is_new or bool(last.payload.get("fences"))
        self.generation = max(last.generation, self._known) + 1
        if self.must_fence:
            log.warning(
                "the pipeline is taken over from the driver on %s (process %s), which has not renewed its "
                "lease for %.0f s", last.payload.get("host"), last.payload.get("pid"), self.times.free_s,
            )  # fmt: skip
        self.claim({**self.identity(), "fences": self.must_fence}, self.generation)
        self.keep()

    def fenced_all(self) -> None:
        """Records that every target is fenced."""
        self.must_fence = False
        self.renew(fences=False)
        self.raise_if_lost()

    def held_by(self, by: Holder) -> LeaseHeld:
        place = self.store.location.url(LEASE)
        return LeaseHeld(
            f"Another driver of this pipeline runs: {_named(by)}.",
            hint="Was the `state` directory copied? Run one of the two, never both. For a second pipeline, "
            f"begin with an empty `state`. The lease of the other one is {place}.",
            path=place,
        )

    def lost_to(self, by: Holder) -> DriverReplaced:
        return DriverReplaced(
            f"Another driver has taken over this pipeline ({_named(by)}): this one had not renewed its lease "
            "for too long, because it was suspended or could not reach the store.",
            hint=REPLACED_HINT,
        )


def _named(by: Holder) -> str:
    who: dict[str, Any] = {**by.payload}
    return f"process {who['pid']} on {who['host']}" if {"pid", "host"} <= who.keys() else "somebody"
