"""Begins a pipeline with a new state and a new relay log, and keeps its targets (`penstock adopt`, `reset`).

The new state has the uuid that the targets know, so they are its own. It has no tables, so the next run finds
them like those of a new pipeline, and reads all rows. A target that has rows is treated as in a resnapshot
(`targets.check_new`, `TableState.takes_over`): it keeps them until the snapshot has replaced or deleted them.

**Why no old row wins against a newer one, and no commit is taken for one that was made before.** Rows are
merged by their sequence, which is an offset of the relay log. Commits are recognized by the epoch. The
numbers of the lost state are unknown. So the new ones begin behind every number that a pipeline can have
reached since `SINCE_S`, when nobody ran Penstock yet:

- the relay log at `LOG_BYTES_PER_SECOND` for each second since then: a log that has grown for all the time by
  less than that has smaller offsets, also if it began like this itself. Sinks compare sequences up to 2^52
  exactly, which this reaches in the year 2043;
- epochs, and entries of the history, at 1000 for each second, and drivers at one.

What can be read of the earlier state and log counts, too.

**Killed meanwhile**, the pipeline is refused at its next start, or begins as it should. Old files go first,
the relay log before the state, and the state is replaced in one step. Without its log, the old state does not
run (`targets.check_relay_log`); without the state, the targets belong to somebody else. Each command can be
repeated then.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.config import PipelineConfig
from penstock.disk import directory, lock
from penstock.disk.replace import replace_file, sync
from penstock.errors import ConfigError, PenstockError
from penstock.model.offset import Offset
from penstock.relaylog import consumers
from penstock.relaylog.archive import Archive
from penstock.relaylog.files import LogPlace
from penstock.relaylog.index import recovered_end
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment import (
    CONSUMERS_FOLDER,
    FIRST_OFFSET_FILE,
    LEASE_FILE,
    RELAY_FILE,
    STATUS_FILE,
    SegmentName,
)
from penstock.relaylog.spool import PREPARED_FOLDER
from penstock.runtime import targets
from penstock.runtime.staging_place import SCRATCH, open_staging
from penstock.snapshot.staging import CHUNKS
from penstock.state import StateStore
from penstock.state.moved import refuse_moved
from penstock.store.folder import StoreFolder

SINCE_S = 1_767_225_600
"""The beginning of 2026, before the first version of Penstock, in seconds since 1970."""
LOG_BYTES_PER_SECOND = 8 << 20
EPOCHS_PER_SECOND = 1000
_AHEAD_BYTES = 1 << 30
"""Distance of the new log from the end of the old one, for log that was received but cannot be read."""
_CASCADES = "cascades"
_STATE_FILES = (
    "state.sqlite", "state.sqlite-wal", "state.sqlite-shm", "status.json", "ended.json", "spark", "index",
    "dimensions", "staging", "chunks", _CASCADES,
)  # fmt: skip
"""What a pipeline writes into its state directory and makes again. Dead letters and logs stay."""
_DRAFT = "fresh"


@dataclass(frozen=True)
class Numbers:
    """Where a new state begins, or how far an old one has come."""

    offset: Offset = Offset(0)  # noqa: RUF009 (an int)
    epoch: int = 0
    generation: int = 0


def first_numbers(now_s: float, known: Numbers) -> Numbers:
    """See the module's argument. `known`: what the old state and its log are known to have reached. Raises
    `ConfigError` if the clock is wrong."""
    seconds = int(now_s) - SINCE_S
    if seconds <= 0:
        raise ConfigError("The clock of this machine is before the year 2026.", hint="Set it.")
    return Numbers(
        Offset(max(seconds * LOG_BYTES_PER_SECOND, known.offset + _AHEAD_BYTES if known.offset else 0)),
        max(seconds * EPOCHS_PER_SECOND, known.epoch),
        max(seconds, known.generation),
    )


@dataclass(frozen=True)
class OldState:
    """What is in a state directory. `uuid` None: there is no state, or it cannot be read (`damage`).
    `is_fresh`: it was made by `begin` and has not run."""

    uuid: str | None = None
    numbers: Numbers = Numbers()
    is_fresh: bool = False
    damage: str = ""

    @classmethod
    def of(cls, config: PipelineConfig) -> OldState:
        if not StateStore.exists(config.state):
            return cls()
        try:
            with contextlib.closing(StateStore(config.state, read_only=True)) as state:
                position = state.position
                known = Numbers(position or Offset(0), state.last_epoch(), state.generation)
                return cls(state.uuid, known, position is None and state.began_after > 0)
        except (PenstockError, sqlite3.Error) as error:
            return cls(damage=str(error))


@dataclass(frozen=True)
class FreshState:
    """What `begin` does for one pipeline. `log_readers`: others that read its relay log, which therefore
    stays."""

    config: PipelineConfig
    uuid: str
    numbers: Numbers
    log_readers: tuple[str, ...] = ()

    def removes(self) -> list[tuple[Path, int]]:
        """The paths that will be removed, and how many bytes each has."""
        paths = [self.config.state / name for name in _STATE_FILES]
        if not self.log_readers:
            paths += _log_files(self.config.relay_log_path)
        return [(path, _size(path)) for path in paths if path.exists()]


@contextlib.contextmanager
def stopped(configs: Iterable[PipelineConfig]) -> Iterator[None]:
    """Locks the states of the pipelines while the block runs. Raises `ConfigError` if one of them runs."""
    with contextlib.ExitStack() as stack:
        for config in configs:
            directory.make(config.state, "state")
            stack.enter_context(directory.held(config.state))
        yield


def prepared(
    config: PipelineConfig, uuid: str, old: OldState, *, together: Collection[str], now_s: float | None = None
) -> FreshState:
    """Looks at what is to be done, and changes nothing. The state must be locked (`stopped`). `together`: the
    uuids of all pipelines of this relay log that begin anew now.

    Raises `ConfigError` if the tables could not be read, if other pipelines need the relay log and it is not
    the one that this pipeline has followed, or if the archive of the log would be mixed with a new one."""
    refuse_moved(config.state)
    if config.snapshot.mode == "never":
        raise ConfigError(
            "This pipeline reads no rows (`snapshot.mode: never`), so its targets would lack changes.",
            hint="Write `snapshot.mode: initial` for the next run.",
        )
    folder = config.relay_log_path
    readers = consumers.registered(folder)
    others = tuple(one.name for one in readers if one.id not in {uuid, old.uuid, *together})
    if others and uuid not in {one.id for one in readers}:
        raise ConfigError(
            f"Others read the relay log {folder}: {', '.join(others)}. It is not known whether this pipeline "
            "has followed it.",
            hint="Give this pipeline a `relay_log.path` of its own. Or, if they are gone, remove them: "
            "`penstock consumers FILE --remove NAME`.",
            path=str(folder),
        )
    place = LogPlace.of(config)
    if not others and place.archive is not None and Archive(place.archive).manifest() is not None:
        raise ConfigError(
            f"The archive {Archive(place.archive)} has the relay log so far. A new log cannot go on in it.",
            hint="Name another place in `relay_log.archive`. The archive stays as it is, and `penstock "
            "inspect URL` reads it.",
            path=str(Archive(place.archive)),
        )
    known = Numbers(max(old.numbers.offset, _end_of(place)), old.numbers.epoch, old.numbers.generation)
    return FreshState(config, uuid, first_numbers(now_s or time.time(), known), others)


def begin(fresh: FreshState, former: str | None = None) -> None:
    """Puts the new state in place. `former`: the uuid of the state that was there. The caller has the lock of
    the state (`stopped`). Raises `ConfigError` while a receiver writes the log that is to be removed, or
    another process the targets."""
    config, folder = fresh.config, fresh.config.relay_log_path
    draft = config.state / _DRAFT
    shutil.rmtree(draft, ignore_errors=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(targets.locked(config, fresh.uuid))
        if not fresh.log_readers:
            stack.enter_context(no_receiver(folder))
        with contextlib.closing(StateStore(draft, owner=True)) as state:
            state.set_meta("uuid", fresh.uuid)
            state.begin_after(fresh.numbers.epoch)
            state.begin_generation(fresh.numbers.generation)
            store = open_staging(config, state)
            for name in (CHUNKS, SCRATCH, _CASCADES):  # of the state before; a store may be elsewhere
                StoreFolder(store, name).remove()
        if fresh.log_readers:
            _unregister(folder, former, but=fresh.uuid)
        else:
            for path in _log_files(folder):
                _remove(path)
            replace_file(folder / FIRST_OFFSET_FILE, str(int(fresh.numbers.offset)).encode(), durable=True)
        for name in _STATE_FILES[1:]:
            _remove(config.state / name)
        (draft / "state.sqlite").replace(config.state / "state.sqlite")
        sync(config.state)
    shutil.rmtree(draft, ignore_errors=True)


def _end_of(place: LogPlace) -> Offset:
    """The end of a log, as far as it can be read."""
    folder = place.folder
    if folder is None or not folder.is_dir():
        return Offset(0)
    found = [Offset(name.base) for path in folder.iterdir() if (name := SegmentName.parse(path.name))]
    found += consumers.offsets(folder)
    with contextlib.suppress(PenstockError, OSError):
        found.append(RelayLog.open(LogPlace(folder)).end)
        found.append(recovered_end(folder))
    return max(found, default=Offset(0))


def _log_files(folder: Path) -> list[Path]:
    """The files of a relay log, except its lease, which its writers count. `relay.json` is the first."""
    if not folder.is_dir():
        return []
    own = (RELAY_FILE, STATUS_FILE, CONSUMERS_FOLDER, PREPARED_FOLDER, FIRST_OFFSET_FILE)
    segments = sorted(path for path in folder.iterdir() if SegmentName.parse(path.name))
    return [path for path in (*(folder / name for name in own), *segments) if path.exists()]


@contextlib.contextmanager
def no_receiver(folder: Path) -> Iterator[None]:
    directory.make(folder, "relay_log.path")
    with directory.lock_held(folder / LEASE_FILE, "relay_log.path") as is_ours:
        if not is_ours:
            raise ConfigError(
                f"A receiver writes the relay log {folder}.",
                hint=f"Stop it first{lock.by_holder(folder / LEASE_FILE)}.",
                path=str(folder),
            )
        yield


def _unregister(folder: Path, former: str | None, *, but: str) -> None:
    """Removes the reader that the replaced state was, for which nobody would read the log any more."""
    if former is not None and former != but:
        with contextlib.suppress(ConfigError):  # it was never registered
            consumers.remove(folder, former)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _size(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size
    return sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
