"""Keeps a second driver of a pipeline away, also one on another machine, and ends a driver that was replaced.

On one machine, locks in the state directory see to it. They say nothing about a driver whose state was copied
or moved to another machine. So if the pipeline uses a store that other machines can reach (`staging`, or
`relay_log.archive`), its folder there has the object `driver.json`: which driver runs, and its *generation*,
which grows with each. Only conditional puts change it, so no two drivers have one generation.

1. **A driver renews its lease** every `RENEW_SECONDS`. Another one watches it for `WATCH_SECONDS`. If it is
   renewed meanwhile, the other one is refused. Otherwise its driver was killed or suspended, or its machine
   is cut off, and the other one *takes over*.
2. **Before and after each epoch** a driver checks that its last renewal is less than `VALID_SECONDS` old.
   After it was suspended it is older: then the renewal finds out who has the lease. The clock counts the time
   in which the machine was suspended.
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

import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock import clock
from penstock.errors import DriverReplaced, LeaseHeld, PenstockError, TransientError
from penstock.sinks.refusals import REPLACED_HINT
from penstock.store.base import Store, Version
from penstock.store.errors import ObjectChanged, ObjectExists, ObjectMissing
from penstock.store.lease import folder_id, read_lease

log = logging.getLogger(__name__)

LEASE = "driver.json"
RENEW_SECONDS = 15.0
"""How often a running driver renews its lease: 170,000 requests a month, less than a dollar at Amazon."""
VALID_SECONDS = 30.0
"""How long a renewal lasts for its driver. Less than `WATCH_SECONDS`, by as much as a request may take."""
WATCH_SECONDS = 45.0
"""How long a lease is watched: three renewals."""
_LOOK_SECONDS = 1.0
"""How often the lease is looked at meanwhile."""
_IDENTITY = "driver-id"


def identity(folder: Path) -> str:
    """The id of a state directory under this kernel. A copy, and the same directory on another machine or
    after a reboot, have another one."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return folder_id(folder, _IDENTITY, boot)


class DriverLease:
    """The lease of this driver. `id_`: that of the state directory on this machine. `known`: the generation
    of the last driver in the state. Thread-safe after `take`."""

    def __init__(self, store: Store, id_: str, known: int) -> None:
        self._store = store
        self._id = id_
        self._known = known
        self.generation = 0
        self.must_fence = False
        """Whether an earlier driver may still write, so that targets must be fenced before anything is
        planned."""
        self._version: Version | None = None
        self._renewed = float("-inf")
        self._lost: DriverReplaced | None = None
        self._guard = threading.Lock()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    # taking it ----------------------------------------------------------------------------------------------

    def take(self, stopping: Callable[[], bool] = lambda: False) -> None:
        """Returns when this driver has the lease. Raises `LeaseHeld` if another driver lives."""
        fields, version = self._read()
        follows = not fields or fields.get("stopped") or fields.get("id") == self._id
        if not follows:
            fields, version = self._watch(fields, version, stopping)
        self.must_fence = bool(fields.get("fences")) or (not follows and not fields.get("stopped"))
        self.generation = max(int(fields.get("generation", 0)), self._known) + 1
        if self.must_fence:
            log.warning(
                "the pipeline is taken over from the driver on %s (process %s), which has not renewed its "
                "lease for %.0f s", fields.get("host"), fields.get("pid"), WATCH_SECONDS,
            )  # fmt: skip
        try:
            self._put(version)
        except (ObjectChanged, ObjectExists):
            raise self._held(self._read()[0]) from None
        self._thread = threading.Thread(target=self._renew_loop, name="driver-lease", daemon=True)
        self._thread.start()

    def _watch(
        self, fields: dict[str, Any], version: Version | None, stopping: Callable[[], bool]
    ) -> tuple[dict[str, Any], Version | None]:
        log.info("waiting to see whether the driver on %s still runs", fields.get("host"))
        deadline = time.monotonic() + WATCH_SECONDS
        while time.monotonic() < deadline and not stopping():
            time.sleep(_LOOK_SECONDS)  # watches whether somebody else does something, with a limit
            now, found = self._read()
            if now.get("stopped"):
                return now, found
            if found != version:
                raise self._held(now)
        if stopping():
            raise TransientError("The start was interrupted while it waited for another driver's lease.")
        return fields, version

    def _read(self) -> tuple[dict[str, Any], Version | None]:
        return read_lease(self._store, LEASE)

    def _put(self, seen: Version | None, *, stopped: bool = False) -> None:
        """Writes the lease if the store still has the version `seen` (None: if it has none)."""
        began = clock.seconds()
        fields = {
            "id": self._id,
            "generation": self.generation,
            "fences": self.must_fence,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "stopped": stopped,
            "renewed": uuid.uuid4().hex,
        }
        data = json.dumps(fields).encode()
        if seen is None:
            self._version = self._store.put_if_absent(LEASE, data)
        else:
            self._version = self._store.put_if_unchanged(LEASE, data, seen=seen)
        self._renewed = began

    def _held(self, by: dict[str, Any]) -> LeaseHeld:
        place = self._store.location.url(LEASE)
        return LeaseHeld(
            f"Another driver of this pipeline runs: process {by.get('pid')} on {by.get('host')}.",
            hint="Was the `state` directory copied? Run one of the two, never both. For a second pipeline, "
            f"begin with an empty `state`. The lease of the other one is {place}.",
            path=place,
        )

    # holding it ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises `DriverReplaced` if another driver has taken over, and `TransientError` if the store does
        not say whether one has."""
        if self._lost is None and clock.seconds() - self._renewed > VALID_SECONDS:
            self._renew()
        self.raise_if_lost()

    def raise_if_lost(self) -> None:
        """Raises `DriverReplaced` if another driver is known to have taken over. Makes no request."""
        if self._lost is not None:
            raise self._lost

    def fenced_all(self) -> None:
        """Records that every target is fenced."""
        self.must_fence = False
        self._renew()
        self.raise_if_lost()

    def release(self) -> None:
        """Says that this driver has ended, with its JVM. Then the next one need not wait."""
        self._ending.set()
        if self._thread is None:
            return
        self._thread.join()
        self._thread = None
        with self._guard:
            try:
                if self._lost is None:
                    self._put(self._version, stopped=True)
            except PenstockError as error:  # then the next driver watches the lease for a while
                log.info("the driver's lease is not released: %s", error)

    def _renew_loop(self) -> None:
        while not self._ending.wait(RENEW_SECONDS) and self._lost is None:
            try:
                self._renew()
            except PenstockError as error:
                log.warning("the driver's lease is not renewed: %s", error.message)

    def _renew(self) -> None:
        with self._guard:
            if self._lost is not None:
                return
            try:
                self._put(self._version)
            except (ObjectChanged, ObjectMissing):
                self._find_out()
            except TransientError as error:
                if clock.seconds() - self._renewed <= VALID_SECONDS:
                    raise
                raise TransientError(
                    f"Whether this driver still has its lease is unknown: {error.message}",
                    hint="It goes on when the store answers.",
                ) from error

    def _find_out(self) -> None:
        """Finds out who has written the lease: another driver, or this one, which did not get the answer."""
        by, version = self._read()
        ours = by.get("id") == self._id and by.get("generation") == self.generation
        if ours and by.get("pid") == os.getpid():
            try:
                self._put(version)
            except (ObjectChanged, ObjectMissing):  # another late renewal of this one, or another driver
                self._find_out()
            return
        who = f"process {by['pid']} on {by['host']}" if "pid" in by and "host" in by else "somebody"
        self._lost = DriverReplaced(
            f"Another driver has taken over this pipeline ({who}): this one had not renewed its lease "
            "for too long, because it was suspended or could not reach the store.",
            hint=REPLACED_HINT,
        )
