"""Which tables a pattern captures."""

from __future__ import annotations

import pytest

from penstock.config import TablesConfig
from penstock.errors import ConfigError, LogPurged
from penstock.model.schema import TableId
from penstock.sources.preflight import PURGED, Finding, refuse
from penstock.sources.table_filter import TableFilter

HELPERS = [
    "_t_gho",
    "_t_ghc",
    "_t_del",
    "_t_20240102030405_del",
    "_t_new",
    "__t_new",
    "_t_old",
    "__osc_new_t",
]


@pytest.mark.parametrize("name", HELPERS)
def test_helper_tables_of_online_schema_changes_are_captured_only_by_their_name(name: str) -> None:
    table = TableId("shop", name)
    assert table not in TableFilter(TablesConfig(include=["shop.*", "*.*", "shop._*"]))
    assert table in TableFilter(TablesConfig(include=[f"shop.{name}"]))
    assert table in TableFilter(TablesConfig(include=[f"s*.{name}"]))


@pytest.mark.parametrize("name", ["new", "t_new", "t_old", "_t", "deleted_new", "old_t", "_new"])
def test_other_names_are_captured_by_a_wildcard(name: str) -> None:
    assert TableId("shop", name) in TableFilter(TablesConfig(include=["shop.*"]))


def test_log_that_was_purged_is_told_as_such_also_before_a_start() -> None:
    purged = Finding("error", PURGED, "db:3306", "The source no longer has it.")
    other = Finding("error", "binlog_format", "db:3306", "It is STATEMENT.", "SET GLOBAL x;")
    with pytest.raises(LogPurged, match="no longer has it"):
        refuse([purged, Finding("ok", "grants", "db:3306", "All there.")])
    with pytest.raises(ConfigError, match="Cure: SET GLOBAL x;"):
        refuse([purged, other])
    refuse([Finding("warning", PURGED, "db:3306", "It is behind.")])
