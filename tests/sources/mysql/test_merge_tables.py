"""Tables whose rows change under the name of a MERGE table."""

from __future__ import annotations

import pytest
from tests.sources.mysql.test_statements import MADE, Pipeline

from penstock.model.plan import Park
from penstock.model.schema import TableId
from penstock.model.schema_change import TableEffect
from penstock.sources.mysql import catalog
from penstock.sources.mysql.merge_tables import read_merge_tables
from penstock.testing.servers import Database

T, M = TableId("shop", "t"), TableId("shop", "m")


def parked(effects: list[TableEffect]) -> dict[TableId, str]:
    return {one.table: step.reason for one in effects for step in one.steps if isinstance(step, Park)}


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE other.m (id INT PRIMARY KEY) ENGINE=MERGE UNION=(t, other.x) INSERT_METHOD=LAST",
        "CREATE TABLE other.m (id INT PRIMARY KEY) UNION=(other.x, shop.`t`) ENGINE=MRG_MyISAM",
        "ALTER TABLE other.m UNION=(`shop`.`t`)",
        "ALTER TABLE other.m UNION = (other.x, t), COMMENT 'x'",
    ],
)
def test_a_table_that_comes_under_a_merge_table_is_parked(sql: str) -> None:
    pipeline = Pipeline()
    pipeline.run(MADE)
    found = parked(pipeline.run(sql))
    assert set(found) == {T}
    assert "MERGE table other.m" in found[T]


def test_a_merge_table_is_parked_when_it_is_made() -> None:
    pipeline = Pipeline()
    pipeline.run(MADE)
    found = parked(pipeline.run("CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MERGE UNION=(t)"))
    assert set(found) == {M, T}
    assert "is a MERGE table" in found[M]


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE other.m (id INT PRIMARY KEY) ENGINE=MERGE UNION=()",
        "ALTER TABLE other.m UNION=(other.t)",
        "CREATE TABLE other.m (id INT PRIMARY KEY) ENGINE=MERGE",
    ],
)
def test_a_union_of_other_tables_concerns_no_captured_one(sql: str) -> None:
    pipeline = Pipeline()
    pipeline.run(MADE)
    assert pipeline.run(sql) == []


def test_the_catalog_tells_which_tables_are_under_a_merge_table(mysql: Database) -> None:
    name = mysql.name
    for sql in (
        "CREATE TABLE a (id INT PRIMARY KEY) ENGINE=MyISAM",
        "CREATE TABLE `b``(` (id INT PRIMARY KEY) ENGINE=MyISAM",
        "CREATE TABLE c (id INT PRIMARY KEY) ENGINE=MyISAM",
        "CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MERGE UNION=(a, `b``(`) INSERT_METHOD=LAST",
        "CREATE TABLE n LIKE m",
    ):
        mysql.execute(sql)
    tables = {TableId(name, table) for table in ("a", "b`(", "c", "m", "n")}
    with mysql.connect() as connection:
        traits = catalog.describe_server(connection)
        found = read_merge_tables(connection, tables, traits.statements)
    m, n = TableId(name, "m"), TableId(name, "n")
    assert found == {TableId(name, "a"): m, TableId(name, "b`("): m, m: m, n: n}
    # What the server itself does with them.
    mysql.execute("INSERT INTO m VALUES (1)")
    assert mysql.query("SELECT id FROM `b``(`") == [(1,)]
    mysql.execute("TRUNCATE m")
    assert mysql.query("SELECT id FROM `b``(`") == []
