"""Says which receiver writes an archive, and keeps a second one away: a lease (`store/lease.py`).

Its `id` is that of the receiver's folder, so a receiver that is started again in the same folder goes on at
once: the lock of the folder proves that its predecessor has ended. A receiver with another folder watches the
lease first. While it is renewed, its owner lives, and the other one is refused.

The lease only avoids accidents. What makes two writers safe is the generation in the manifest: see
`archiver.py`.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.errors import LeaseHeld
from penstock.store.base import Store
from penstock.store.lease import PROCESS, Holder, ProcessLease, folder_id

LEASE = "lease.json"
TIMES = PROCESS
_IDENTITY = "archive-id"


class ArchiveLease(ProcessLease):
    """The lease of the receiver that writes the relay log of `folder`."""

    name = "receiver"

    def __init__(self, folder: Path, store: Store) -> None:
        # The id does not belong to the log: a copy elsewhere gets another one.
        super().__init__(store, LEASE, TIMES, folder_id(folder, _IDENTITY, socket.gethostname()))

    def owner(self, generation: int) -> dict[str, Any]:
        """For the manifest, too."""
        return {**self.identity(), "generation": generation, "since": time.time()}

    def hold(self, generation: int, stopping: Callable[[], bool]) -> None:
        """Returns when this receiver has the lease. Raises `LeaseHeld` if another one has it."""
        self.check()
        if not self.alive(generation):
            self.wait_until_free(stopping)
            self.claim(self.owner(generation), generation)

    def held_by(self, by: Holder) -> LeaseHeld:
        return self.held(by.payload)

    lost_to = held_by

    def held(self, by: Mapping[str, Any]) -> LeaseHeld:
        place = self.store.location.url()
        return LeaseHeld(
            f"Another receiver (process {by.get('pid')} on {by.get('host')}) writes the archive {place}.",
            hint="One receiver serves any number of pipelines. Use the running one, or stop it first. Each "
            "relay log needs an archive of its own: `relay_log.archive`.",
            path=place,
        )
