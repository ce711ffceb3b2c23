"""An ALTER that is taken as harmless leaves every value as targets have it: every type into every other, with
values at the edges, on each server of the matrix.

A pair of types is tried if the definition of the log (the statement) or that of the catalog (the difference
of two definitions) calls it harmless. The judge is the server: the rows before and after its own ALTER.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pymysql
import pytest
from tests.properties import conversions
from tests.properties.conversions import Kind

from penstock.config import TablesConfig
from penstock.model.chunk import Chunk
from penstock.model.offset import Offset
from penstock.model.schema import TableId, TableSchema, TypeOptions
from penstock.relaylog.reader import Statement
from penstock.sources.mysql.catalog import describe_server, read_table
from penstock.sources.mysql.ddl.charsets import covers
from penstock.sources.mysql.ddl.server import SQL_MODE_BITS
from penstock.sources.mysql.snapshot.reader import MySqlChunkReader
from penstock.sources.mysql.statements import MySqlStatements
from penstock.sources.table_filter import TableFilter
from penstock.testing import servers

STRICT = "STRICT_TRANS_TABLES"
T, COPY = TableId("d", "t"), TableId("d", "_t_gho")
SWAP = "RENAME TABLE d.t TO d._t_del, d._t_gho TO d.t"
MODES = [pytest.param(STRICT, id="strict"), pytest.param("", id="loose")]
COLUMNS = 12
"""Columns that one ALTER converts."""
_CELL = re.compile(r"(?:for column '?(?:`d`\.`t`\.)?`?(c\d+)[`']?)? ?at row (\d+)")


class Ground:
    """A database on a server, with what a pipeline says of its statements."""

    def __init__(self, server: servers.DatabaseServer, mode: str) -> None:
        self.mode = mode
        self.types = TypeOptions(zero_dates="null" if mode else "text")
        self.connection = server.connect()
        self.run(
            "SET NAMES utf8mb4", "SET time_zone = '+00:00'", "SET max_error_count = 0",
            "DROP DATABASE IF EXISTS d", "CREATE DATABASE d CHARACTER SET latin1", "USE d",
        )  # fmt: skip
        self.traits = describe_server(self.connection).statements
        self._reader = MySqlChunkReader(server.connect(), types=self.types)
        self._offset = 0

    def close(self) -> None:
        self.run("DROP DATABASE d")
        self._reader.close()
        self.connection.close()

    def run(self, *statements: str) -> None:
        with self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def try_(self, *statements: str) -> pymysql.MySQLError | None:
        try:
            self.run(*statements)
        except pymysql.MySQLError as error:
            return error
        return None

    def schema(self, table: str = "t") -> TableSchema:
        schema = read_table(self.connection, TableId("d", table))
        assert schema is not None
        return schema

    def rows(self) -> dict[str, list[Any]]:
        schema = self.schema()
        batches = list(self._reader.read(schema, Chunk(schema.table, 0, None, None)))
        return dict(pa.Table.from_batches(batches).sort_by("id").to_pydict())

    def says(self, before: TableSchema, sql: str, after: TableSchema) -> dict[str, str]:
        """Why values may have changed, by the definition in the log (the statement) and by the catalog (the
        difference of two definitions). Empty: they have not."""
        statements = MySqlStatements(
            TableFilter(TablesConfig(include=["d.*"])), lambda table: replace(after, table=T),
            lambda: self.traits, read_database=lambda name: ("latin1", "latin1_swedish_ci"),
            types=self.types, parks_cascades=False,
        )  # fmt: skip
        found = {}
        for way, text in (("log", sql), ("catalog", SWAP)):
            mode = SQL_MODE_BITS[STRICT] if self.mode and way == "log" else 0
            effects = statements.effects(
                Statement(Offset(100), Offset(200), "d", text, 0, sql_mode=mode),
                {T: replace(before, table=T)},
            )
            found[way] = "; ".join(effect.rereads or "" for effect in effects)
            assert "not understood" not in found[way]
        return found

    def harmless(self, before: TableSchema, changes: Sequence[tuple[str, TableSchema]]) -> list[set[str]]:
        """For each change of the column `c0`, which definitions take it for harmless."""
        key, old = before.columns
        names = [f"c{number}" for number in range(len(changes))]
        now = [replace(after.columns[1], name=name) for name, (_, after) in zip(names, changes, strict=True)]
        known = replace(before, columns=(key, *(replace(old, name=name) for name in names)))
        parts = [f"MODIFY {name} {type}" for name, (type, _) in zip(names, changes, strict=True)]
        says = self.says(known, f"ALTER TABLE t {', '.join(parts)}", replace(known, columns=(key, *now)))
        harms = {way: set(re.findall(r"\bc\d+\b", why)) for way, why in says.items()}
        return [{way for way, columns in harms.items() if name not in columns} for name in names]


@pytest.fixture
def ground(flavor: servers.DatabaseServer, mode: str) -> Iterator[Ground]:
    ground = Ground(flavor, mode)
    yield ground
    ground.close()


def schemas(ground: Ground, kinds: Sequence[Kind]) -> dict[Kind, TableSchema]:
    """The definition of a table with one column of each kind. Kinds that the server refuses are left out."""
    found = {}
    for kind in kinds:
        ground.run("DROP TABLE IF EXISTS t", "SET sql_mode = ''")
        if ground.try_(f"CREATE TABLE t (id INT PRIMARY KEY, c0 {kind.type} NULL)") is None:
            found[kind] = ground.schema()
    return found


def fill(ground: Ground, kind: Kind, columns: int) -> None:
    """A table with the values of the kind in each of its columns."""
    names = [f"c{number}" for number in range(columns)]
    ground.run(
        "DROP TABLE IF EXISTS t", "SET sql_mode = ''",
        f"CREATE TABLE t (id INT PRIMARY KEY, {', '.join(f'{name} {kind.type} NULL' for name in names)})",
        "INSERT INTO t (id) VALUES (0)",
    )  # fmt: skip
    for number, value in enumerate(kind.values, 1):
        ground.try_(f"INSERT IGNORE INTO t VALUES ({number}{f', {value}' * columns})")


def alter(ground: Ground, kinds: Sequence[Kind]) -> bool:
    """Converts column after column. Cells that the server refuses become NULL before. False: it refuses the
    types, or does not say which cell."""
    changes = ", ".join(f"MODIFY c{number} {kind.type} NULL" for number, kind in enumerate(kinds))
    ground.run(f"SET sql_mode = '{ground.mode}'")
    last = None
    while (error := ground.try_(f"ALTER TABLE t {changes}")) is not None:
        cell = _CELL.search(str(error))
        column = "c0" if len(kinds) == 1 else cell and cell[1]
        if cell is None or not column or cell[0] == last:
            return False
        last = cell[0]
        with ground.connection.cursor() as cursor:
            cursor.execute("SELECT id FROM t ORDER BY id LIMIT 1 OFFSET %s", (int(cell[2]) - 1,))
            (number,) = cursor.fetchone() or (None,)
        ground.run(f"UPDATE t SET {column} = NULL WHERE id = {number}")
    return True


def carried(before: Any, after: Any) -> tuple[Any, Any]:
    """Both values in one form: numbers are numbers in each type of a target, and a date is a moment."""
    if isinstance(before, str) and isinstance(after, Decimal | int | float):
        before = Decimal(before)
    return _plain(before), _plain(after)


def _plain(value: Any) -> Any:
    match value:
        case bool() | int() | float():
            return Decimal(value)
        case datetime.datetime():
            return value.replace(tzinfo=None)
        case datetime.date():
            return datetime.datetime(value.year, value.month, value.day)
    return value


def differences(ground: Ground, kind: Kind, targets: Sequence[Kind]) -> Iterator[str]:
    """Values that the ALTERs change. Targets that the server takes only alone are tried alone."""
    fill(ground, kind, len(targets))
    old = ground.rows()["c0"]
    if not alter(ground, targets):
        if len(targets) > 1:
            for target in targets:
                yield from differences(ground, kind, [target])
        return
    rows = ground.rows()
    for number, target in enumerate(targets):
        for place, was, now in zip(rows["id"], old, rows[f"c{number}"], strict=True):
            one, other = carried(was, now)
            if one != other and not (now is None and ground.mode):
                value = kind.values[place - 1] if place else "NULL"
                yield f"{kind.type} -> {target.type}: {value}: {str(was)[:40]!r}, {str(now)[:40]!r}"


def wrong(ground: Ground, kinds: Sequence[Kind]) -> tuple[list[str], int]:
    """Values that ALTERs changed although they were taken for harmless, and the number of harmless pairs."""
    known = schemas(ground, kinds)
    found: list[str] = []
    tried = 0
    changes = [(f"{target.type} NULL", after) for target, after in known.items()]
    for kind, before in known.items():
        says = zip(known, ground.harmless(before, changes), strict=True)
        targets = [target for target, ways in says if "log" in ways or (ways and not ground.mode)]
        tried += len(targets)
        for start in range(0, len(targets), COLUMNS):
            found += differences(ground, kind, targets[start : start + COLUMNS])
    return found, tried


QUICK = re.compile(
    r"(TINY|BIG)?INT( UNSIGNED)?|DECIMAL\(10,2\).*|FLOAT( UNSIGNED)?|FLOAT\(10,2\)|DOUBLE(\(10,2\))?|YEAR"
    r"|DATE|DATETIME|TIMESTAMP|VARCHAR\(10\) CHARACTER SET (latin1|ucs2|utf8mb4|cp1251)"
    r"|TEXT.*|ENUM\('(a|b|A)'.*"
)
"""Types of the quick test."""


def all_of(flavor: servers.DatabaseServer) -> list[Kind]:
    return conversions.kinds(next(n for n, kind in servers.FLAVORS.items() if type(flavor) is kind))


@pytest.mark.parametrize("mode", MODES)
def test_an_alter_taken_for_harmless_leaves_values_at_the_edges(
    ground: Ground, flavor: servers.DatabaseServer
) -> None:
    kinds = [kind for kind in all_of(flavor) if QUICK.fullmatch(kind.type)]
    found, tried = wrong(ground, kinds)
    assert found == []
    assert tried > len(kinds) * 2


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", MODES)
def test_of_all_pairs_of_types_those_taken_for_harmless_leave_every_value(
    ground: Ground, flavor: servers.DatabaseServer
) -> None:
    kinds = all_of(flavor)
    found, tried = wrong(ground, kinds)
    assert found == []
    assert tried > len(kinds) * 10


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
@pytest.mark.parametrize("mode", MODES)
def test_attributes_taken_for_harmless_leave_every_value(ground: Ground, every: int) -> None:
    """NULL, AUTO_INCREMENT, generated columns, and keys."""
    found, missing = [], []
    for case in conversions.CASES[::every]:
        ground.run("DROP TABLE IF EXISTS t", "SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO'")
        if ground.try_(f"CREATE TABLE t (id INT NOT NULL, {case.columns}, UNIQUE (id))") is not None:
            continue
        ground.run(*(f"INSERT IGNORE INTO t ({case.names}) VALUES ({row})" for row in case.rows))
        before, old = ground.schema(), ground.rows()
        sql = f"ALTER TABLE t {case.change}"
        if ground.try_(f"SET sql_mode = '{ground.mode}'", sql) is not None:
            continue
        after, now = ground.schema(), ground.rows()
        ways = [way for way, why in ground.says(before, sql, after).items() if not why]
        kept = all(
            carried(one, other)[0] == carried(one, other)[1]
            for name in old.keys() & now.keys()
            for one, other in zip(old[name], now[name], strict=True)
        )
        if ways and not kept:
            found.append(f"{case.columns}: {case.change}: {ways}, {old}, {now}")
        if case.harmless and "log" not in ways:
            missing.append(f"{case.columns}: {case.change}")
    assert found == []
    assert missing == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", MODES)
def test_a_character_set_that_covers_another_has_all_that_columns_of_it_hold(ground: Ground) -> None:
    with ground.connection.cursor() as cursor:
        cursor.execute(
            "SELECT CHARACTER_SET_NAME, MAXLEN FROM information_schema.CHARACTER_SETS"
            " WHERE CHARACTER_SET_NAME <> 'binary'"
        )
        widths = {str(name): int(width) for name, width in cursor.fetchall()}
    found: list[str] = []
    tried = 0
    for charset, width in widths.items():
        targets = [Kind(f"VARCHAR(9) CHARACTER SET {name}", ()) for name in widths if covers(name, charset)]
        values = conversions.codes(charset, width)
        tried += len(targets) - 1
        found += differences(ground, Kind(f"VARCHAR(9) CHARACTER SET {charset}", values), targets)
    assert found == []
    assert tried > 50
