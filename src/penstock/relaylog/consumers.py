"""The registered readers (consumers) of a relay log and their offsets.

**Identity.** A consumer is identified by its id: the uuid of a pipeline's state, or a uuid of its own for a
follower. `consumers/ID.json` has its offset. Retention deletes nothing that a registered consumer still
needs. The name is only a label. Two consumers may use the same name one after the other, and log is kept for
each of them. They may not run at the same time.

**Running** is a consumer whose process holds the lock on `consumers/ID.lock`. The lock belongs to the open
file, so it ends with the process, also after kill -9. Testing the lock does not take it, so a test never
disturbs a consumer that is starting.

**Mutual exclusion.** A consumer holds `consumers/lock` while it registers, moves to an older offset or is
removed. Retention holds it from reading the offsets until the segments are deleted. So when `Consumer` or
`Consumer.protect` returns, retention has either seen the offset or has finished deleting. The log's first
segment is then safe. Moving forward needs no lock, because it only allows more to be deleted.

**Damaged files.** A consumer's file that is damaged or not plausible counts as a consumer that has read
nothing. No log is deleted until an operator removes it. Files of earlier versions (`consumers/NAME.json`,
without an id) keep log too, until their owner replaces them."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import stat
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from penstock.disk import lock
from penstock.disk.replace import replace_file, sync
from penstock.errors import ConfigError, TransientError
from penstock.model.offset import Offset
from penstock.relaylog.segment import CONSUMERS_FOLDER

log = logging.getLogger(__name__)

Kind = Literal["pipeline", "follower", "unknown"]

REWRITE_SECONDS = 60.0
"""An unchanged offset is written again after this time, to record when the consumer was last seen."""
LOCK_SECONDS_MAX = 10.0
"""How long to wait for `consumers/lock`, which others hold only for moments. A process that is suspended
while it holds it must not stop all others."""
FILE_BYTES_MAX = 64 * 1024
"""Size of a consumer's file in bytes. A larger file is damaged, or belongs to something else."""

_LOCK = "lock"
_NAME = re.compile(r"^[A-Za-z0-9._-]{1,100}$")


@dataclass(frozen=True)
class Registered:
    """A consumer as described by its file. `id` is also the file's name. `alive`: it is running. `place`: the
    state directory of a pipeline. `damaged`: why the file is not usable; empty if it is."""

    id: str
    name: str
    kind: Kind
    offset: Offset
    updated: float | None = None
    alive: bool = False
    place: str = ""
    damaged: str = ""


def registered(path: str | Path) -> list[Registered]:
    """Every consumer, ordered by name. Raises `OSError` if the folder exists but cannot be read."""
    folder = Path(path) / CONSUMERS_FOLDER
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.name.endswith(".json")]
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = [_read(folder, name.removesuffix(".json")) for name in names]
    return sorted((one for one in found if one is not None), key=lambda one: (one.name, one.id))


def offsets(path: str | Path) -> list[Offset]:
    """The offset of each registered consumer."""
    return [one.offset for one in registered(path)]


def _read(folder: Path, stem: str) -> Registered | None:
    """The registration of one consumer. None if it was removed in the meantime."""
    try:
        data = _content(folder / f"{stem}.json")
        return replace(_parsed(stem, data), alive=_is_alive(folder / f"{stem}.lock"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        alive = _is_alive(folder / f"{stem}.lock")
        return Registered(stem, stem, "unknown", Offset(0), alive=alive, damaged=reason[:200] or "damaged")


def _content(path: Path) -> bytes:
    """The file's content. Never blocks, never follows a link, and reads a bounded number of bytes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is not a regular file")
        data = os.read(descriptor, FILE_BYTES_MAX + 1)
    finally:
        os.close(descriptor)
    if len(data) > FILE_BYTES_MAX:
        raise ValueError(f"it is longer than {FILE_BYTES_MAX} bytes")
    return data


def _parsed(stem: str, data: bytes) -> Registered:
    fields = json.loads(data.decode("utf-8"))
    if not isinstance(fields, dict):
        raise ValueError("it contains no JSON object")
    offset, updated, kind = fields.get("offset"), fields.get("updated"), fields.get("kind")
    if type(offset) is not int or not 0 <= offset < 2**63:
        raise ValueError("its offset is not valid")
    seen = float(updated) if isinstance(updated, int | float) and 0 <= updated < 2**40 else None
    if "id" not in fields:
        return Registered(stem, stem, "unknown", Offset(offset), seen)
    name, place = fields.get("name"), fields.get("place", "")
    if fields["id"] != stem or kind not in ("pipeline", "follower"):
        raise ValueError("its id or kind is not valid")
    if not isinstance(name, str) or not _NAME.match(name) or not isinstance(place, str):
        raise ValueError("its name or place is not valid")
    shown = "".join(letter if letter.isprintable() else "?" for letter in place[:4096])
    return Registered(stem, name, kind, Offset(offset), seen, place=shown)


class Consumer:
    """A registered reader. It stays registered after `close`, and is running until `close` or until its
    process ends.

    `id`: the uuid of a pipeline's state. None: a follower; it takes over the id of a registered follower of
    the same name that is not running, or gets a new one. `needs`: the log after this offset is kept. Log that
    an earlier run still needed is kept until `needs` is called. `owns_name`: whether a file that an earlier
    version wrote under this name belongs to it.

    Raises `ConfigError` while another consumer with this name or id is running, or if the folder cannot be
    written.
    """

    def __init__(
        self,
        path: str | Path,
        name: str,
        *,
        needs: Offset,
        id: str | None = None,
        kind: Kind = "follower",
        place: str = "",
        owns_name: bool = True,
    ) -> None:
        for text in (name, id or name):
            if not _NAME.match(text):
                raise ConfigError(
                    f"{text!r} cannot name a consumer of a relay log; use letters, digits, dots, dashes."
                )
        self._folder = Path(path) / CONSUMERS_FOLDER
        self._name = name
        self._kind = kind
        self._place = place
        self._thread_lock = threading.Lock()
        self._lock: lock.FileLock | None = None
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with _one_at_a_time(self._folder):
                offset = self._register(Path(path), id, needs, owns_name)
        except OSError as error:
            raise ConfigError(
                f"{self._folder} cannot be written: {error.strerror}.",
                hint="Use the account to which the relay log belongs.",
            ) from error
        self._stored: tuple[Offset, float] = (offset, time.monotonic())
        self._unwritten = False
        """Whether the last attempt to write an offset failed, and the log says so."""

    def _register(self, path: Path, id_: str | None, needs: Offset, owns_name: bool) -> Offset:
        known = registered(path)
        self.id = id_ or _former_id(known, self._name) or str(uuid.uuid4())
        _refuse_living(known, self._name, self.id, path)
        former = [one for one in known if one.id == self.id or (owns_name and _is_unowned(one, self._name))]
        offset = min([needs, *(one.offset for one in former)])
        self._lock = _taken(self._folder / f"{self.id}.lock")
        try:
            self._write(offset)
            for one in former:
                if one.id != self.id:
                    (self._folder / f"{one.id}.json").unlink(missing_ok=True)
            sync(self._folder)
        except BaseException:
            self.close()
            raise
        return offset

    def needs(self, offset: Offset) -> None:
        """Records durably that nothing at or before `offset` is needed any more. If that cannot be written,
        more log is kept than necessary."""
        with self._thread_lock:
            stored, at = self._stored
            if offset == stored and time.monotonic() < at + REWRITE_SECONDS:
                return
            if offset < stored:
                self._protect(offset)
                return
            try:
                self._write(offset)
            except OSError as error:
                if not self._unwritten:
                    log.warning("%s: offset %d cannot be written: %s", self._folder, offset, error.strerror)
                self._unwritten = True
                return
            self._stored, self._unwritten = (offset, time.monotonic()), False

    def protect(self, offset: Offset) -> None:
        """Keeps the log after `offset`, which may be older than the current one. Once this returns, retention
        deletes nothing after `offset`. Part of it may already be gone, so check the log's start afterwards.
        Raises `TransientError`."""
        with self._thread_lock:
            self._protect(offset)

    def _protect(self, offset: Offset) -> None:
        if offset >= self._stored[0]:
            return
        with _one_at_a_time(self._folder):
            try:
                self._write(offset)
            except OSError as error:
                raise TransientError(f"{self._folder} cannot be written: {error.strerror}.") from error
            self._stored = offset, time.monotonic()

    def _write(self, offset: Offset) -> None:
        fields = {"id": self.id, "name": self._name, "kind": self._kind, "place": self._place}
        data = json.dumps({**fields, "offset": int(offset), "updated": time.time()}).encode()
        replace_file(self._folder / f"{self.id}.json", data, durable=True)

    def close(self) -> None:
        """Ends the run. The consumer stays registered, so log is still kept for it."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def remove(path: str | Path, name_or_id: str) -> Registered:
    """Unregisters a consumer that is not running, so that no log is kept for it. Raises `ConfigError`."""
    folder = Path(path) / CONSUMERS_FOLDER
    with _one_at_a_time(folder):
        known = registered(path)
        found = [one for one in known if one.id == name_or_id] or [
            one for one in known if one.name == name_or_id
        ]
        if not found:
            raise ConfigError(
                f"The relay log {path} has no consumer {name_or_id!r}.",
                hint="`penstock consumers` lists them.",
            )
        if len(found) > 1:
            ids = ", ".join(one.id for one in found)
            raise ConfigError(
                f"{len(found)} consumers are named {name_or_id!r}.", hint=f"Use one of the ids: {ids}."
            )
        [one] = found
        if one.alive:
            raise ConfigError(
                f"The consumer {one.name} ({one.id}) of the relay log {path} is running.",
                hint="Stop it first. Otherwise log that it still needs could be deleted.",
            )
        (folder / f"{one.id}.json").unlink(missing_ok=True)
        (folder / f"{one.id}.lock").unlink(missing_ok=True)
        sync(folder)
    return one


def described(path: str | Path) -> list[dict[str, object]]:
    """What `restore` needs to register the consumers again, in another folder."""
    return [
        {"id": one.id, "name": one.name, "kind": one.kind, "place": one.place, "offset": int(one.offset)}
        for one in registered(path)
        if not one.damaged and one.kind != "unknown"
    ]


def restore(path: str | Path, known: Iterable[object], *, end: Offset) -> None:
    """Registers consumers of a log whose disk was lost. They keep the log from where they were, at most from
    `end`, the end of what is left. What is no description of a consumer is left out."""
    folder = Path(path) / CONSUMERS_FOLDER
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for fields in known:
        try:
            assert isinstance(fields, dict)
            stem = str(fields["id"])
            data = json.dumps({**fields, "offset": min(int(fields["offset"]), end), "updated": time.time()})
            if not _NAME.match(stem) or stem.startswith("."):
                raise ValueError("its id is not valid")
            _parsed(stem, data.encode())
        except (AssertionError, KeyError, TypeError, ValueError):
            continue
        replace_file(folder / f"{stem}.json", data.encode(), durable=True)


def _former_id(known: list[Registered], name: str) -> str | None:
    """The id of a stopped follower of this name; the one that needs most log if there are several."""
    followers = [one for one in known if one.kind == "follower" and one.name == name and not one.alive]
    return min(followers, key=lambda one: one.offset).id if followers else None


def _is_unowned(one: Registered, name: str) -> bool:
    return one.kind == "unknown" and one.id == name


def _refuse_living(known: list[Registered], name: str, id_: str, path: Path) -> None:
    for one in known:
        if one.alive and one.id == id_:
            raise ConfigError(
                f"The consumer {one.name} of the relay log {path} is already running with the id {id_}.",
                hint="Was the `state` directory copied? Each pipeline needs its own.",
            )
        if one.alive and one.name == name:
            where = f", whose state is {one.place}," if one.place else ""
            raise ConfigError(
                f"A {one.kind} named {name}{where} is already running on the relay log {path}.",
                hint="Stop it, or choose another name: `name` of the pipeline file, or of `follow`.",
            )


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Raises `TransientError` if others hold the lock for too long."""
    with exclusive(folder, wait_seconds=LOCK_SECONDS_MAX) as alone:
        if not alone:
            raise TransientError(
                f"Another process has held {folder / _LOCK} for {LOCK_SECONDS_MAX:.0f} s.",
                hint=f"Find out why it does not go on{lock.by_holder(folder / _LOCK)}.",
            )
        yield


@contextlib.contextmanager
def exclusive(folder: Path, *, wait_seconds: float = 0.0) -> Iterator[bool]:
    """Tries to take `consumers/lock` for the block. Yields whether it was taken. `folder`: the folder of the
    consumers."""
    try:
        found = lock.take(folder / _LOCK, wait_seconds=wait_seconds)
    except FileNotFoundError:
        yield True  # nobody has ever registered
        return
    try:
        yield found is not None
    finally:
        if found is not None:
            found.release()


def _taken(path: Path) -> lock.FileLock:
    """The caller must hold `consumers/lock`."""
    found = lock.take(path)
    if found is None:
        raise ConfigError(f"Another process holds {path}.", hint=f"Stop it first{lock.by_holder(path)}.")
    return found


def _is_alive(path: Path) -> bool:
    """Whether somebody holds the lock. On an error the answer is yes."""
    try:
        return lock.is_locked(path)
    except OSError:
        return True
