"""What existing rows hold in an added column: every way to write a constant, for many types. The judge is the
server's SELECT. Our value is the same, or it is said that only the server knows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any

import pymysql
import pytest

from penstock.config import TablesConfig
from penstock.errors import TableError
from penstock.model.offset import Offset
from penstock.model.schema import TableId, TypeOptions
from penstock.relaylog.reader import Statement
from penstock.sources.mysql.added_defaults import existing_value
from penstock.sources.mysql.catalog import describe_server, read_tables
from penstock.sources.mysql.ddl.catalog import Catalog
from penstock.sources.mysql.ddl.change import Altered
from penstock.sources.mysql.ddl.server import sql_mode
from penstock.sources.mysql.statements import MySqlStatements
from penstock.sources.table_filter import TableFilter
from penstock.testing import servers

TYPES = (
    "INT",
    "TINYINT UNSIGNED",
    "DECIMAL(10,2)",
    "DOUBLE",
    "YEAR",
    "BIT(16)",
    "VARCHAR(30) CHARACTER SET latin1",
    "VARCHAR(30) CHARACTER SET utf8mb4",
    "VARCHAR(30) CHARACTER SET ucs2",
    "CHAR(9) CHARACTER SET latin1",
    "VARBINARY(30)",
    "BINARY(12)",
    "DATE",
    "DATETIME",
    "DATETIME(2)",
    "TIME",
    "TIME(3)",
    "TEXT CHARACTER SET latin1",
    "ENUM('a','é','1','2020-01-01') CHARACTER SET latin1",
    "SET('a','b') CHARACTER SET utf8mb4",
)
_CODES = (
    "0xE9",
    "x'E9'",
    "X'e9'",
    "b'11101001'",
    "0b1100001",
    "0x61",
    "x'61'",
    "'a'",
    "'é'",
    "0xC3A9",
    "0x20AC",
    "0x0061",
    "0x80",
    "x''",
    "'a' 'b'",
    "0x31",
    "'1'",
)
_INTRODUCERS = (
    "",
    "_latin1 ",
    "_latin1",
    "_utf8mb4 ",
    "_utf8",
    "_binary ",
    "_ucs2 ",
    "_utf16",
    "_ascii ",
    "N",
    "n",
    "_cp1251 ",
    "_gbk ",
    "_UTF8MB4/* x */ ",
)
_DATES = (
    "2020-01-01",
    "2020-1-1",
    "20200101",
    "2020-01-01 10:11:12",
    "10:11:12",
    "-1:2:3",
    "2020-01-01 10:11:12.345",
    "10:11:12.5",
    "2020/01/01",
    "20-01-01",
    "0000-00-00",
    "838:59:59.5",
    "10:11",
    "1 10:11:12",
)
_FORMS = (
    "'{}'",
    "DATE'{}'",
    "DATE '{}'",
    "TIME'{}'",
    "TIMESTAMP '{}'",
    "{{d '{}'}}",
    "{{t'{}'}}",
    "{{ts '{}'}}",
    "('{}')",
    "(DATE'{}')",
    "({{ts '{}'}})",
    "(_latin1'{}')",
    '"{}"',
    "/*!50000 '{}' */",
    "{{fn '{}'}}",
)
_OTHERS = (
    "1",
    "-1",
    "+ 2",
    "- 3",
    "2.5",
    "-2.5",
    ".5",
    "5.",
    "1e2",
    "1.5E1",
    "-0",
    "007",
    "1.50",
    "TRUE",
    "false",
    "NULL",
    "(1)",
    "((2))",
    "(-3)",
    "(2.5)",
    "('1')",
    "(TRUE)",
    "(NULL)",
    "(0x31)",
    "(b'1')",
    "(1 + 1)",
    "(300)",
    "(99999999.996)",
    "(1e39)",
    "('1_0')",
    "('Infinity')",
    "('日本')",
    "('2020-02-31')",
    "('2020-00-01')",
    "('2020-01-01 25:00:00')",
    "('abcdefghijklmnopqrstuvwxyzabcdefgh')",
    "('a' 'b')",
    "'it''s'",
    r"'a\'b'",
    r"'a\\b'",
    r"'\n\t\0\Z'",
    r"'50\%\_'",
    "'  a  '",
    "'a'/* x */'b'",
    "'a' -- x\n 'b'",
    '"a""b"',
    "'\"'",
    "'a' COMMENT 'DEFAULT 9'",
    "1 COMMENT 'it''s, (a'",
    "/*!40000 1 */",
    "/*!99999 9 */ 1",
    "/*M!100000 2 */",
    "0x",
    "x'0'",
    "b''",
    "b'1'",
    "0b1",
    "1 /* 2 */",
    "- 1.5e-1",
    "--1",
    "-'5'",
    "'a' COLLATE latin1_bin",
    "1 DIV 2",
    "CURRENT_TIMESTAMP",
    "(UUID())",
    "PI()",
    "'é'",
    "'日本'",
    "1 NOT NULL",
    "'9' UNIQUE",
)
LITERALS = (
    *(mark + code for mark in _INTRODUCERS for code in _CODES),
    *(form.format(date) for form in _FORMS for date in _DATES),
    *_OTHERS,
)
MODES = ("STRICT_TRANS_TABLES", "", "NO_BACKSLASH_ESCAPES,ANSI_QUOTES")
COLUMNS = 40
ZERO_DATES = TypeOptions(zero_dates="text")


def cases(every: int) -> list[tuple[str, str]]:
    return [(kind, literal) for kind in TYPES for literal in LITERALS][::every]


def shown(cursor: Any, name: str, kind: str) -> Any:
    """The value of the existing row, in the form of ours."""
    if "CHAR" in kind or "TEXT" in kind or kind[:3] in ("ENU", "SET"):
        cursor.execute(f"SELECT HEX(CONVERT({name} USING utf8mb4)) FROM t")
        (value,) = cursor.fetchone()
        return None if value is None else bytes.fromhex(value).decode()
    if "BINARY" in kind:
        cursor.execute(f"SELECT HEX({name}) FROM t")
        (value,) = cursor.fetchone()
        return None if value is None else bytes.fromhex(value)
    cursor.execute(f"SELECT CAST({name}{' + 0' if kind.startswith('BIT') else ''} AS CHAR) FROM t")
    (value,) = cursor.fetchone()
    return value


def comparable(value: Any) -> Any:
    try:
        return Decimal(str(value)) if not isinstance(value, bytes) else value
    except InvalidOperation:
        return value


def differences(server: servers.DatabaseServer, mode: str, every: int) -> Iterator[str | None]:
    """For each default that the server takes: how our value differs. None: it does not. Empty: it is said to
    be unknown."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET NAMES utf8mb4")
        cursor.execute(f"SET sql_mode = '{mode}'")
        cursor.execute("USE d")
        known = replace(describe_server(connection).statements, sql_mode=sql_mode(mode))
        for number, (kind, literal) in enumerate(cases(every)):
            made = "CREATE TABLE t (id INT PRIMARY KEY) CHARACTER SET latin1"
            if number % COLUMNS == 0:
                for sql in ("DROP TABLE IF EXISTS t", made, "INSERT INTO t VALUES (1)"):
                    cursor.execute(sql)
            statement = f"ALTER TABLE t ADD c{number} {kind} DEFAULT {literal}"
            try:
                cursor.execute(statement)
            except (pymysql.MySQLError, UnicodeError):
                continue
            catalog = Catalog(known)
            catalog.database = "d"
            catalog.execute(made)
            [change] = catalog.execute(statement)
            if not isinstance(change, Altered) or change.silent:
                yield ""
                continue
            column = change.after.columns[-1]
            try:
                ours = existing_value(TableId("d", "t"), column.column, column.default, types=ZERO_DATES)
            except TableError:
                yield ""
                continue
            theirs = shown(cursor, f"c{number}", kind)
            if isinstance(ours, str) and isinstance(
                theirs, bytes
            ):  # MariaDB: BINARY with a COLLATE is a CHAR
                theirs = theirs.decode()
            same = comparable(ours) == comparable(theirs)
            yield None if same else f"{kind} DEFAULT {literal}: ours {ours!r}, the server's {theirs!r}"


@pytest.mark.parametrize("every", [19, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
@pytest.mark.parametrize("mode", MODES)
def test_existing_rows_have_the_default_of_an_added_column_or_it_is_said_to_be_unknown(
    flavor: servers.DatabaseServer, mode: str, every: int
) -> None:
    flavor.execute("DROP DATABASE IF EXISTS d", "CREATE DATABASE d")
    found = list(differences(flavor, mode, every))
    flavor.execute("DROP DATABASE d")
    assert [one for one in found if one] == []
    assert found.count(None) > len(found) * 0.4, (found.count(None), len(found))


def test_defaults_of_tables_with_a_common_name_concern_only_the_table_that_is_altered(
    flavor: servers.DatabaseServer,
) -> None:
    """Also those whose value is not understood. Columns that are called like the table are no tables."""
    names = [f"common{number}" for number in range(20)]
    for name in names:
        flavor.execute(
            f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name} CHARACTER SET latin1",
            f"CREATE TABLE {name}.t (id INT PRIMARY KEY, t INT)",
            f"CREATE TABLE {name}.a (id INT PRIMARY KEY)",
            f"INSERT INTO {name}.t VALUES (1, 1)",
        )  # fmt: skip
    captured = TableFilter(TablesConfig(include=["common*.*"]))
    with flavor.connect() as connection:
        live = read_tables(connection, captured)
        traits = describe_server(connection).statements
    assert len(live) == 40
    reader = MySqlStatements(captured, live.get, lambda: traits, parks_cascades=False)
    target = TableId("common7", "t")
    literals = ("_latin1 0xE9", "_latin1 x'E9'", "_latin1 b'11101001'", "_cp1251 0xE9", "_gbk 0x61", "n'x'")
    for number, literal in enumerate(literals):
        sql = f"ALTER TABLE common7.t ADD a{number} VARCHAR(10) CHARACTER SET cp1251 DEFAULT {literal}"
        accepted = literal != "_latin1 0xE9" and "E9'" not in literal and "11101001" not in literal
        if not accepted:
            sql = sql.replace("cp1251", "latin1")
        flavor.execute(sql)
        effects = reader.effects(Statement(Offset(100), Offset(200), "common3", sql, 0, sql_mode=0), live)
        assert {effect.table for effect in effects} == {target}, sql
        assert (effects[0].rereads is None) == (literal[:3] not in ("_cp", "_gb")), effects
    for sql, tables in (
        ("ALTER TABLE common7.t FROBNICATE t, a", {"common7.t", "common3.t", "common3.a"}),
        ("ALTER TABLE common7.t ADD t2 INT FROBNICATE t, ADD a INT", {"common7.t"}),
        ("RENAME TABLE common7.t TO common7.u FROB", {"common7.t"}),
        ("DROP TABLE common7.t, common8.a FROB 5", {"common7.t", "common8.a"}),
        ("TRUNCATE TABLE common7.t", {"common7.t"}), ("OPTIMIZE TABLE common7.t", set()),
        ("CREATE INDEX i ON common7.t (id SOMEHOW)", {"common7.t"}),
        ("REPAIR TABLE common7.t, common8.t FROB", {"common7.t", "common8.t"}),
    ):  # fmt: skip
        effects = reader.effects(Statement(Offset(100), Offset(200), "common3", sql, 0, sql_mode=0), live)
        assert {str(effect.table) for effect in effects} == tables, sql
    flavor.execute(*(f"DROP DATABASE {name}" for name in names))
