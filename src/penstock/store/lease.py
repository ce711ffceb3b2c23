"""One holder at a time, told by an object in a store: a lease.

The object is JSON. It says who holds the lease, and it is only ever replaced if it is still the version that
was seen. So of several processes that want a lease exactly one gets it, and the first write of a holder that
was replaced fails, whatever clocks say. A holder that writes its own data into the object (`payload`) thus
never overwrites that of its successor.

- **A holder renews it:** each write has another `nonce`, and so another version.
- **Others watch it.** Who has seen one version for `Times.free_s` may take it. Only the observer's clock
  counts. The object says how long its holder relies on (`seconds`), so an observer with a shorter time of its
  own waits as long.
- **The holder stops earlier by its own clock:** `alive` ends `Times.valid_s` after the last successful write
  was *begun*. Nobody can have seen that version before. The clock goes on while process or machine are
  suspended (`clock.py`).
- **A write without an answer** may have reached the store, and may still. A holder recognises its own writes
  by their nonces, so a lost answer does not look like another holder.
- **Nobody needs to wait** for a lease that was given up in order (`stopped`), or for that of an earlier
  process with the same `id`, if the caller knows by a lock on a file that the earlier process has ended.

What must not go wrong between the check of a lease and a write somewhere else needs more: targets and the
archive's manifest refuse an earlier generation.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from penstock import clock
from penstock.disk.replace import replace_file
from penstock.errors import ConfigError, PenstockError, TransientError
from penstock.store.base import Store, Version
from penstock.store.errors import ObjectChanged, ObjectExists, ObjectMissing

log = logging.getLogger(__name__)

LATE_WRITES = 5
"""Earlier writes of a holder, without an answer, of which each may reach the store in the next moment."""
LOOK_S = 1.0
"""How often a lease is looked at by who waits for it, at least."""


@dataclass(frozen=True)
class Times:
    """Of a lease. `free_s`: how long others see it unchanged before they take it. `valid_s`: how long its
    holder relies on a renewal; less than `free_s`, by as much as a request may take. `renew_s`: how often it
    is renewed."""

    free_s: float
    valid_s: float
    renew_s: float


PROCESS = Times(free_s=45, valid_s=30, renew_s=15)
"""For a driver or receiver: 170,000 requests a month, less than a dollar at Amazon."""


@dataclass(frozen=True)
class Holder:
    """What a lease says. `generation`: a number that grows with each holder. `stopped`: the holder has given
    it up. `seconds`: the holder's `free_s`. `payload`: everything else that it has written."""

    generation: int = 0
    stopped: bool = True
    nonce: str = ""
    seconds: float = 0.0
    payload: Mapping[str, Any] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        own = {name: value for name, value in vars(self).items() if name != "payload"}
        return json.dumps({**self.payload, **own}, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Holder:
        """Raises `ValueError` if these bytes are something else."""
        try:
            rest = {**json.loads(data)}
            return cls(
                int(rest.pop("generation", 0)), bool(rest.pop("stopped", False)), str(rest.pop("nonce", "")),
                float(rest.pop("seconds", 0.0)), rest,
            )  # fmt: skip
        except (TypeError, OverflowError, RecursionError) as error:
            raise ValueError(str(error)) from None


def read(store: Store, key: str, hint: str = "Remove it.") -> tuple[Holder, Version | None]:
    """What a lease says, and its version: `Holder()` and None if there is none. Raises `ConfigError` with the
    hint if the object is no lease."""
    try:
        found = store.get(key)
    except ObjectMissing:
        return Holder(), None
    try:
        return Holder.from_bytes(found.data), found.info.version
    except ValueError:
        raise ConfigError(f"{store.location.url(key)} is not a lease.", hint=hint) from None


class Lease:
    """The lease `key`, as this process sees it. Thread-safe. `id_`: that of earlier processes which are known
    to have ended if this one runs; empty: there are none."""

    damaged_hint = "Remove it."

    def __init__(self, store: Store, key: str, times: Times, id_: str = "") -> None:
        self.store, self.key, self.times = store, key, times
        self._id = id_
        self._version: Version | None = None
        self._found = Holder()
        self._seen_since = clock.seconds()
        self._held: Holder | None = None
        self._renewed = float("-inf")
        self._attempts: set[str] = set()
        """Nonces of versions that may have been written although there was no answer."""
        self._guard = threading.RLock()

    def lost_to(self, by: Holder) -> PenstockError:
        """The error of a holder that was replaced. `by`: the next one; without a payload if the object is
        gone."""
        raise NotImplementedError

    # while others may hold it -------------------------------------------------------------------------------

    def look(self) -> Holder:
        """Reads the lease from the store. Raises `PenstockError`."""
        with self._guard:
            self._found, version = self._read()
            if version != self._version:
                self._version, self._seen_since = version, clock.seconds()
            return self._found

    @property
    def is_free(self) -> bool:
        """Whether this process may take what `look` has found."""
        found = self._found
        watched_s = clock.seconds() - self._seen_since
        return found.stopped or self._is_own(found) or watched_s >= max(self.times.free_s, found.seconds)

    def _is_own(self, found: Holder) -> bool:
        return found.nonce in self._attempts or bool(self._id and found.payload.get("id") == self._id)

    def acquire(self, payload: Mapping[str, Any], generation: int) -> bool:
        """Replaces what `look` has found. False: another process was first. Raises `PenstockError`."""
        return self._write(Holder(generation, False, payload=payload)) is None

    # while this process holds it ----------------------------------------------------------------------------

    def alive(self, generation: int | None = None) -> bool:
        """Whether nobody can have taken over since this process acquired it, with this generation."""
        held = self._held
        return (
            held is not None
            and (generation is None or held.generation == generation)
            and clock.seconds() - self._renewed < self.times.valid_s
        )

    @property
    def is_due(self) -> bool:
        """Whether it is time to renew it."""
        return clock.seconds() - self._renewed >= self.times.renew_s

    def write(self, payload: Mapping[str, Any], *, stopped: bool = False) -> None:
        """Stores the payload, and renews. Raises `lost_to` and `TransientError`."""
        with self._guard:
            assert self._held is not None
            by = self._write(replace(self._held, payload=payload, stopped=stopped))
            if by is not None:
                self.drop()
                raise self.lost_to(by)

    def drop(self) -> None:
        """Stops to hold the lease, without a word to the store: another process may hold it from now on."""
        self._held = None

    # requests -----------------------------------------------------------------------------------------------

    def _write(self, made: Holder) -> Holder | None:
        """Replaces the version that was seen, or a later one of this process. Returns the other holder if
        somebody else has written meanwhile."""
        with self._guard:
            for _ in range(LATE_WRITES + 1):
                try:
                    self._put(made)
                    return None
                except (ObjectChanged, ObjectMissing, ObjectExists):
                    found, version = self._read()
                if version is None or found.nonce not in self._attempts:
                    return found
                self._version = version
        raise TransientError(f"The store refuses every write of {self.store.location.url(self.key)}.")

    def _put(self, holder: Holder) -> None:
        began = clock.seconds()
        made = replace(holder, nonce=uuid.uuid4().hex, seconds=self.times.free_s)
        self._attempts.add(made.nonce)
        if self._version is None:
            self._version = self.store.put_if_absent(self.key, made.to_bytes())
        else:
            self._version = self.store.put_if_unchanged(self.key, made.to_bytes(), seen=self._version)
        self._attempts = {made.nonce}
        self._held, self._renewed, self._seen_since = made, began, clock.seconds()

    def _read(self) -> tuple[Holder, Version | None]:
        return read(self.store, self.key, self.damaged_hint)


class ProcessLease(Lease):
    """A lease that a process holds until it ends, as a driver does and a receiver. A thread renews it."""

    name = "process"
    """What holds it, for messages."""

    def __init__(self, store: Store, key: str, times: Times, id_: str) -> None:
        super().__init__(store, key, times, id_)
        self._lost: PenstockError | None = None
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def held_by(self, by: Holder) -> PenstockError:
        """The error of a process that comes while another one lives."""
        raise NotImplementedError

    def identity(self) -> dict[str, Any]:
        """What the lease says of this process."""
        return {"id": self._id, "host": socket.gethostname(), "pid": os.getpid()}

    def wait_until_free(self, stopping: Callable[[], bool]) -> Holder:
        """Returns the last holder when nobody renews the lease. Raises `held_by` if somebody does, and
        `TransientError` once this process is `stopping`."""
        found = self.look()
        if not self.is_free:
            log.info("waiting to see whether the %s on %s still runs", self.name, found.payload.get("host"))
        while not self.is_free:
            if stopping():
                raise TransientError(f"The start was interrupted: it waited for another {self.name}'s lease.")
            time.sleep(min(LOOK_S, self.times.free_s / 10))  # watches what somebody else does, with a limit
            seen = self._version
            found = self.look()
            if self._version != seen and not self.is_free:
                raise self.held_by(found)
        return found

    def claim(self, payload: Mapping[str, Any], generation: int) -> None:
        """Acquires the free lease. Raises `held_by` if another process was first."""
        if not self.acquire(payload, generation):
            raise self.held_by(self.look())

    def keep(self) -> None:
        """Renews the lease from now on whenever this process holds it, until `release`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._renew_loop, name=f"{self.name}-lease", daemon=True)
            self._thread.start()

    def check(self) -> None:
        """Raises `lost_to` if another process has taken over, and `TransientError` if the store does not say
        whether one has."""
        if not self.alive():
            self.renew()
        self.raise_if_lost()

    def raise_if_lost(self) -> None:
        """Raises `lost_to` if another process is known to have taken over. Makes no request."""
        if self._lost is not None:
            raise self._lost

    def renew(self, **changes: Any) -> None:
        """Renews the lease, unless it is lost. `changes`: of the payload."""
        with self._guard:
            if self._held is None or self._lost is not None:
                return
            try:
                self.write({**self._held.payload, **changes})
            except PenstockError as error:
                if self._held is None:
                    self._lost = error
                elif isinstance(error, TransientError) and not self.alive():
                    raise TransientError(
                        f"Whether this {self.name} still has its lease is unknown: {error.message}",
                        hint="It goes on when the store answers.",
                    ) from error
                else:
                    raise

    def release(self) -> None:
        """Says that this process has ended. Then the next one need not wait."""
        self._ending.set()
        if self._thread is None:
            return
        self._thread.join()
        self._thread = None
        if self._held is None:
            return
        try:
            self.write(self._held.payload, stopped=True)
        except PenstockError as error:  # then the next process watches the lease for a while
            log.info("the %s's lease is not released: %s", self.name, error)

    def _renew_loop(self) -> None:
        while not self._ending.wait(self.times.renew_s) and self._lost is None:
            try:
                self.renew()
            except PenstockError as error:
                log.warning("the %s's lease is not renewed: %s", self.name, error.message)


def folder_id(folder: Path, name: str, machine: str) -> str:
    """The id of a folder, which is kept in its file `name`. A copy of the folder, and the same folder on
    another `machine`, get another one."""
    path = folder / name
    status = folder.stat()
    place = f"{machine} {status.st_dev} {status.st_ino}"
    try:
        known = json.loads(path.read_text("utf-8"))
        if known["place"] == place:
            return str(known["id"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        pass
    made = uuid.uuid4().hex
    replace_file(path, json.dumps({"id": made, "place": place}).encode(), durable=True)
    return made
