"""The server is the oracle: after each statement its catalog says of every table what ours says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymysql
import pytest
from tests.properties.statements import Definitions
from tests.sources.mysql.ddl.shown import Shown, differences

from penstock.commands.schema import table_json
from penstock.config import TablesConfig
from penstock.model.schema import TableId, TableSchema
from penstock.sources.mysql import catalog
from penstock.sources.mysql.ddl.catalog import Catalog
from penstock.sources.mysql.ddl.definition import DefaultLiteral
from penstock.sources.mysql.ddl.server import Server, sql_mode
from penstock.sources.mysql.identifiers import quoted
from penstock.sources.table_filter import TableFilter
from penstock.testing.servers import Database, DatabaseServer

STATEMENTS = Path(__file__).with_name("statements.sql")
TABLES = Path(__file__).with_name("shown.sql")


class Pair:
    """The same statements for the server and for our catalog."""

    def __init__(self, database: Database) -> None:
        self.name = database.name
        self.connection = database.connect(ssl_disabled=True, database=database.name)
        self.query("SET NAMES utf8mb4")
        [(mode,)] = self.query("SELECT @@sql_mode")
        traits = catalog.describe_server(self.connection)
        self.ours = Catalog(replace(traits.statements, sql_mode=sql_mode(mode)))
        self.ours.database = self.name
        charset = catalog.read_database(self.connection, self.name)
        assert charset is not None
        self.ours.databases[self.name] = charset
        self.tables = TableFilter(TablesConfig(include=[f"{self.name}.*"]))
        self.tables.sequences = True
        self.compared = 0

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def run(self, sql: str) -> bool:
        """Whether the server took the statement; if so, both agree on every table afterwards."""
        try:
            self.query(sql)
        except pymysql.MySQLError:
            return False
        self.ours.execute(sql)
        self.compared += 1
        shown = catalog.read_tables(self.connection, self.tables)
        ours = {table: definition.to_schema() for table, definition in self.ours.tables.items()}
        assert comparable(ours) == comparable(shown), sql
        return True


def comparable(schemas: dict[TableId, TableSchema]) -> dict[TableId, TableSchema]:
    """Without the text of expressions, which every server prints in its own way (of a TEXT 8.0.15: not at
    all), and without the order of unique keys (`key` tells which one counts)."""
    return {
        table: replace(
            schema,
            unique=tuple(sorted(schema.unique or (), key=lambda key: key.name)),
            columns=tuple(
                replace(column, default=None, default_is_expression=False)
                if column.default_is_expression or column.type.endswith(("text", "blob"))
                else column
                for column in schema.columns
            ),
        )
        for table, schema in schemas.items()
    }


@pytest.fixture
def pair(flavor_database: Database) -> Iterator[Pair]:
    pair = Pair(flavor_database)
    yield pair
    pair.connection.close()


def test_the_server_says_of_every_table_what_our_catalog_says(pair: Pair) -> None:
    lines = [line for line in STATEMENTS.read_text().splitlines() if line]
    refused = [line for line in lines if not pair.run(line)]
    assert len(refused) < len(lines) / 2, refused


def test_what_schema_prints_is_what_the_server_shows(pair: Pair, flavor: DatabaseServer) -> None:
    """Everything that `penstock schema --json` says of a table, not only what a pipeline needs."""
    taken = [line for line in TABLES.read_text().splitlines() if pair.run(line)]
    assert len(taken) > 15
    shown = Shown(flavor)
    printed = {
        table.table: table_json(definition, pair.ours.server)
        for table, definition in pair.ours.tables.items()
    }
    found = [
        line
        for name, table in shown.tables(pair.name).items()
        for line in differences(name, printed[name], table)
    ]
    shown.close()
    assert found == []


OF_ORACLE = (
    "DATE", "DATE DEFAULT '2020-01-01'", "BLOB", "BLOB(10)", "NUMBER", "NUMBER(5)", "NUMBER(5,2)",
    "NUMBER UNSIGNED", "VARCHAR2(10)", "RAW(5)", "CLOB", "TIMESTAMP(3) NULL", "NUMERIC",
    "mariadb_schema.date", "mariadb_schema.varchar(5)", "oracle_schema.date", "maxdb_schema.timestamp",
    "maxdb_schema.timestamp(3)",
)  # fmt: skip


@pytest.mark.parametrize("mode", ["ORACLE", "MAXDB", ""])
def test_types_mean_what_the_sql_mode_says(pair: Pair, mode: str) -> None:
    try:
        pair.query(f"SET sql_mode = '{mode}'")
    except pymysql.MySQLError:
        pytest.skip(f"there is no sql_mode={mode}")
    [(named,)] = pair.query("SELECT @@sql_mode")
    pair.ours.server = replace(pair.ours.server, sql_mode=sql_mode(named))
    for number, kind in enumerate(OF_ORACLE):
        if pair.run(f"CREATE TABLE t{number} (c {kind})"):
            pair.run(f"ALTER TABLE t{number} ADD COLUMN d {kind}")
    assert pair.compared >= 6


def test_versions_are_read_from_short_forms() -> None:
    assert Server.parse("8.0").version == (8, 0, 99)
    assert Server.parse("5.7.22").version == (5, 7, 22)
    assert Server.parse("mariadb-10.11") == Server((10, 11, 99), mariadb=True)
    with pytest.raises(ValueError, match="write it like"):
        Server.parse("latest")


@pytest.mark.parametrize(
    ("seed", "count"), [(1, 150), pytest.param(2, 2000, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_generated_definitions_are_what_the_server_makes_of_them(pair: Pair, seed: int, count: int) -> None:
    chance = random.Random(seed)
    write = Definitions(seed)
    mine = [mode or "" for mode in ("STRICT_TRANS_TABLES", "")]
    taken = 0
    for number in range(count):
        if number % 50 == 0:
            mode = chance.choice(mine)
            pair.query(f"SET SESSION sql_mode = '{mode}'")
            pair.ours.server = replace(pair.ours.server, sql_mode=sql_mode(mode))
        tables = sorted(pair.ours.tables)
        if len(tables) < 3 or chance.random() < 0.15:
            sql = write.create(f"t{number}")
        elif len(tables) > 6:
            sql = f"DROP TABLE {quoted(chance.choice(tables))}"
        else:
            table = pair.ours.tables[chance.choice(tables)]
            keys = [key.name for key in table.keys if key.kind != "primary"]
            sql = write.alter(table.table.table, [column.name for column in table.columns], keys)
        taken += pair.run(sql)
    assert taken > count / 5


@pytest.mark.parametrize("kind", ["BLOB", "TEXT", "TINYTEXT CHARACTER SET latin1", "LONGBLOB", "JSON"])
def test_an_empty_default_that_the_server_leaves_out_is_left_out(pair: Pair, kind: str) -> None:
    """Without a strict sql_mode MySQL takes `BLOB DEFAULT ''` with a warning, and forgets the default: a row
    that says nothing of the column has NULL."""
    if kind == "JSON" and pair.ours.server.mariadb:
        pytest.skip("MariaDB checks each value of such a column, and an empty text is no JSON")
    pair.query("SET SESSION sql_mode = ''")
    pair.ours.server = replace(pair.ours.server, sql_mode=frozenset())
    if not pair.run(f"CREATE TABLE t (id INT PRIMARY KEY, a {kind} DEFAULT '', b {kind} DEFAULT NULL)"):
        assert kind == "JSON" and pair.ours.server.version >= (8, 4, 0)
        pytest.skip("it takes no such default any more")
    pair.query("INSERT INTO t (id) VALUES (1)")
    assert pair.run(f"ALTER TABLE t ADD c {kind} DEFAULT '', ADD d {kind} DEFAULT x''")
    assert pair.run(f"ALTER TABLE t ADD e {kind} NOT NULL DEFAULT ''")
    pair.query("INSERT INTO t (id) VALUES (2)")
    [definition] = pair.ours.tables.values()
    [*old] = pair.query("SELECT a, b, c, d FROM t")
    for name, values in zip("abcd", zip(*old, strict=True), strict=True):
        column = next(one for one in definition.columns if one.name == name)
        has_default = column.default is not None and column.default != DefaultLiteral("null")
        assert [value is not None for value in values] == [has_default] * 2, name
        assert (column.column.default is not None) == has_default, name
