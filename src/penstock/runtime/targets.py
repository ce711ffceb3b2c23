"""Does the state fit what it speaks of: the relay log it was planned from, the targets it has written?

Both can be changed behind a pipeline's back: restored, removed, rolled back. Going on would lose changes or
apply them twice, so it is noticed before anything is planned.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from penstock._core import arrow_schema
from penstock.config import PipelineConfig
from penstock.disk import directory
from penstock.errors import START_OVER, ConfigError
from penstock.failures.messages import one_sentence
from penstock.model.offset import Offset
from penstock.model.schema import TableId, TypeOptions
from penstock.model.table import TableState
from penstock.printable import argument
from penstock.relaylog.index import recovered_end
from penstock.relaylog.reader import RelayLog
from penstock.sinks.base import Foreign, Missing, Ours, Sink, TargetState, table_sink
from penstock.sinks.refusals import check_directory
from penstock.state import StateStore

log = logging.getLogger(__name__)

OPENED_AT_ONCE = 4
"""Targets that are opened at the same time, when a run begins."""


def check_paths(config: PipelineConfig) -> None:
    """What the operator named must be usable before anything is started."""
    directory.make(config.relay_log_path, "relay_log.path")
    directory.close_to_others(config.relay_log_path, "relay_log.path")
    if config.sink.directory is not None:
        check_directory(config.sink.directory)


@contextlib.contextmanager
def locked(config: PipelineConfig, state: StateStore) -> Iterator[None]:
    """Holds the right to write this state's targets, by a lock in `sink.path`.

    Commits are told apart by the state's uuid and the epoch's number. A copy of a state has the same ones: if
    both ran, each would take epochs of the other for its own, and pass over changes. Two states on one
    machine, or on machines that share a file system with locks, are told apart here; where a target is
    somewhere else, only the order in which they run is checked (`check`).
    """
    targets = config.sink.directory
    if targets is None:
        yield
        return
    with directory.lock_held(targets / f".penstock-{state.uuid}.lock", "sink.path") as is_ours:
        if not is_ours:
            raise ConfigError(
                f"Another process writes the targets of this pipeline in {targets}: one whose state "
                f"has the same identity, {state.uuid}.",
                hint="Was the `state` directory copied? Run one of the two, never both. For a second "
                "pipeline, begin with an empty `state` and another `sink.namespace`.",
                path=str(targets),
            )
        yield


def check_relay_log(path: Path, state: StateStore) -> None:
    """Call before a receiver may write the log: one that lacks what was planned from it would be filled with
    other bytes at the same offsets. Raises `ConfigError`."""
    position, known = state.position, state.meta("relay_log")
    if position is None:
        return
    if not RelayLog.exists(path):
        raise ConfigError(
            f"The relay log {path} is gone. This pipeline has planned up to offset {position} of it.",
            hint=f"Restore it, or correct `relay_log.path`. If it is lost, {START_OVER}",
            path=str(path),
        )
    log = RelayLog.open(path)
    if known is not None and log.uuid != known:
        raise ConfigError(
            f"The relay log {path} is not the one that this pipeline has followed: its uuid is "
            f"{log.uuid} instead of {known}.",
            hint=f"Restore the other one, or correct `relay_log.path`. If it is lost, {START_OVER}",
            path=str(path),
        )
    if log.end < position and (end := recovered_end(path)) < position:
        raise ConfigError(
            f"The relay log {path} ends at offset {end}, but this pipeline has planned up to {position}. An "
            "older copy was restored, or the end of its index is missing.",
            hint=f"Restore its newest copy. If it is lost, {START_OVER}",
            path=str(path),
            offset=int(end),
        )


def check(
    sink: Sink,
    state: StateStore,
    asked: Collection[TableId] = (),
    renewed: Collection[TableId] = (),
    *,
    types: TypeOptions,
) -> None:
    """Raises `ConfigError` for a target that is not as this pipeline left it.

    A rollback shows in Iceberg's snapshots. Delta's RESTORE keeps the record of our commits (`verify`
    finds what differs), and a removed part of a change log leaves no trace: neither is seen here.

    The target of a table that is to be read again anyway (`asked` for, or pending) may be rolled back, or
    missing: then an empty one is made, since an epoch that was planned before may still have steps for it.
    A target that is to be `renewed` may be in any state: if it cannot be opened it goes now, and a resnapshot
    of its table is pending.
    """
    newest = state.last_epoch()
    moving = {table for plan in state.pending() for table in plan.moved}
    tables = list(state.tables().values())
    targets = _opened(sink, [table.table for table in tables if table.table not in renewed])
    for table in tables:
        target = _renewed(sink, state, table) if table.table in renewed else targets[table.table]
        if isinstance(target, Foreign):
            raise target.error(table.table)
        if isinstance(target, Ours) and target.last_commit and target.last_commit.epoch > newest:
            raise ConfigError(
                f"The target of {table.table} is ahead of this pipeline's state {state.path}: it holds epoch "
                f"{target.last_commit.epoch}, the state knows {newest}. An older copy of the state was "
                "restored.",
                hint=f"Restore the newest `state` directory. If it is lost, {START_OVER}",
                table=str(table.table),
            )
        if table.status != "live" or table.last_epoch <= 0 or table.table in moving:
            continue  # left alone, or its target is still to be made, or on its way
        if not table.resnapshot_pending and table.table not in asked and table.table not in renewed:
            check_as_left(table, target, state)
        elif isinstance(target, Missing):
            sink.create(table.schema, arrow_schema(table.schema.to_json(), "rows", types.to_json()))


def _opened(sink: Sink, tables: Iterable[TableId]) -> dict[TableId, TargetState]:
    """Several at once: most of the time of each goes by on the way to the JVM and to the files."""
    names = list(tables)
    with ThreadPoolExecutor(OPENED_AT_ONCE, thread_name_prefix="targets") as pool:
        return dict(zip(names, pool.map(sink.open, names), strict=True))


def _renewed(sink: Sink, state: StateStore, table: TableState) -> TargetState:
    """Nothing is there, if what is there cannot be opened."""
    if not table.last_epoch and table.target_reset != "recreate":
        return sink.open(table.table)  # nothing of ours can be there
    try:
        return sink.open(table.table)
    except Exception as error:  # whatever the file format's own code makes of it
        log.warning("the target of %s cannot be opened and is removed: %s", table.table, one_sentence(error))
        if table.target_reset != "recreate":
            pending = table.read_again("its target could not be opened")
            state.put_table(replace(pending, target_reset="recreate"))
        table_sink(sink).clear(table.table)
        return Missing()


def check_new(sink: Sink, state: StateStore) -> None:
    """Raises `ConfigError` if the place of a target that is still to be made is taken."""
    new = [one.table for one in state.tables().values() if not one.last_epoch and one.status == "live"]
    for table, target in _opened(sink, new).items():
        if isinstance(target, Foreign):
            raise target.error(table)


def park_taken(sink: Sink, state: StateStore, tables: Iterable[TableId]) -> None:
    """The same for tables that came while others are followed: only they are left alone."""
    for name, target in _opened(sink, tables).items():
        if isinstance(target, Foreign):
            error = target.error(name)
            state.park(name, offset=state.position or Offset(0), reason=error.message, hint=error.hint)


def check_as_left(table: TableState, target: TargetState, state: StateStore) -> None:
    """Raises `ConfigError` for a target that lacks what this pipeline has written to it."""
    if isinstance(target, Foreign):
        raise target.error(table.table)
    command = f"`penstock resnapshot FILE {argument(table.table)}`"
    again = f"run {command} and then the pipeline: the table is read again."
    if isinstance(target, Missing):
        raise ConfigError(
            f"The target of {table.table} is gone, but this pipeline has made it before.",
            hint=f"Bring it back, or {again}",
            table=str(table.table),
        )
    held = target.last_commit.epoch if target.last_commit else 0
    if held < table.last_epoch and _has_committed(table, state):
        raise ConfigError(
            f"The target of {table.table} was rolled back: it holds epoch {held}, this pipeline has written "
            f"{table.last_epoch}.",
            hint=f"Bring its newest version back, or {again}",
            table=str(table.table),
        )


def _has_committed(table: TableState, state: StateStore) -> bool:
    """Whether the table's last epoch left a commit in the target.

    An epoch that parks the table is not its last. Of an epoch long ago it is enough that rows were written,
    since the target was made before.
    """
    committed = state.has_committed(table.last_epoch, table.table)
    return table.written if committed is None else committed
