"""Checks that the state fits the relay log it was planned from, and the targets it has written.

Both can change without the pipeline's knowledge: they can be restored, removed or rolled back. Continuing
would then lose changes or apply them twice. So this is checked before anything is planned.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from penstock._core import arrow_schema
from penstock.config import PipelineConfig
from penstock.disk import directory
from penstock.errors import START_OVER, ConfigError, PenstockError, TableError
from penstock.failures.messages import of_one_table, one_sentence
from penstock.model.offset import Offset
from penstock.model.schema import TableId, TypeOptions
from penstock.model.table import TableState
from penstock.planning.parked_reasons import ParkedReasons
from penstock.printable import argument
from penstock.relaylog.files import LogPlace
from penstock.relaylog.index import recovered_end
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment import RELAY_FILE
from penstock.runtime.driver_lease import DriverLease
from penstock.signals.settings import apply_patterns
from penstock.sinks.base import (
    Fencing,
    Foreign,
    LogSink,
    Missing,
    Ours,
    Sink,
    TableSink,
    TargetState,
    adopting,
    name_at_target,
    table_sink,
)
from penstock.sinks.refusals import check_directory, unfit_target
from penstock.sources.base import Source
from penstock.sources.catalog import Reason
from penstock.sources.table_filter import TableFilter
from penstock.state import StateStore

log = logging.getLogger(__name__)

OPENED_AT_ONCE = 4
"""Targets that are opened in parallel when a run starts. Most of the time is spent waiting for the JVM and
for files."""


def check_paths(config: PipelineConfig) -> None:
    """Raises `ConfigError` if a directory that the operator named cannot be used."""
    directory.make(config.relay_log_path, "relay_log.path")
    directory.close_to_others(config.relay_log_path, "relay_log.path")
    if config.sink.directory is not None:
        check_directory(config.sink.directory)


@contextlib.contextmanager
def locked(config: PipelineConfig, uuid: str) -> Iterator[None]:
    """Ensures that no other process writes the targets of the state with this uuid, by a lock in `sink.path`.

    Commits are identified by the state's uuid and the epoch's number. A copy of a state has the same uuid. If
    both ran, each would take the other's epochs for its own and skip changes. The lock prevents that on one
    machine, and on machines that share a file system with locks. For targets in other stores, only the order
    of the runs is checked (`check`).
    """
    targets = config.sink.directory
    if targets is None or not targets.is_dir():
        yield
        return
    with directory.lock_held(targets / f".penstock-{uuid}.lock", "sink.path") as is_ours:
        if not is_ours:
            raise ConfigError(
                f"Another process writes the targets of this pipeline in {targets}: one whose state "
                f"has the same identity, {uuid}.",
                hint="Was the `state` directory copied? Run one of the two, never both. For a second "
                "pipeline, begin with an empty `state` and another `sink.namespace`.",
                path=str(targets),
            )
        yield


def check_relay_log(place: LogPlace, state: StateStore) -> None:
    """Must be called before a receiver may write the log. If the log lacked the end from which epochs were
    planned, the receiver would write other bytes at the same offsets. Raises `ConfigError`."""
    position, known = state.position, state.meta("relay_log")
    if position is None:
        return
    path, folder = str(place), place.folder
    if folder is not None and place.archive is not None and not (folder / RELAY_FILE).exists():
        return  # the receiver begins it again from the archive, and `lost_log.py` looks at what is lost
    if not RelayLog.exists(place):
        raise ConfigError(
            f"The relay log {path} is gone. This pipeline has planned up to offset {position} of it.",
            hint=f"Restore it, or correct `relay_log.path`. If it is lost, {START_OVER}",
            path=path,
        )
    log = RelayLog.open(place)
    if known is not None and log.uuid != known:
        raise ConfigError(
            f"The relay log {path} is not the one that this pipeline has followed: its uuid is "
            f"{log.uuid} instead of {known}.",
            hint=f"Restore the other one, or correct `relay_log.path`. If it is lost, {START_OVER}",
            path=path,
        )
    end = log.end if log.end >= position or folder is None else max(log.end, recovered_end(folder))
    if end < position:
        raise ConfigError(
            f"The relay log {path} ends at offset {end}, but this pipeline has planned up to {position}. An "
            "older copy was restored, or the end of its index is missing.",
            hint=f"Restore its newest copy. If it is lost, {START_OVER}",
            path=path,
            offset=int(end),
        )


def fence(sink: Sink, state: StateStore, lease: DriverLease | None, history: TableId | None) -> None:
    """Must be called before `check`. If an earlier driver may still run on another machine, makes what it
    writes to targets fail. `history`: the table of the history, if there is one."""
    if not isinstance(sink, Fencing):
        return
    sink.begin(state.generation)
    if lease is None or not lease.must_fence:
        return
    written = [table.table for table in state.tables().values() if table.last_epoch]
    planned = [table.table for plan in state.pending() for table in plan.tables]
    with ThreadPoolExecutor(OPENED_AT_ONCE, thread_name_prefix="targets") as pool:
        others = [] if history is None else [history]
        list(pool.map(sink.fence, dict.fromkeys([*written, *planned, *others])))
    lease.fenced_all()


def check(
    sink: Sink,
    config: PipelineConfig,
    state: StateStore,
    asked: Collection[TableId] = (),
    renewed: Collection[TableId] = (),
) -> None:
    """Raises `ConfigError` for a target that somebody else has changed or removed. The targets of tables that
    the pipeline does not follow any more are no matter.

    A rollback shows in Iceberg's snapshots, and a RESTORE in Delta's log, as far back as that reaches. A
    removed part of a change log does not show.

    The target of a table that is going to be read again (`asked` for, or pending) may be rolled back or
    missing. If it is missing, an empty one is created, because an epoch that was planned earlier may still
    write to it. A target that is going to be `renewed` may be in any state. If it cannot be opened, it is
    removed now, and a resnapshot of its table becomes pending.
    """
    newest = state.last_epoch()
    moving = {table for plan in state.pending() for table in plan.moved}
    tables = _followed(config, state)
    targets = _opened(sink, state, [table.table for table in tables if table.table not in renewed])
    for table in tables:
        if table.table not in targets and table.table not in renewed:
            continue
        target = _renewed(sink, state, table) if table.table in renewed else targets[table.table]
        if isinstance(target, Foreign) and table.last_epoch:  # of others: `check_new`
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
            continue  # not followed, or its target does not exist yet or is being moved
        if not table.resnapshot_pending and table.table not in asked and table.table not in renewed:
            check_not_rolled_back(table, target, state)
        elif isinstance(target, Missing):
            sink.create(table.schema, arrow_schema(table.schema.to_json(), "rows", config.types.to_json()))


def _followed(config: PipelineConfig, state: StateStore) -> list[TableState]:
    """The tables that `tables` names, and those that a pending plan still writes. Letter case does not count
    here: whether it counts at the source is not known yet."""
    captured = TableFilter(config.tables, fold_case=True)
    apply_patterns(captured, config.tables, state)
    written = {one.table for plan in state.pending() for one in plan.tables}
    return [
        one for one in state.tables().values()
        if one.table in written or (one.table in captured and one.status != "dropped")
    ]  # fmt: skip


def _opened(sink: Sink, state: StateStore, tables: Iterable[TableId]) -> dict[TableId, TargetState]:
    """Opens several targets in parallel. A table whose target cannot be opened for a reason of its own is
    parked."""

    def opened(table: TableId) -> TargetState | TableError:
        try:
            return sink.open(table)
        except Exception as error:  # the file format's own code may raise anything
            shown = str(name_at_target(sink, table))
            own = of_one_table(error, str(table), state.path.parent, shown=shown)
            if own is None:
                raise
            return own

    names = list(tables)
    with ThreadPoolExecutor(OPENED_AT_ONCE, thread_name_prefix="targets") as pool:
        found = dict(zip(names, pool.map(opened, names), strict=True))
    for name, target in found.items():
        if isinstance(target, TableError):
            _park(state, name, target)
    return {name: target for name, target in found.items() if not isinstance(target, TableError)}


def _renewed(sink: Sink, state: StateStore, table: TableState) -> TargetState:
    """The state of a target that will be recreated. A target that cannot be opened is removed and counts as
    missing."""
    if not table.last_epoch and table.target_reset != "recreate":
        return sink.open(table.table)  # the pipeline has not created it yet
    try:
        return sink.open(table.table)
    except Exception as error:  # the file format's own code may raise anything
        log.warning("the target of %s cannot be opened and is removed: %s", table.table, one_sentence(error))
        if table.target_reset != "recreate":
            pending = table.read_again("its target could not be opened")
            state.put_table(replace(pending, target_reset="recreate"))
        table_sink(sink).clear(table.table)
        return Missing()


def check_new(sink: Sink, state: StateStore, captured: TableFilter, *, types: TypeOptions) -> bool:
    """Parks tables whose target is still to be created, if something else has its name already and cannot be
    adopted. If that is so for each table of the pipeline, it would do nothing: then raises `ConfigError`.
    Returns whether a target with rows is taken over: from others, or from an earlier state."""
    followed = [one for one in state.tables().values() if one.status == "live" and one.table in captured]
    new = [one.table for one in followed if not one.last_epoch]
    return _adopt_or_park(sink, state, new, types, all_=len(new) == len(followed))


def park_taken(sink: Sink, state: StateStore, tables: Iterable[TableId], *, types: TypeOptions) -> bool:
    """Does what `check_new` does, for tables that are added while others are followed."""
    return _adopt_or_park(sink, state, tables, types, all_=False)


def _adopt_or_park(
    sink: Sink, state: StateStore, tables: Iterable[TableId], types: TypeOptions, *, all_: bool
) -> bool:
    """`all_`: the pipeline has no other tables."""
    adopted, taken = False, dict[TableId, ConfigError]()
    found = _opened(sink, state, tables)
    for name, target in found.items():
        table = state.table(name)
        if table is not None and _is_of_earlier_state(sink, target, table, state):
            if table.target_reset == "none":
                state.put_table(table.takes_over(append_only=not isinstance(sink, TableSink)))
            adopted = True
        if table is None or not isinstance(target, Foreign):
            continue
        if (error := _not_adopted(sink, table, target, types)) is not None:
            taken[name] = error
        elif table.status == "live":
            if table.target_reset != "adopt":
                state.put_table(table.adopts())
            adopted = True
    if taken and all_ and len(taken) == len(found):
        raise next(iter(taken.values()))
    for name, error in taken.items():
        _park(state, name, error)
    return adopted


def _is_of_earlier_state(sink: Sink, target: TargetState, table: TableState, state: StateStore) -> bool:
    """Whether the target of a table that has had no epoch yet was written before this state began
    (`fresh_state.py`). What topics have is not known, so they count as written."""
    if not state.began_after or any(
        one.table == table.table for plan in state.pending() for one in plan.tables
    ):
        return False
    if isinstance(sink, LogSink):
        return True
    if not isinstance(target, Ours):
        return False
    last = target.last_commit
    return not target.empty if last is None else last.epoch <= state.began_after


def _park(state: StateStore, table: TableId, error: PenstockError) -> None:
    state.park(table, offset=state.position or Offset(0), reason=error.message, hint=error.hint)
    log.warning("%s is parked: %s", table, error)


def _not_adopted(sink: Sink, table: TableState, target: Foreign, types: TypeOptions) -> ConfigError | None:
    """Why a table of others cannot become the target. None: it can, as far as its columns tell."""
    if not target.adoptable:
        return target.error(table.table)
    arrow = arrow_schema(table.schema.to_json(), "rows", types.to_json())
    different = adopting(sink).differences(table.schema, arrow, rows=False)
    if not different:
        return None
    unfit = unfit_target(table.table, target.place, different)
    return ConfigError(unfit.message, hint=unfit.hint, table=str(table.table), target=target.place)


def check_not_rolled_back(table: TableState, target: TargetState, state: StateStore) -> None:
    """Raises `ConfigError` if the target lacks something that this pipeline has written to it."""
    if isinstance(target, Foreign):
        raise target.error(table.table)
    command = f"`penstock resnapshot FILE {argument(table.table)}`"
    resnapshot = f"run {command} and then the pipeline: the table is read again."
    if isinstance(target, Missing):
        raise ConfigError(
            f"The target of {table.table} is gone, but this pipeline has made it before.",
            hint=f"Bring it back, or {resnapshot}",
            table=str(table.table),
        )
    found = target.last_commit.epoch if target.last_commit else 0
    if found < table.last_epoch and _has_committed(table, state):
        raise ConfigError(
            f"The target of {table.table} was rolled back: it holds epoch {found}, this pipeline has written "
            f"{table.last_epoch}.",
            hint=f"Bring its newest version back, or {resnapshot}",
            table=str(table.table),
        )


def parked_reasons(
    sink: Sink, state: StateStore, source: Source, captured: TableFilter, config: PipelineConfig
) -> ParkedReasons:
    def target_reason(table: TableState) -> Reason | None:
        return present_reason(sink, state, table) if config.sink_kind.durable else None

    return ParkedReasons(state, source.catalog, captured, config, target_reason)


def present_reason(sink: Sink, state: StateStore, table: TableState) -> Reason | None:
    """Why the table could not continue with its target as it is now. None: it could, as far as a look at the
    target tells."""
    target = sink.open(table.table)
    if isinstance(target, Foreign) and not target.adoptable:
        error = target.error(table.table)
        return error.message, error.hint
    if table.last_epoch > 0:
        try:
            check_not_rolled_back(table, target, state)
        except ConfigError as error:
            return error.message, error.hint
    return None


def _has_committed(table: TableState, state: StateStore) -> bool:
    """Whether the table's last epoch left a commit in the target.

    An epoch that parks the table is not its last epoch. For an epoch of long ago, of which the state keeps
    no details, the answer is whether rows were ever written.
    """
    committed = state.has_committed(table.last_epoch, table.table)
    return table.written if committed is None else committed
