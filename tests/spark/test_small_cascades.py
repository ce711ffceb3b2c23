"""How much of what foreign keys did is worked out in the driver."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.cascades.parent_changes import Watched, change_schema
from penstock.model.plan import TablePlan
from penstock.model.schema import DEFAULT_TYPES, CascadingKey, Column, TableId, TableSchema
from penstock.sources.mysql.collations import MySqlComparisons
from penstock.spark.row_versions import ParentChanges
from penstock.spark.scratch import save
from penstock.spark.small_cascades import SmallCascades, TooMany
from penstock.store.folder import StoreFolder
from penstock.store.opening import open_store

PARENT, CHILD = TableId("shop", "parent"), TableId("shop", "child")
COLUMNS = (Column("id", "int", nullable=False), Column("parent_id", "int"))
KEY = CascadingKey("fk", ("parent_id",), PARENT, ("id",), on_delete="CASCADE")
OWN_KEY = CascadingKey("own", ("parent_id",), CHILD, ("id",), on_delete="CASCADE")
SCHEMA = TableSchema(CHILD, COLUMNS, ("id",), foreign_keys=(KEY,))
WATCHED = Watched((0,), True, ())
NOTHING: Any = None


@pytest.fixture
def three_deletes(tmp_path: Path) -> dict[TableId, list[ParentChanges]]:
    """Three rows of the parent are gone."""
    parent = TableSchema(PARENT, COLUMNS[:1], ("id",))
    rows = {"o0": [1, 2, 3], "n0": [None] * 3, "gone": [True] * 3, "p": [10, 20, 30]}
    table = pa.table(rows, change_schema(parent, WATCHED, DEFAULT_TYPES))
    files = save(table, StoreFolder(open_store(tmp_path.as_uri()), "changes"))
    return {PARENT: [ParentChanges({"id": 0}, files)]}


@pytest.mark.parametrize("keys", [(KEY,), (KEY, OWN_KEY)], ids=["another table", "also itself"])
def test_as_many_changes_are_followed_as_the_limit_says(
    keys: tuple[CascadingKey, ...], three_deletes: dict[TableId, list[ParentChanges]]
) -> None:
    plan = TablePlan(replace(SCHEMA, foreign_keys=keys), ())
    family = SmallCascades(NOTHING, DEFAULT_TYPES, MySqlComparisons(), plan, WATCHED, three_deletes, limit=3)
    assert family.is_touched and family.rows_max == 3
    with pytest.raises(TooMany):
        SmallCascades(NOTHING, DEFAULT_TYPES, MySqlComparisons(), plan, WATCHED, three_deletes, limit=2)


def test_of_rows_whose_key_may_change_a_tenth_is_followed() -> None:
    key = replace(KEY, columns=("id",), on_update="CASCADE")
    plan = TablePlan(replace(SCHEMA, foreign_keys=(key,)), ())
    cascades = SmallCascades(NOTHING, DEFAULT_TYPES, MySqlComparisons(), plan, WATCHED, {}, limit=500)
    assert cascades.rows_max == 50
