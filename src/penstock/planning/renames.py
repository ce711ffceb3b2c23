"""Moves a target together with its table at RENAME TABLE, if both tables are captured and the sink can do
it.

The alternative needs nothing from the sink: the table is read again under its new name. So nothing is lost
if a move is not possible, because the target is not complete yet, or because the same statement also
changes the table.

Moves are part of an epoch that ends with the statement and has no steps for these tables. Everything
written under the old names has been applied and recorded before. So it is known then which tables are live.
A repeated plan finds each target in its old place, on its way, or in its new place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from penstock.model.offset import Offset
from penstock.model.plan import KeptColumns, Move
from penstock.model.schema import TableId
from penstock.model.schema_change import TableEffect
from penstock.model.shards import Shards
from penstock.model.table import TableState
from penstock.planning.policy import Verdict


def moves(
    effects: Iterable[TableEffect],
    tables: dict[TableId, TableState],
    identify: Callable[[TableId], str | None],
    shards: Shards,
) -> tuple[Move, ...]:
    """The targets that move with their tables. A name that no table leaves and no other table takes keeps its
    target, for example that of a table replaced by an online schema change."""
    effects = list(effects)
    left = {effect.table for effect in effects if effect.created is not None or effect.renamed is not None}
    changed = {effect.table for effect in effects if effect.steps or effect.rereads}
    found = []
    for effect in effects:
        state = tables.get(effect.was) if effect.was in left - changed else None
        if effect.was is None or state is None or not _is_complete(state):
            continue
        if shards.rule(effect.table) is not None:
            continue  # it has no target of its own
        if (identity := identify(effect.was)) is not None:
            found.append(Move(effect.was, effect.table, identity))
    return tuple(found)


def verdicts(
    moved: tuple[Move, ...],
    tables: dict[TableId, TableState],
    judged: dict[TableId, Verdict],
    end: Offset,
) -> dict[TableId, Verdict]:
    """The decisions `judged`, which do not consider moves, adapted to the moves. The statement ends at
    `end`."""
    found = dict(judged)
    for move in moved:
        verdict = found[move.source]
        state = verdict.state or tables[move.source]
        bare = replace(
            state, last_epoch=0, target_reset="none", written=False, replaces=Offset(0), kept_columns=None
        )
        decision = f"its target is that of {move.target} now"
        found[move.source] = replace(verdict, steps=(), state=bare, decision=decision)
    for move in moved:
        was, known = tables[move.source], tables.get(move.target)
        version = max(was.schema.version, known.schema.version if known is not None else 0) + 1
        schema = replace(was.schema, table=move.target, version=version)
        kept = None
        if was.kept_columns is not None:
            kept = KeptColumns(replace(was.kept_columns.schema, table=move.target), was.kept_columns.sources)
        state = replace(was, schema=schema, kept_columns=kept, start=end)
        what = f"renamed from {move.source}"
        found[move.target] = Verdict((), state, version, what, "its target has come with it")
    return found


def _is_complete(state: TableState) -> bool:
    """Whether the target has the whole table, and nothing must be done to it first."""
    return state.streaming and state.complete and state.last_epoch > 0
