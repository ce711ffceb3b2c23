"""The right to serve one destination: a lease in a store.

A server that serves renews its lease, which is a conditional put of the destination's object (`document`).
Another one that has seen the object unchanged for `timeout_s` takes it over, with the next generation. What
must not go wrong does not depend on clocks: the first put behind that of the new server, with whatever
positions, names a version that is gone, and fails.

Only what is *given* to clients depends on a clock: `alive` ends when four fifths of the time have passed
since the last successful put was begun, and the clock goes on while process or machine are suspended. So the
server stops to answer before another one begins.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace

from penstock import clock
from penstock.errors import ConfigError, TransientError
from penstock.serve.leases.document import Document, StoredClient, key
from penstock.serve.positions import Replaced
from penstock.store.base import Store, Version
from penstock.store.errors import ObjectChanged, ObjectExists, ObjectMissing

VALID_SHARE, RENEW_SHARE = 0.8, 0.2
"""Shares of the time after which others take over: how long a renewal lasts, and how often the lease is
renewed."""
LATE_WRITES = 5
"""Earlier writes of this server, without an answer, of which each may reach the store in the next moment."""


class Lease:
    """The lease of one destination. Used by one thread, except `alive`."""

    def __init__(self, store: Store, destination: str, address: str, timeout_s: float) -> None:
        self._store = store
        self._destination = destination
        self._key = key(destination)
        self._address = address
        self._timeout_s = timeout_s
        self._version: Version | None = None
        self._seen_since = clock.seconds()
        self._held: Document | None = None
        self._renewed = float("-inf")
        self._attempts: set[str] = set()
        """Nonces of versions that may have been written although there was no answer."""

    # while others may serve ---------------------------------------------------------------------------------

    def look(self) -> Document:
        """Reads the lease from the store. Returns an empty document if there is none. Raises
        `PenstockError`."""
        found, version = self._read()
        if version != self._version:
            self._version, self._seen_since = version, clock.seconds()
        return found

    def is_free(self, found: Document) -> bool:
        """Whether nobody renews what `look` has found: nobody does what this server has written itself, whose
        answer was lost."""
        ours = self._held is None and found.nonce in self._attempts
        return found.stopped or ours or clock.seconds() - self._seen_since >= self._timeout_s

    def take(self, found: Document) -> int | None:
        """Replaces what `look` has found. Returns the generation, or None if another server was first."""
        made = replace(found, generation=found.generation + 1, address=self._address, stopped=False)
        try:
            self._put(made)
        except (ObjectChanged, ObjectExists):
            return None
        return made.generation

    # while this server serves -------------------------------------------------------------------------------

    def alive(self, generation: int) -> bool:
        """Whether nobody can have taken over since."""
        held = self._held
        return (
            held is not None
            and held.generation == generation
            and clock.seconds() - self._renewed < self._timeout_s * VALID_SHARE
        )

    @property
    def is_due(self) -> bool:
        """Whether it is time to renew it."""
        return clock.seconds() - self._renewed >= self._timeout_s * RENEW_SHARE

    def write(self, clients: Mapping[str, StoredClient], *, stopped: bool = False) -> None:
        """Stores what clients have acknowledged, and renews. Raises `Replaced` and `TransientError`."""
        assert self._held is not None
        made = replace(self._held, clients=clients, stopped=stopped)
        for _ in range(LATE_WRITES + 1):
            try:
                return self._put(made)
            except (ObjectChanged, ObjectMissing, ObjectExists):
                self._recognise()
        raise TransientError(f"The store refuses every write for {self._destination}.")

    def drop(self) -> None:
        """Stops to hold the lease, without a word to the store: another server may serve from now on."""
        self._held = None

    def _recognise(self) -> None:
        """Finds out why the object has another version: another server has written it (`Replaced`), or this
        one has, and the answer was lost."""
        found, version = self._read()
        if version is None or found.nonce not in self._attempts:
            self._held = None
            by = f" ({found.address})" if version is not None else ""
            raise Replaced(f"Another server{by} serves {self._destination} now. No position was written.")
        self._version = version

    def _put(self, document: Document) -> None:
        began = clock.seconds()
        made = replace(document, nonce=uuid.uuid4().hex)
        self._attempts.add(made.nonce)
        data = made.to_bytes()
        if self._version is None:
            self._version = self._store.put_if_absent(self._key, data)
        else:
            self._version = self._store.put_if_unchanged(self._key, data, seen=self._version)
        self._attempts = {made.nonce}
        self._held, self._renewed, self._seen_since = made, began, clock.seconds()

    def _read(self) -> tuple[Document, Version | None]:
        try:
            found = self._store.get(self._key)
        except ObjectMissing:
            return Document(), None
        try:
            return Document.from_bytes(found.data), found.info.version
        except ValueError as error:
            raise ConfigError(
                f"{self._store.location.url(self._key)} is not an object of this server: {error}.",
                hint="Remove it. The clients of this destination then begin at its `start`.",
            ) from None
