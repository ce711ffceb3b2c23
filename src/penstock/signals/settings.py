"""Settings that signals have changed: paused snapshots, limits of snapshots, tables added and removed.

They are stored in the state, so they are valid until another signal changes them, also after a restart.
"""

from __future__ import annotations

import json
from contextlib import suppress

from penstock.config import PipelineConfig, TablesConfig
from penstock.errors import ConfigError
from penstock.model.partial_snapshot import PartialSnapshot
from penstock.model.pattern import exactly
from penstock.model.schema import TableId
from penstock.model.shards import Shards
from penstock.signals import commands
from penstock.signals.commands import matching
from penstock.sources.table_filter import TableFilter
from penstock.state import StateStore

PAUSED = "paused"
"""Key of the state store: the tables whose snapshots are paused, as JSON."""
TABLES = "tables by signal"
"""Key of the state store: patterns of added tables and names of removed ones, as JSON."""
LIMITS = "limits by signal"
"""Key of the state store: limits of snapshots, as JSON."""


def paused(state: StateStore) -> set[str]:
    """Names of the tables whose snapshots are paused; `*`: all."""
    return set(json.loads(state.meta(PAUSED) or "[]"))


def set_paused(state: StateStore, names: set[str]) -> None:
    """Pauses the snapshots of exactly these tables; `*`: all."""
    state.set_meta(PAUSED, json.dumps(sorted(names)))


def is_paused(state: StateStore, table: TableId) -> bool:
    """Whether the table's snapshots are paused."""
    return not paused(state).isdisjoint(("*", str(table)))


def partials_to_read(state: StateStore) -> list[PartialSnapshot]:
    """The partial snapshots that have not ended and are not paused."""
    return [one for one in state.partials() if not is_paused(state, one.table)]


def to_resnapshot(config: PipelineConfig, state: StateStore) -> dict[str, set[TableId]]:
    """The tables that accepted signals will have read again. `asked`: those for which they request a full
    snapshot. `renewed`: those of them whose targets will be recreated."""
    found: set[TableId] = set()
    renewed: set[TableId] = set()
    for signal in state.signals("accepted"):
        if signal.type == "execute-snapshot" and not {"keys", "from", "to"} & signal.data.keys():
            with suppress(ConfigError):
                command: commands.ExecuteSnapshot = commands.parse(signal.type, signal.data)
                parts = [one.collection for one in command.conditions]
                tables = state.tables()
                wanted = {table for some in matching(command.collections, tables).values() for table in some}
                wanted -= {table for some in matching(parts, tables).values() for table in some}
                found |= wanted
                # `Signals` refuses to recreate a change log, so its target must stay.
                if command.target == "recreate" and config.sink_kind.keeps_tables:
                    renewed |= wanted
    renewed |= {one.table for one in state.tables().values() if one.target_reset == "recreate"}
    shards = Shards(config.merge_shards)
    renewed = {table for table in renewed if shards.into(table) is None}
    return {"asked": found, "renewed": renewed}


def limits_by_signal(state: StateStore) -> dict[str, int]:
    """Limits of snapshots that signals have set, by the names of their options."""
    limits: dict[str, int] = json.loads(state.meta(LIMITS) or "{}")
    return limits


def set_limits_by_signal(state: StateStore, limits: dict[str, int]) -> None:
    """Stores the limits."""
    state.set_meta(LIMITS, json.dumps(limits))


def tables_by_signal(state: StateStore) -> dict[str, list[str]]:
    """Patterns of the tables that signals have added (`include`), and names of those removed (`removed`)."""
    found: dict[str, list[str]] = json.loads(state.meta(TABLES) or '{"include": [], "removed": []}')
    return found


def set_tables_by_signal(state: StateStore, tables: dict[str, list[str]]) -> None:
    """Stores the patterns and names."""
    state.set_meta(TABLES, json.dumps(tables))


def with_signals(config: PipelineConfig, state: StateStore) -> PipelineConfig:
    """The configuration with the tables that signals have added, and without those they have removed."""
    by_signal, tables = tables_by_signal(state), config.tables
    include = [*tables.include, *(name for name in by_signal["include"] if name not in tables.include)]
    removed = [exactly(TableId.parse(name)) for name in by_signal["removed"]]
    changed = TablesConfig(include=include, exclude=[*tables.exclude, *removed])
    return config.model_copy(update={"tables": changed})


def apply_patterns(captured: TableFilter, tables: TablesConfig, state: StateStore) -> None:
    """Sets the patterns of the pipeline file, with the changes that signals have made to them."""
    by_signal = tables_by_signal(state)
    include = [*tables.include, *(name for name in by_signal["include"] if name not in tables.include)]
    captured.set(
        TablesConfig(include=include, exclude=tables.exclude),
        [TableId.parse(name) for name in by_signal["removed"]],
    )
