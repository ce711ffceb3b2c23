"""Decides what a statement at the source means for a table and its target, by the operator's policies.
Pure.

By default nothing is lost, and no operator has to act: the target's columns follow those of the table, a
table whose rows changed without events is read again, and the target of a dropped table stays. The history
has each decision beside its statement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.config import PipelineConfig, SchemaConfig
from penstock.model.offset import Offset
from penstock.model.plan import DropTarget, Evolve, KeptColumns, Park, Step, TruncateTarget
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.schema_change import TableEffect
from penstock.model.shards import Shards
from penstock.model.table import AddKey, Dropped, TableState, keyless, new_table, plain_add_key
from penstock.printable import argument


@dataclass(frozen=True)
class Policies:
    """The operator's policies. `append_only`: the sink stores every change as a row. `reads`: existing rows
    may be read. `shards`: tables that share a target. `add_key`: what an operator does about a table without
    a key."""

    schema: SchemaConfig
    append_only: bool
    reads: bool
    shards: Shards = field(default_factory=Shards)
    add_key: AddKey = plain_add_key

    @classmethod
    def of(cls, config: PipelineConfig, *, append_only: bool, add_key: AddKey) -> Policies:
        reads = config.snapshot.mode != "never"
        return cls(config.evolution, append_only, reads, Shards(config.merge_shards), add_key)


@dataclass(frozen=True)
class Verdict:
    """A decision about one table. `steps` end its plan of the epoch. `state`: the table's state from then
    on (None: unchanged)."""

    steps: tuple[Step, ...]
    state: TableState | None
    version: int
    what: str
    decision: str


def judge(
    state: TableState, effect: TableEffect, end: Offset, policies: Policies, *, begin: Offset | None = None
) -> Verdict:
    """Decides about a statement's effect on a known table. The statement is at `begin` to `end` in
    the log."""
    what = effect.what or _what(effect)
    version = state.schema.version
    if effect.created is not None:
        return _recreated(state, effect, end, policies, what)
    if effect.dropped or effect.renamed is not None:
        drops = policies.schema.dropped_tables == "drop" and not policies.append_only
        if effect.renamed is not None and policies.shards.together(state.table, effect.renamed):
            drops = True  # otherwise the target would have the same rows twice, under two names
        steps: tuple[Step, ...] = (DropTarget(),) if drops and state.last_epoch > 0 else ()
        gone = replace(state, phase=Dropped(end, f"Table {state.table}: {what}."))
        return Verdict(steps, gone, version, what, "target dropped" if drops else "target kept")
    evolve = next((step for step in effect.steps if isinstance(step, Evolve)), None)
    rest = tuple(step for step in effect.steps if not isinstance(step, Evolve))
    if any(isinstance(step, Park) for step in rest):
        return Verdict(rest, None, version, what, "parked")
    if evolve is not None and policies.schema.changes == "fail":
        return _refused(state, begin, end, f"its definition changed ({what})", what)
    rereads = effect.rereads
    if evolve is not None:
        version = evolve.schema.version
        evolve, lacking = fitted(state, evolve, ignores=policies.schema.changes == "ignore")
        rereads = rereads or lacking
        if (
            not policies.append_only
            and (park := _unkeyed(state.table, evolve, end, policies.add_key)) is not None
        ):
            return Verdict((evolve, park), None, version, what, "parked")
        if state.reading and not _same_bounds(state.schema, evolve):
            rereads = rereads or "its key changed while its rows were read"
    steps = (*((evolve,) if evolve is not None else ()), *rest)
    if evolve is not None and rereads is not None and not policies.append_only:
        origins = {c.name: o.before for c, o in zip(evolve.schema.columns, evolve.origins, strict=True)}
        may_reread = policies.reads and policies.schema.rereads == "resnapshot"
        if may_reread and not tells_apart(state.schema, evolve.schema, origins):
            steps = (*steps, TruncateTarget())
    done = (
        "ignored"
        if evolve is not None and evolve.kept_columns is not None
        else "applied"
        if steps
        else "nothing to do"
    )
    if rereads is None:
        return Verdict(steps, None, version, what, done)
    if policies.schema.rereads == "fail":
        return _refused(state, begin, end, rereads, what)
    if policies.schema.rereads == "keep" or not policies.reads:
        return Verdict(steps, None, version, what, f"{done}; not read again, although {rereads}")
    return Verdict(steps, state.read_again(rereads), version, what, f"{done}; read again: {rereads}")


def new_state(effect: TableEffect, end: Offset, policies: Policies) -> TableState:
    """The state of a new table whose name the pipeline did not know."""
    assert effect.created is not None
    reads = effect.fills and policies.reads
    state = new_table(
        effect.created, end, reads=reads, append_only=policies.append_only, add_key=policies.add_key
    )
    park = next((step for step in effect.steps if isinstance(step, Park)), None)
    if park is not None:
        return state.park(park.offset, park.reason, park.hint)
    if not effect.rereads:
        return state
    if policies.reads:
        return state.read_again(effect.rereads)
    return state.park(
        end,
        f"Table {effect.table} cannot be followed from here: {effect.rereads}.",
        f"Run `penstock resnapshot FILE {argument(effect.table)}` to read it with its present definition.",
    )


def _recreated(state: TableState, effect: TableEffect, end: Offset, policies: Policies, what: str) -> Verdict:
    """Decides about a new table that takes a known name. The target has rows of the earlier table."""
    assert effect.created is not None
    schema = replace(effect.created, version=state.schema.version + 1)
    new = new_state(replace(effect, created=schema), end, policies)
    keeps_columns = policies.schema.changes == "ignore" and state.last_epoch > 0
    kept = kept_by_name(state, schema) if keeps_columns else None
    new = replace(new, last_epoch=state.last_epoch, target_reset="truncate", kept_columns=kept)
    decision = "a new table in the emptied target"
    if new.resnapshot_pending:
        decision = f"read again: {effect.rereads}"
    elif (
        effect.fills
        and state.status == "live"
        and state.written
        and policies.reads
        and not policies.append_only
        and tells_apart(state.schema, schema)
    ):
        # The new table brings its own rows. Usually most of them are the same as before.
        new = replace(new, target_reset="evolve", written=True, replaces=end)
        decision = "read from its beginning; replaces the rows of the target"
    return Verdict((), new, schema.version, what, decision)


def tells_apart(
    before: TableSchema, after: TableSchema, origins: Mapping[str, str | None] | None = None
) -> bool:
    """Whether the new key tells all rows apart that the key before does. If not, several rows of a target may
    have one new key, and a merge would make each of them the row that has this key now. `origins`: names
    before of the columns of `after` (None: the same names)."""
    columns = {
        name if origins is None else origins.get(name): _values(after.column(name)) for name in after.key
    }
    return bool(before.key) and all(columns.get(name) == _values(before.column(name)) for name in before.key)


def _values(column: Column) -> tuple[object, ...]:
    """The parts of a column's definition that decide which values the target has for it."""
    return (column.type, column.unsigned, column.precision, column.scale, column.fsp, column.charset)


def kept_by_name(state: TableState, schema: TableSchema) -> KeptColumns:
    """The columns that the target keeps. They are filled from columns with the same names."""
    target = state.kept_columns.schema if state.kept_columns is not None else state.schema
    names = {column.name for column in schema.columns}
    return KeptColumns(target, tuple(c.name if c.name in names else None for c in target.columns))


def fitted(state: TableState, evolve: Evolve, *, ignores: bool) -> tuple[Evolve, str | None]:
    """The step for the target's columns, and the reason to read the table again if its rows would lack
    values."""
    present = state.kept_columns or KeptColumns(
        state.schema, tuple(column.name for column in state.schema.columns)
    )
    if ignores:
        after = {o.before: c.name for o, c in zip(evolve.origins, evolve.schema.columns, strict=True)}
        sources = tuple(after.get(source) if source is not None else None for source in present.sources)
        return replace(evolve, kept_columns=KeptColumns(present.schema, sources)), None
    if state.kept_columns is None:
        return evolve, None
    target = {
        source: column.name
        for column, source in zip(present.schema.columns, present.sources, strict=True)
        if source is not None
    }
    origins = tuple(
        replace(origin, before=target.get(origin.before)) if origin.before is not None else origin
        for origin in evolve.origins
    )
    lacks_columns = any(o.before is not None and o.before not in target for o in evolve.origins)
    return replace(
        evolve, origins=origins
    ), "its target lacks columns that were left out before" if lacks_columns else None


def _unkeyed(table: TableId, evolve: Evolve, end: Offset, add_key: AddKey) -> Park | None:
    if not evolve.schema.key:
        return Park(end, *keyless(table, add_key))
    if evolve.kept_columns is None or set(evolve.schema.key) <= set(evolve.kept_columns.sources):
        return None
    return Park(
        end,
        f"The new key of {table} uses columns that its target does not have (`schema.changes: ignore`).",
        f"Set `schema.changes: evolve`, then run `penstock resnapshot FILE {argument(table)}`.",
    )


def _same_bounds(known: TableSchema, evolve: Evolve) -> bool:
    """Whether the bounds of chunks still divide the rows in the same way: the key has the same columns with
    the same comparison. Their names do not matter."""
    columns = {c.name: (c, o.before) for c, o in zip(evolve.schema.columns, evolve.origins, strict=True)}
    now = [columns[name] for name in evolve.schema.key]
    return [(known.column(name), name) for name in known.key] == [
        (replace(column, name=before or ""), before) for column, before in now
    ]


def _refused(state: TableState, begin: Offset | None, end: Offset, why: str, what: str) -> Verdict:
    park = Park(
        end,
        f"Table {state.table} is parked, as the section `schema` of the pipeline file asks for: {why}.",
        "Allow it in `schema`, restart the pipeline, and run "
        f"`penstock unpark FILE {argument(state.table)}`: the table continues from here.",
        begin,
    )
    return Verdict((park,), None, state.schema.version, what, "parked")


def _what(effect: TableEffect) -> str:
    if effect.created is not None:
        return "created"
    if effect.renamed is not None:
        return f"renamed to {effect.renamed}"
    if effect.dropped:
        return "dropped"
    for step in effect.steps:
        if isinstance(step, TruncateTarget):
            return "truncated"
        if isinstance(step, Park):
            return step.reason
        if isinstance(step, Evolve):
            return "columns changed"
    return effect.rereads or effect.voids or "definition looked at"
