"""What foreign keys did in earlier epochs is kept as long as somebody will ask for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.phases import behind

from penstock.config import EpochConfig
from penstock.model.offset import LogRange, Offset
from penstock.model.plan import ApplyCascades, EpochPlan, TablePlan
from penstock.model.schema import DEFAULT_TYPES, CascadingKey, Column, TableId, TableSchema
from penstock.model.table import TableState
from penstock.spark.cascades import FOLDER, MANIFEST, Cascades, Consequences
from penstock.state import StateStore
from penstock.store.folder import StoreFolder
from penstock.store.opening import open_store

CHILD, PARENT = TableId("shop", "child"), TableId("shop", "parent")
KEY = CascadingKey("fk", ("parent_id",), PARENT, ("id",), on_delete="CASCADE")
COLUMNS = (Column("id", "int", nullable=False), Column("parent_id", "int"))
SCHEMA = TableSchema(CHILD, COLUMNS, ("id",), foreign_keys=(KEY,))
NOTHING: Any = None


def test_what_the_next_plan_of_a_table_that_catches_up_needs_outlives_the_epoch_before(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path.as_uri())
    kept = tmp_path / FOLDER / "000000000003"
    Consequences(StoreFolder(store, f"{FOLDER}/{kept.name}"), Offset(100)).write()
    cascades = Cascades(NOTHING, NOTHING, store, DEFAULT_TYPES, NOTHING, NOTHING, EpochConfig())
    state = StateStore(tmp_path / "state")
    state.advance(Offset(300))
    # The plan is durable, so the table stands at its end already.
    state.put_table(TableState(SCHEMA, Offset(4), behind(200), written=True))
    steps = (ApplyCascades(Offset(0), rows=True, reading=False, alone=True),)
    plan = EpochPlan(9, LogRange(Offset(50), Offset(200)), (TablePlan(SCHEMA, steps),))
    state.plan(plan, alone=True)
    cascades.sweep(state)
    assert (kept / MANIFEST).exists()
    state.applied(plan)
    cascades.sweep(state)
    assert not kept.exists()
