"""The server is the oracle: what it puts into existing rows is what we say it puts there."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pymysql
import pytest

from penstock.errors import TableError
from penstock.model.schema import Column, TableId, TableSchema, TypeOptions
from penstock.sources.mysql.added_defaults import existing_value
from penstock.sources.mysql.catalog import read_table
from penstock.sources.mysql.ddl.catalog import Catalog
from penstock.sources.mysql.ddl.change import Altered
from penstock.sources.mysql.ddl.definition import Default
from penstock.sources.mysql.ddl.server import Server
from penstock.testing.servers import Database

TABLE = TableId("shop", "d")
NUMBERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "year"}

PLAIN = [
    "INT", "INT NULL", "INT NOT NULL", "INT DEFAULT NULL", "INT DEFAULT 5", "INT NOT NULL DEFAULT -5",
    "INT DEFAULT '7'", "INT DEFAULT 0x1F", "INT DEFAULT b'101'", "TINYINT DEFAULT TRUE",
    "BOOL NOT NULL DEFAULT FALSE", "BIGINT UNSIGNED DEFAULT 18446744073709551615", "INT DEFAULT 2.5",
    "INT DEFAULT -2.5", "INT DEFAULT 1e3", "BIGINT DEFAULT -9223372036854775808", "DECIMAL(10,3)",
    "DECIMAL(10,3) NOT NULL", "DECIMAL(10,3) DEFAULT 1.5", "DECIMAL(10,3) DEFAULT '1.23456'",
    "DECIMAL(10,1) DEFAULT -1.25", "DECIMAL(65,30) DEFAULT 12345678901234567890.123456789",
    "DECIMAL(5,0) DEFAULT .5", "FLOAT DEFAULT 1.5", "DOUBLE DEFAULT 1e300", "DOUBLE NOT NULL",
    "DOUBLE DEFAULT '-0.1'", "YEAR NOT NULL", "YEAR DEFAULT 1999", "YEAR DEFAULT '99'", "YEAR DEFAULT 5",
    "YEAR DEFAULT 0", "YEAR DEFAULT '0'", "YEAR DEFAULT '2024'", "BIT(1) DEFAULT b'1'",
    "BIT(9) DEFAULT b'101'", "BIT(64) DEFAULT 0xffffffffffffffff", "BIT(5) NOT NULL",
    "CHAR(5) DEFAULT 'ab  '", "CHAR(5) NOT NULL", "VARCHAR(9) DEFAULT 'ab  '", "VARCHAR(9) DEFAULT ''",
    "VARCHAR(3) DEFAULT 'xyz  '", "VARCHAR(3) DEFAULT 'x    '", "VARCHAR(9) DEFAULT _binary'xy'",
    "VARCHAR(9) DEFAULT 'it''s'", "VARCHAR(9) DEFAULT 'a\\\\b\\n'", "VARCHAR(9) DEFAULT \"d\"\"q'\"",
    "VARCHAR(9) DEFAULT 'a' 'b'", "VARCHAR(9) DEFAULT _utf8mb4'xy'", "VARCHAR(9) DEFAULT N'xy'",
    "VARCHAR(9) CHARACTER SET utf8mb4 DEFAULT '日本'", "VARCHAR(9) DEFAULT 5", "VARCHAR(9) DEFAULT 1.50",
    "VARCHAR(9) DEFAULT -3 COMMENT 'DEFAULT 4'", "TEXT", "TEXT NOT NULL", "BLOB NOT NULL",
    "BINARY(4) DEFAULT 'ab'", "BINARY(4) NOT NULL", "VARBINARY(4) DEFAULT 0xff00",
    "VARBINARY(4) DEFAULT x'0102'", "VARBINARY(4) NOT NULL", "ENUM('a','b') NOT NULL",
    "ENUM('a','b') DEFAULT 'b'", "ENUM('Ab','c') DEFAULT 'aB'", "ENUM('it''s','x') DEFAULT 'it''s'",
    "SET('a','b','c') NOT NULL", "SET('a','b','c') DEFAULT 'c,a'", "SET('a','b') DEFAULT ''", "DATE",
    "DATE DEFAULT '2020-02-03'", "DATETIME DEFAULT '2020-02-03 04:05:06'",
    "DATETIME(3) DEFAULT '2020-02-03 04:05:06.12'", "DATETIME DEFAULT '2020-02-03'", "TIMESTAMP NULL",
    "TIME DEFAULT '-01:02:03'", "TIME(2) DEFAULT '1:02:03.5'", "TIME NOT NULL", "TIME(1) NOT NULL",
    "TIME DEFAULT '838:59:59'", "JSON", "JSON NOT NULL", "POINT", "INT COMMENT 'x' DEFAULT 9 NOT NULL",
    "INT DEFAULT 3 UNIQUE", "VARCHAR(9) DEFAULT '50\\%'", "VARCHAR(9) DEFAULT 'a\\_b'",
    "ENUM('50\\%','x') NOT NULL",
]  # fmt: skip

NEWER = [
    "INT DEFAULT (7)", "JSON DEFAULT ('[]')", "JSON DEFAULT ('{}')", "JSON DEFAULT ('5')",
    "TEXT DEFAULT ('x')", "INT DEFAULT 3 CHECK (1 = 1)", "INT DEFAULT 1 INVISIBLE",
]  # fmt: skip

EXPRESSIONS = [
    "DATETIME DEFAULT CURRENT_TIMESTAMP", "TIMESTAMP DEFAULT NOW()", "DATETIME DEFAULT (NOW())",
    "INT DEFAULT (1 + 1)", "VARCHAR(40) DEFAULT (UUID())", "JSON DEFAULT (JSON_ARRAY())", "INT AS (id + 1)",
    "INT GENERATED ALWAYS AS (id + 1) STORED", "INT AUTO_INCREMENT UNIQUE", "SERIAL",
]  # fmt: skip


def add(mysql: Database, *definitions: str, rows: int = 1) -> list[tuple[Column, Default | None]]:
    """The columns that one ALTER TABLE adds as the catalog tells them, and the statement's defaults."""
    made = "CREATE TABLE d (id INT) CHARACTER SET latin1"
    mysql.execute("DROP TABLE IF EXISTS d", made)
    if rows:
        mysql.execute("INSERT INTO d VALUES (1)")
    actions = [f"ADD COLUMN c{number} {definition}" for number, definition in enumerate(definitions)]
    statement = "ALTER TABLE d " + ", ".join(actions)
    try:
        mysql.execute(statement)
    except pymysql.MySQLError as error:
        pytest.skip(f"this server refuses it: {error}")
    altered = applied(mysql.name, made, statement)
    added = [
        one for one, origin in zip(altered.after.columns, altered.origins, strict=True) if not origin.before
    ]
    assert len(added) == len(definitions)
    schema = read(mysql)
    return [(schema.column(column.name), column.default) for column in added]


def applied(database: str, *statements: str) -> Altered:
    """What the last one does, an ALTER TABLE."""
    catalog = Catalog(Server(version=(8, 0, 15)))
    catalog.database = database
    change = [catalog.execute(statement)[0] for statement in statements][-1]
    assert isinstance(change, Altered)
    return change


def read(mysql: Database) -> TableSchema:
    connection = mysql.connect()
    try:
        schema = read_table(connection, TableId(mysql.name, "d"))
    finally:
        connection.close()
    assert schema is not None
    return schema


def shown_by_server(mysql: Database, column: Column) -> Any:
    name = column.name
    if column.type == "bit":
        [(shown,)] = mysql.query(f"SELECT {name} + 0 FROM d")
    elif column.type in ("binary", "varbinary", "blob", "geometry"):
        [(shown,)] = mysql.query(f"SELECT {name} FROM d")
    else:
        [(shown,)] = mysql.query(f"SELECT CAST({name} AS CHAR) FROM d")
    return _comparable(column, shown)


@pytest.mark.parametrize("definitions", [PLAIN, *([one] for one in NEWER)])
def test_existing_rows_get_what_the_server_gives_them(mysql: Database, definitions: list[str]) -> None:
    columns = add(mysql, *definitions)
    ours = {
        definition: _comparable(column, existing_value(TABLE, column, added))
        for definition, (column, added) in zip(definitions, columns, strict=True)
    }
    assert ours == {
        definition: shown_by_server(mysql, column)
        for definition, (column, _) in zip(definitions, columns, strict=True)
    }


def _comparable(column: Any, value: Any) -> Any:
    if value is None:
        return None
    if column.type in NUMBERS:
        return Decimal(str(value))
    if column.type in ("date", "datetime"):
        return datetime.datetime.fromisoformat(str(value))
    return value


@pytest.mark.parametrize("definition", EXPRESSIONS)
def test_what_only_the_server_knows_needs_a_snapshot(definition: str) -> None:
    altered = applied("shop", "CREATE TABLE d (id INT)", f"ALTER TABLE d ADD COLUMN c {definition}")
    assert altered.silent
    added = altered.after.columns[-1]
    if not added.auto_increment:
        with pytest.raises(TableError):
            existing_value(TABLE, added.column, added.default)


def test_a_timestamp_without_default_follows_the_server_setting(mysql: Database) -> None:
    [(column, added)] = add(mysql, "TIMESTAMP")
    [(shown,)] = mysql.query("SELECT c0 FROM d")
    if column.nullable:
        assert shown is None
        assert existing_value(TABLE, column, added) is None
    else:
        assert column.default_is_expression


def test_zero_dates_follow_the_choice(mysql: Database) -> None:
    [(column, added)] = add(mysql, "DATETIME(2) NOT NULL", rows=0)
    assert existing_value(TABLE, column, added, types=TypeOptions(zero_dates="null")) is None
    assert (
        existing_value(TABLE, column, added, types=TypeOptions(zero_dates="text")) == "0000-00-00 00:00:00.00"
    )
    with pytest.raises(TableError):
        existing_value(TABLE, column, added, types=TypeOptions(zero_dates="error"))


@pytest.mark.parametrize("zero_dates", ["null", "text", "error"])
def test_the_default_of_a_timestamp_is_a_time_in_a_zone_that_only_the_server_knows(zero_dates: Any) -> None:
    altered = applied("shop", "CREATE TABLE d (id INT)", "ALTER TABLE d ADD c TIMESTAMP DEFAULT '2020-01-01'")
    added = altered.after.columns[-1]
    with pytest.raises(TableError, match="only the server can convert"):
        existing_value(TABLE, added.column, added.default, types=TypeOptions(zero_dates=zero_dates))


def test_the_default_of_the_statement_counts_not_a_later_one(mysql: Database) -> None:
    [(_, added)] = add(mysql, "INT DEFAULT 5")
    mysql.execute("ALTER TABLE d ALTER COLUMN c0 SET DEFAULT 9")
    assert existing_value(TABLE, read(mysql).column("c0"), added) == 5


@pytest.mark.parametrize(
    "definition",
    ["ENUM('2','1') NOT NULL DEFAULT 2", "VARCHAR(5) DEFAULT -0.0",
     "ENUM('a','A') CHARACTER SET latin1 COLLATE latin1_bin NOT NULL DEFAULT 'a'"],
)  # fmt: skip
def test_a_default_that_the_server_takes_for_something_else_is_left_to_the_server(
    mysql: Database, definition: str
) -> None:
    [(column, default)] = add(mysql, definition)
    with pytest.raises(TableError, match="only the server can convert"):
        existing_value(TABLE, column, default)
