"""Decides which tables a pipeline parks when it starts, and why. Pure.

`discover` parks the tables of `parked_when_found`, and the planner those of `cascades.keys.hindered`.
`at_start` combines both, so that `penstock doctor` can say what `penstock run` would do. Decisions that
depend on a target are made elsewhere: a target that belongs to somebody else, or whose columns do not fit
those of other shards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from penstock.cascades.keys import after, hindered
from penstock.config import PipelineConfig
from penstock.errors import TableError
from penstock.model.history import History
from penstock.model.offset import Offset
from penstock.model.schema import TableId, TableSchema
from penstock.model.shards import ShardRule, Shards
from penstock.model.table import AddKey, TableState, new_table
from penstock.model.transforms import Transforms
from penstock.sinks.names import unfit_columns, which_penstock_adds
from penstock.sinks.refusals import other_key, same_key, shared_target
from penstock.sources.catalog import Reason

Reasons = dict[TableId, Reason]
CascadeReason = Callable[[TableId], Reason]
"""`sources.catalog.Catalog.cascade_reason`."""
KEYS_WORKED_OUT = "changes made by its foreign keys are computed from now on"
"""Reason for reading a table again after `cascades: apply` was set."""


def at_start(
    known: Mapping[TableId, TableState],
    schemas: Mapping[TableId, TableSchema],
    unfollowable: Mapping[TableId, Reason],
    config: PipelineConfig,
    cascade_reason: CascadeReason,
    *,
    logs_cascades: bool,
    add_key: AddKey,
) -> dict[TableId, TableState]:
    """The tables as they will be when the pipeline starts to plan. `known`: those of its state. `schemas`:
    those that it captures now. `unfollowable`, `add_key`: of `sources.catalog.Catalog`."""
    tables = dict(known)
    for state, parked in reconfigured(known, schemas, config, cascade_reason):
        tables[state.table] = state if parked is None else _parked(state, *parked)
    append_only = not config.sink_kind.keeps_tables
    new = [
        new_table(schema, Offset(0), reads=False, append_only=append_only, add_key=add_key)
        for name, schema in schemas.items()
        if name not in known
    ]
    tables |= {state.table: state for state in new}
    for name, (reason, hint) in parked_when_found(
        tables, [one.table for one in new], unfollowable, config
    ).items():
        tables[name] = _parked(tables[name], reason, hint)
    if config.cascades == "apply" and not logs_cascades:
        for name, why in hindered(tables, config.types).items():
            tables[name] = after(tables[name], why, tables[name].start)
    return tables


def reconfigured(
    known: Mapping[TableId, TableState],
    schemas: Mapping[TableId, TableSchema],
    config: PipelineConfig,
    cascade_reason: CascadeReason,
) -> list[tuple[TableState, tuple[str, str] | None]]:
    """Known tables that change because the option `cascades` has changed, and why they are parked, if they
    are."""
    found: list[tuple[TableState, tuple[str, str] | None]] = []
    for table, state in known.items():
        keys, now = state.schema.foreign_keys, schemas.get(table)
        if config.cascades == "apply":
            if state.planned and now is not None and set(now.foreign_keys) - set(keys):
                found.append((state.read_again(KEYS_WORKED_OUT), None))
        elif keys and not state.gone:
            parks = config.cascades == "park"
            bare = replace(state, schema=replace(state.schema, foreign_keys=()))
            found.append((bare, cascade_reason(table) if parks else None))
    return found


def parked_when_found(
    tables: Mapping[TableId, TableState],
    new: Collection[TableId],
    unfollowable: Mapping[TableId, Reason],
    config: PipelineConfig,
) -> Reasons:
    """The `new` tables that cannot be followed, and why. A table without a key is parked already."""
    parked: Reasons = {name: unfollowable[name] for name in new if name in unfollowable}
    for name in new:
        error = _unfit_columns(tables[name].schema, config)
        if error is not None and name not in parked:
            parked[name] = error.message, error.hint
    for found in (_collisions, _other_keys):
        for name, taken in found(tables, new, parked.keys(), config):
            parked[name] = taken.message, taken.hint
    return parked


def _collisions(
    tables: Mapping[TableId, TableState],
    new: Iterable[TableId],
    parked: Collection[TableId],
    config: PipelineConfig,
) -> list[tuple[TableId, TableError]]:
    """Tables whose target belongs to another table. If several new tables want a target, the first by name
    gets it."""
    shards, taken = Shards(config.merge_shards), dict[tuple[str, ...], TableId | ShardRule]()
    transforms = Transforms(config.transforms)
    waiting, found = set(new), list[tuple[TableId, TableError]]()
    for name in _with_targets(tables, waiting, parked):
        rule = shards.rule(name)
        target = transforms.target(name) if rule is None else rule.target
        identity = config.sink.identity(target)
        if identity is None and transforms and config.sink_kind.takes_messages:
            identity = (str(target),)  # tables may share a topic, but no name in messages
        if identity is None:
            continue
        owner = taken.setdefault(identity, rule or name)  # the shards of a rule share their target
        if owner != (rule or name) and name in waiting:
            place = ".".join(config.sink.place(target) or identity)
            whose = f"the shards `into: {owner.into}`" if isinstance(owner, ShardRule) else str(owner)
            found.append((name, shared_target(name, place, whose)))
    return found


def _unfit_columns(schema: TableSchema, config: PipelineConfig) -> TableError | None:
    """Why the table's target cannot have its columns. Messages and printed changes have columns of any
    name."""
    if not config.sink_kind.durable or config.sink_kind.takes_messages:
        return None
    names, table = [column.name for column in schema.columns], schema.table
    of_history = History(config.history).adds(table)

    def reserved(column: str) -> str | None:
        return which_penstock_adds(column, of_history) or config.sink.reserved(column)

    at_target = Transforms(config.transforms).columns(table, names)
    return unfit_columns(table, at_target or (), reserved, before=names)


def _other_keys(
    tables: Mapping[TableId, TableState],
    new: Iterable[TableId],
    parked: Collection[TableId],
    config: PipelineConfig,
) -> list[tuple[TableId, TableError]]:
    """Shards whose key differs from that of the first shard with the same target."""
    shards, first = Shards(config.merge_shards), dict[str, TableId]()
    waiting, found = set(new), list[tuple[TableId, TableError]]()
    for name in _with_targets(tables, waiting, parked) if shards else ():
        if (into := shards.into(name)) is None:
            continue
        other, key = first.setdefault(into, name), tables[name].schema.key
        if name in waiting and not same_key(other_table_key := tables[other].schema.key, key):
            found.append((name, other_key(name, key, other, other_table_key)))
    return found


def _with_targets(
    tables: Mapping[TableId, TableState], new: Collection[TableId], parked: Collection[TableId]
) -> list[TableId]:
    """Tables that have a target, or will create one, in the order in which they get it."""
    names = sorted(tables, key=lambda table: (table in new, table))
    return [
        name
        for name in names
        if name not in parked
        and not tables[name].gone
        and (tables[name].parked is None or tables[name].last_epoch > 0)
    ]


def _parked(state: TableState, reason: str, hint: str) -> TableState:
    return state if state.parked is not None else state.park(state.start, reason, hint)
