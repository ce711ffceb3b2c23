"""Moves a stopped pipeline's state and relay log to another directory (`penstock move`).

A mark in a state directory (`state/moved.py`) says that no pipeline may run there: either it was moved away
(`to`), or the copy is not complete yet. The steps, and why at most one of the two places can run after a kill
at any point:

1. The new state gets a mark without `to`. Only the old place can run.
2. Everything is copied, and each copy is read back and compared. Files that are equal already are skipped, so
   a repeated command continues. The database is copied by SQLite, while nobody can write to it.
3. The old state gets the mark with the new place. No place can run.
4. The mark of the new state is removed. Only the new place can run.

All locks of the old place are held meanwhile, so nobody writes there. The relay log moves with its readers,
so all of them must be pipelines that move.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.config import PipelineConfig
from penstock.disk import directory
from penstock.disk.digest import sha256_of
from penstock.disk.replace import sync
from penstock.errors import ConfigError
from penstock.relaylog import consumers
from penstock.relaylog.segment import LEASE_FILE
from penstock.runtime.fresh_state import no_receiver
from penstock.state.moved import MARK, put_mark, read_mark, refuse_moved, remove_mark
from penstock.steps import step

RELAY, STATE = "relay", "state"
_DATABASE = "state.sqlite"
_LEFT_BEHIND = {
    "lock", LEASE_FILE, MARK, "spark", "secrets", "status.json",
    _DATABASE, f"{_DATABASE}-wal", f"{_DATABASE}-shm",
}  # fmt: skip
"""Names of what a copy makes anew, or gets in another way."""


@dataclass(frozen=True)
class Moved:
    """The new places, and what was copied. `relay_log` None: it is inside the state. `stays`: what the
    pipeline needs and what was not copied."""

    state: Path
    relay_log: Path | None
    files: int
    bytes: int
    stays: tuple[str, ...]


def move(config: PipelineConfig, members: Sequence[PipelineConfig], to: Path) -> Moved:
    """Copies state and relay log into the directory `to`, and marks the old state. The states of `config` and
    of its `members` (the sinks, if there are several) must be locked (`fresh_state.stopped`).

    Raises `ConfigError` if `to` has something else, or if others read the relay log."""
    old, new = config.state, to / STATE
    relay = (members[0] if members else config).relay_log_path
    new_relay = None if relay.is_relative_to(old) else to / RELAY
    states = [*(one.state for one in members), old]  # the mark of the last one decides
    mark = read_mark(old)
    if mark is not None and mark.get("to") != str(new):
        refuse_moved(old)
    _refuse_inside(to, old, relay)
    _refuse_readers(relay, states)
    facts = {"from": str(old), "host": socket.gethostname()}
    files = size = 0
    if mark is None:
        _begin(to, [new / state.relative_to(old) for state in states], facts)
        skipped = {one for each in [config, *members] for one in each.open_paths}
        with contextlib.ExitStack() as stack:
            stack.enter_context(no_receiver(relay))
            for database in (state / _DATABASE for state in states):
                if database.exists():
                    copy = new / database.relative_to(old)
                    stack.enter_context(_copied_database(database, copy))
            for source, target in ((old, new), (relay, new_relay)):
                if target is not None:
                    found = _copy(source, target, skipped)
                    files, size = files + found[0], size + found[1]
            for state in states:
                put_mark(state, facts | {"to": str(new), "at": time.strftime("%Y-%m-%dT%H:%M:%S%z")})
    for state in states:
        remove_mark(new / state.relative_to(old))
    return Moved(new, new_relay, files, size, _stays(config, members))


def _begin(to: Path, states: Sequence[Path], facts: dict[str, str]) -> None:
    """Creates the new directories, in which no pipeline can run yet. `to` may have an earlier attempt."""
    directory.make(to, "--to")
    earlier = read_mark(states[-1]) or {}
    files = (one for one in to.rglob("*") if not one.is_dir() and not one.name.startswith(MARK))
    if earlier.get("from") != facts["from"] and any(files):
        raise ConfigError(
            f"{to} is not empty.", hint="Name a directory that does not exist yet.", path=str(to)
        )
    for state in reversed(states):
        directory.make(state, "--to")
        put_mark(state, facts)


def _refuse_inside(to: Path, *places: Path) -> None:
    for place in places:
        if to.resolve().is_relative_to(place.resolve()) or place.resolve().is_relative_to(to.resolve()):
            raise ConfigError(
                f"{to} and {place} are inside each other.", hint="Name a directory outside.", path=str(to)
            )


def _refuse_readers(relay: Path, states: Sequence[Path]) -> None:
    """Raises `ConfigError` if somebody else reads the relay log. Two copies of one log could not both go on:
    the source takes their receivers for one."""
    own = {_uuid(state / _DATABASE) for state in states}
    others = [one.name for one in consumers.registered(relay) if one.id not in own]
    if others:
        raise ConfigError(
            f"The relay log {relay} has other readers, which would stay behind: {', '.join(others)}.",
            hint="If they are gone, remove them: `penstock consumers FILE --remove NAME`. Otherwise this log "
            "stays here: on the other machine, run `penstock adopt FILE` with an empty `state`.",
            path=str(relay),
        )


def _uuid(database: Path) -> str | None:
    if not database.exists():
        return None
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as opened:
        row = opened.execute("SELECT value FROM meta WHERE name = 'uuid'").fetchone()
        return str(row[0]) if row else None


@contextlib.contextmanager
def _copied_database(path: Path, copy: Path) -> Iterator[None]:
    """Copies a database, and lets nobody write to it while the block runs: a signal that came now would be
    lost."""
    step("copying %s", path)
    directory.make(copy.parent, "--to")
    for name in (copy.name, f"{copy.name}-wal", f"{copy.name}-shm", f"{copy.name}-journal"):
        copy.with_name(name).unlink(missing_ok=True)
    os.close(os.open(copy, os.O_RDWR | os.O_CREAT, 0o600))
    connected = contextlib.closing
    with connected(sqlite3.connect(path, timeout=30, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with connected(sqlite3.connect(path)) as source, connected(sqlite3.connect(copy)) as target:
            source.backup(target)
            if _digest_of(source) != _digest_of(target):
                raise ConfigError(f"{copy} differs from {path} after it was copied.", hint="Check the disk.")
        sync(copy)
        sync(copy.parent)
        yield
        writer.execute("ROLLBACK")


def _digest_of(database: sqlite3.Connection) -> bytes:
    digest = hashlib.sha256()
    for line in database.iterdump():
        digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.digest()


def _copy(source: Path, target: Path, skipped: set[Path]) -> tuple[int, int]:
    """Copies a directory, except what is left behind. Returns how many files and bytes it has."""
    files = size = 0
    directory.make(target, "--to")
    for folder, names, found in os.walk(source):
        here = Path(folder)
        names[:] = [name for name in names if name not in _LEFT_BEHIND and here / name not in skipped]
        there = target / here.relative_to(source)
        for name in names:
            (there / name).mkdir(exist_ok=True, mode=0o700)
        for name in found:
            if name in _LEFT_BEHIND or here / name in skipped or not (here / name).is_file():
                continue
            step("copying %s", here / name)
            _copy_file(here / name, there / name)
            files, size = files + 1, size + (here / name).stat().st_size
        sync(there)
    return files, size


def _copy_file(source: Path, copy: Path) -> None:
    wanted = sha256_of(source)
    if copy.exists() and copy.stat().st_size == source.stat().st_size and sha256_of(copy) == wanted:
        return
    shutil.copy2(source, copy)
    sync(copy)
    if sha256_of(copy) != wanted:
        raise ConfigError(f"{copy} differs from {source} after it was copied.", hint="Check the disk.")


def _stays(config: PipelineConfig, members: Sequence[PipelineConfig]) -> tuple[str, ...]:
    """What the pipeline needs on the other machine beside the copy, in words."""
    found = dict[str, None]()
    for one in members or [config]:
        if one.sink.directory is not None:
            found[f"the targets in {one.sink.directory}, at the same path"] = None
        if one.staging is not None:
            found[f"`staging`, {one.staging}"] = None
        if one.relay_log.archive_url is not None:
            found[f"the archive of the relay log, {one.relay_log.archive_url}"] = None
    return tuple(found)
