"""RENAME TABLE among captured tables, where the sink can move a target: it goes with its table.

The alternative, which needs nothing of the sink, is to read the table again under its new name. So whatever
does not fit here is no loss: a target that is not complete yet, a table that the same statement also changes.

Moves have an epoch that ends with the statement and holds nothing else of these tables: what was written
under the old names is applied, and recorded, before. So it is known then which tables are live, and a plan
that is repeated finds each target either where it was, or on its way, or there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from penstock.model.offset import Offset
from penstock.model.plan import Kept, Move
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
    """Targets that go with their tables. A name that is neither left nor taken by another table keeps its
    target: so it is with the table that an online schema change takes the place of."""
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
    """What was judged without regard to moves, with it. The statement ends at `end`."""
    found = dict(judged)
    for move in moved:
        verdict = found[move.source]
        state = verdict.state or tables[move.source]
        bare = replace(state, last_epoch=0, target_reset="none", written=False, replaces=Offset(0), kept=None)
        decision = f"its target is that of {move.target} now"
        found[move.source] = replace(verdict, steps=(), state=bare, decision=decision)
    for move in moved:
        was, known = tables[move.source], tables.get(move.target)
        version = max(was.schema.version, known.schema.version if known is not None else 0) + 1
        schema = replace(was.schema, table=move.target, version=version)
        kept = None
        if was.kept is not None:
            kept = Kept(replace(was.kept.schema, table=move.target), was.kept.sources)
        state = replace(was, schema=schema, kept=kept, start=end)
        what = f"is what was {move.source}"
        found[move.target] = Verdict((), state, version, what, "its target has come with it")
    return found


def _is_complete(state: TableState) -> bool:
    """The target holds the table as it is, and nothing else is to be done to it."""
    return state.streaming and state.complete and state.last_epoch > 0
