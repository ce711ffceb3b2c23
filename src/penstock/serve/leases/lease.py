"""The right to serve one destination: a lease in a store (`store/lease.py`), which has the positions in it.

So a write of positions renews the lease, and a server that was replaced can write none. Only what is *given*
to clients depends on a clock: the server stops to answer before another one begins.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.serve.leases.document import DAMAGED, Document, StoredClient, key
from penstock.serve.positions import Replaced
from penstock.store.base import Store
from penstock.store.lease import Holder, Lease, Times

VALID_SHARE, RENEW_SHARE = 0.8, 0.2
"""Shares of the time after which others take over: how long a renewal lasts, and how often the lease is
renewed."""


class DestinationLease(Lease):
    damaged_hint = DAMAGED

    def __init__(self, store: Store, destination: str, address: str, timeout_s: float) -> None:
        times = Times(timeout_s, timeout_s * VALID_SHARE, timeout_s * RENEW_SHARE)
        super().__init__(store, key(destination), times)
        self._destination = destination
        self._address = address

    def read(self) -> Document:
        """What the lease says now. Raises `PenstockError`."""
        return Document.of(self.look(), self.store.location.url(self.key))

    def take(self, found: Document) -> int | None:
        """Replaces what `read` has found. Returns the generation, or None if another server was first."""
        generation = self._found.generation + 1
        taken = self.acquire(Document(self._address, found.clients).to_json(), generation)
        return generation if taken else None

    def store_clients(self, clients: Mapping[str, StoredClient], *, stopped: bool = False) -> None:
        """Stores what clients have acknowledged, and renews. Raises `Replaced` and `TransientError`."""
        self.write(Document(self._address, clients).to_json(), stopped=stopped)

    def lost_to(self, by: Holder) -> Replaced:
        who = f" ({by.payload['address']})" if "address" in by.payload else ""
        return Replaced(f"Another server{who} serves {self._destination} now. No position was written.")
