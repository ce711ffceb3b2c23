"""What is asked of the server to have generated columns computed. That it computes them right is tried on a
server: tests/properties/test_values.py and tests/scenarios/test_generated_columns.py."""

from __future__ import annotations

import pytest

from penstock.errors import TableError
from penstock.model.schema import Column, TableId, TableSchema
from penstock.sources.mysql.generated_columns import computed_by
from penstock.sources.mysql.options import MySqlOptions

SOURCE = MySqlOptions(host="127.0.0.1", user="u")


def table(*columns: Column) -> TableSchema:
    return TableSchema(TableId("d`b", "t"), (Column("id", "int", column_type="int(11)"), *columns), ("id",))


def test_only_the_columns_that_expressions_name_are_sent() -> None:
    schema = table(
        Column("a`b", "varchar", charset="latin1", collation="latin1_bin", column_type="varchar(9)"),
        Column("other", "longblob", column_type="longblob"),
        Column("g", "int", generated="stored", column_type="int(11)"),
        Column("h", "int", generated="virtual", column_type="int(11)"),
    )
    found = computed_by(SOURCE, schema, {"g": "length(`A``B`)", "h": "`g` + `id`"})
    assert found.base == ("id", "a`b")
    assert [column.name for column in found.generated.columns] == ["g", "h"]
    assert found.create == (
        "CREATE TEMPORARY TABLE `d``b`.`penstock_computed` (`penstock row` INT NOT NULL PRIMARY KEY,"
        " `id` int(11), `a``b` varchar(9) CHARACTER SET latin1 COLLATE latin1_bin,"
        " `g` int(11) AS (length(`A``B`)) STORED, `h` int(11) AS (`g` + `id`) VIRTUAL) ENGINE = InnoDB"
    )


def test_columns_of_system_versioning_are_not_computed() -> None:
    schema = table(Column("from", "timestamp", generated="stored", column_type="timestamp(6)"))
    assert computed_by(SOURCE, schema, {}).generated.columns == ()


def test_a_stored_column_made_of_a_timestamp_is_refused() -> None:
    moment = Column("at", "timestamp", column_type="timestamp")
    made = Column("day", "date", generated="stored", column_type="date")
    with pytest.raises(TableError, match=r"column day.*TIMESTAMP at.*time zone"):
        computed_by(SOURCE, table(moment, made), {"day": "cast(`at` as date)"})
    virtual = Column("day", "date", generated="virtual", column_type="date")
    computation = computed_by(SOURCE, table(moment, virtual), {"day": "cast(`at` as date)"})
    assert "`at` timestamp NULL" in computation.create
