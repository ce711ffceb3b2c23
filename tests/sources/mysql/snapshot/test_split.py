"""Chunk bounds: the server counts what each chunk's condition finds; every row must be in exactly one."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from penstock.model.chunk import Chunk
from penstock.model.schema import Column, TableId, TableSchema
from penstock.sources.chunk_bounds import TableSize, join_bounds
from penstock.sources.mysql.catalog import read_table
from penstock.sources.mysql.identifiers import quoted
from penstock.sources.mysql.options import MySqlOptions
from penstock.sources.mysql.session import SourceSession
from penstock.sources.mysql.snapshot.reader import prepare_session
from penstock.sources.mysql.snapshot.split import (
    MySqlChunkPlanner,
    divide_integers,
    literal,
    range_condition,
)
from penstock.testing.servers import Database

ROWS = 3000
NUMBERS = (
    "(SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d AS n FROM {d} a, {d} b, {d} c, {d} e"
    " WHERE a.d + 10 * b.d + 100 * c.d + 1000 * e.d < 3000) numbers"
).format(d="(SELECT 0 d " + " ".join(f"UNION ALL SELECT {digit}" for digit in range(1, 10)) + ")")

KEYS = {
    "dense int": ("k INT PRIMARY KEY", "n"),
    "dense int, negative": ("k INT PRIMARY KEY", "CAST(n AS SIGNED) - 1500"),
    "sparse bigint": ("k BIGINT UNSIGNED PRIMARY KEY",
                      "18446744073709551615 - CAST(n AS UNSIGNED) * 6000000000000000"),
    "skewed bigint": ("k BIGINT PRIMARY KEY", "IF(n < 2900, n, 4000000000000 * n)"),
    "two clusters": ("k BIGINT PRIMARY KEY", "IF(n % 2, n, -9223372036854775807 + n)"),
    "ci string": ("k VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci PRIMARY KEY",
                  "CONCAT(ELT(n % 3 + 1, 'ä', 'B', 'ß'), SUBSTR(MD5(n), 1, 12))"),
    "latin1 string with quotes": ("k CHAR(40) CHARACTER SET latin1 COLLATE latin1_german2_ci PRIMARY KEY",
                                  "CONCAT('\\'\\\\ö', MD5(n))"),
    "utf16 string": ("k VARCHAR(40) CHARACTER SET utf16 PRIMARY KEY", "CONCAT('😀', n)"),
    "string with spaces at its end": ("k VARCHAR(60) COLLATE utf8mb4_bin PRIMARY KEY",
                                      "RPAD(n, 9 + n % 40, ' ')"),
    "binary": ("k BINARY(16) PRIMARY KEY", "UNHEX(MD5(n))"),
    "varbinary": ("k VARBINARY(16) PRIMARY KEY", "SUBSTR(UNHEX(MD5(n)), 1, 4 + n % 12)"),
    "decimal": ("k DECIMAL(30,10) PRIMARY KEY", "(n - 1500) / 7.0"),
    "date": ("k DATE PRIMARY KEY", "DATE_ADD('2020-01-01', INTERVAL n DAY)"),
    "datetime with zero dates": ("k DATETIME(6) PRIMARY KEY",
                                 ("IF(n < 28, CONCAT('2024-00-', LPAD(n, 2, '0'), ' 01:02:03'),"
                                  " TIMESTAMPADD(MICROSECOND, n, '2024-01-01'))")),
    "timestamp": ("k TIMESTAMP(3) PRIMARY KEY", "TIMESTAMPADD(SECOND, n * 3600, '2024-01-01')"),
    "time": ("k TIME PRIMARY KEY", "SEC_TO_TIME(CAST(n AS SIGNED) * 2000 - 3000000)"),
    "double": ("k DOUBLE PRIMARY KEY", "n / 7e0"),
    "float": ("k FLOAT PRIMARY KEY", "(16777216 + n * 2) / 3"),
    "bit": ("k BIT(12) PRIMARY KEY", "n"),
    "composite": ("k INT, l VARCHAR(20), m SMALLINT, PRIMARY KEY (k, l, m)",
                  "n % 7, CONCAT('x', n % 100), n % 3000"),
    "composite with enum": ("k ENUM('z','y','x'), l BIGINT, PRIMARY KEY (k, l)", "n % 3 + 1, n"),
    "composite in another order": ("k INT, l INT, PRIMARY KEY (l, k)", "n, n % 5"),
    "unique, not null": ("k VARCHAR(20) NOT NULL, v INT, UNIQUE KEY (k)", "MD5(n), n"),
    "names that need quotes": ("`a``b ?` INT, `select` INT, PRIMARY KEY (`a``b ?`, `select`)", "n % 9, n"),
    "no key": ("v INT", "n"),
}  # fmt: skip


def make(mysql: Database, definition: str, values: str, name: str = "t") -> TableSchema:
    mysql.execute("SET SESSION sql_mode = ''", f"CREATE TABLE `{name}` ({definition}) CHARACTER SET utf8mb4",
                  f"INSERT INTO `{name}` SELECT {values} FROM {NUMBERS}",
                  f"ANALYZE TABLE `{name}`")  # fmt: skip
    with mysql.connect() as connection:
        schema = read_table(connection, TableId(mysql.name, name))
    assert schema is not None
    return schema


def chunks_of(mysql: Database, schema: TableSchema, chunk_rows: int) -> list[Chunk]:
    with mysql.connect() as connection:
        prepare_session(connection)
        return list(MySqlChunkPlanner(connection, schema, chunk_rows=chunk_rows).chunks())


def counts_of(mysql: Database, schema: TableSchema, chunks: list[Chunk]) -> Iterator[int]:
    with mysql.connect() as connection:
        prepare_session(connection)
        for chunk in chunks:
            where = range_condition(schema.key, chunk.lower, chunk.upper) or "TRUE"
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT COUNT(*) FROM {quoted(schema.table)} WHERE {where}")
                yield int(cursor.fetchall()[0][0])


@pytest.mark.parametrize("kind", KEYS)
def test_every_row_is_in_exactly_one_chunk_of_about_the_size_aimed_at(mysql: Database, kind: str) -> None:
    schema = make(mysql, *KEYS[kind])
    chunks = chunks_of(mysql, schema, 250)
    counts = list(counts_of(mysql, schema, chunks))
    assert sum(counts) == ROWS
    assert [chunk.number for chunk in chunks] == list(range(len(chunks)))
    assert chunks[0].lower is None and chunks[-1].upper is None
    assert all(one.upper == other.lower for one, other in itertools.pairwise(chunks))
    if kind != "no key":
        assert max(counts) <= 2 * 250
        assert len(chunks) <= 3 * ROWS / 250


@pytest.mark.parametrize("kind", ["composite", "ci string", "binary", "decimal", "timestamp", "dense int"])
def test_a_chunk_is_read_by_a_range_of_the_key(mysql: Database, kind: str) -> None:
    schema = make(mysql, *KEYS[kind])
    chunk = chunks_of(mysql, schema, 250)[3]
    where = range_condition(schema.key, chunk.lower, chunk.upper)
    with mysql.connect() as connection:
        prepare_session(connection)
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN SELECT * FROM {quoted(schema.table)} WHERE {where}")
            plan = dict(zip([item[0] for item in cursor.description], cursor.fetchall()[0], strict=True))
    assert plan["type"] in ("range", b"range")
    assert plan["key"] in ("PRIMARY", b"PRIMARY")
    assert int(plan["rows"]) < ROWS / 2


def test_planning_goes_on_behind_the_last_chunk_that_was_made_durable(mysql: Database) -> None:
    for number, kind in enumerate(("skewed bigint", "composite")):
        schema = make(mysql, *KEYS[kind], name=f"t{number}")
        with mysql.connect() as connection:
            prepare_session(connection)
            first = list(itertools.islice(MySqlChunkPlanner(connection, schema, chunk_rows=250).chunks(), 4))
            rest = list(MySqlChunkPlanner(connection, schema, chunk_rows=250).chunks(after=first[-1]))
        assert sum(counts_of(mysql, schema, first + rest)) == ROWS
        assert [chunk.number for chunk in first + rest] == list(range(len(first + rest)))


@pytest.mark.parametrize("kind", ["dense int", "ci string"])
def test_a_table_is_divided_although_the_server_takes_it_for_small(mysql: Database, kind: str) -> None:
    """What it says of sizes may be old."""
    schema = make(mysql, *KEYS[kind])
    with mysql.connect() as connection:
        prepare_session(connection)
        planner = MySqlChunkPlanner(connection, schema, chunk_rows=250)
        planner.size = TableSize(3, 100)
        chunks = list(planner.chunks())
    assert max(counts_of(mysql, schema, chunks)) <= 2 * 250


def test_tables_that_are_split_one_after_the_other_share_a_connection(mysql: Database) -> None:
    schemas = [make(mysql, "k INT PRIMARY KEY", "n", name=f"t{number}") for number in range(3)]
    account = f"split{mysql.name[-8:]}"
    mysql.execute(
        f"CREATE USER {account}@127.0.0.1 IDENTIFIED BY 'p' WITH MAX_CONNECTIONS_PER_HOUR 1",
        f"GRANT SELECT, REPLICATION CLIENT ON *.* TO {account}@127.0.0.1",
    )
    source = SourceSession(MySqlOptions(host=mysql.host, port=mysql.port, user=account, password="p"))
    sizes: list[int] = []
    for schema in schemas:
        found = source.find(schema, 5000, mysql.gtid_executed(), sized=sizes.append)
        assert list(found) == [Chunk(schema.table, 0, None, None)]
    assert all(size > ROWS / 2 for size in sizes), "they are asked for fresh"
    source.close_idle()
    assert not mysql.query("SELECT ID FROM information_schema.PROCESSLIST WHERE USER = %s", (account,))
    source.close()
    mysql.execute(f"DROP USER {account}@127.0.0.1")


def test_an_empty_table_is_one_open_chunk(mysql: Database) -> None:
    schema = make(mysql, "k INT PRIMARY KEY", "n")
    mysql.execute("DELETE FROM t")
    [chunk] = chunks_of(mysql, schema, 250)
    assert (chunk.lower, chunk.upper) == (None, None)


def test_rows_that_come_while_planning_belong_to_a_chunk_too(mysql: Database) -> None:
    schema = make(mysql, "k INT PRIMARY KEY", "n")
    chunks = chunks_of(mysql, schema, 250)
    mysql.execute("INSERT INTO t VALUES (-2147483648), (2147483647), (5000)")
    assert sum(counts_of(mysql, schema, chunks)) == ROWS + 3


# Pure parts


def test_division_asks_for_a_bounded_number_of_estimates_whatever_the_skew() -> None:
    dice = random.Random(7)
    for _ in range(200):
        bits = dice.choice((4, 16, 32, 64))
        highest = 2**bits - 1
        keys = sorted(
            {dice.randrange(2 ** dice.randrange(1, bits + 1)) for _ in range(dice.randrange(1, 400))}
        )
        asked = 0

        def estimate(start: int, below: int) -> int:
            nonlocal asked
            asked += 1
            return sum(start <= key < below for key in keys)  # noqa: B023

        bounds = list(divide_integers(keys[0], highest, 20, estimate, estimates_max=128))
        numbers = [bound for bound in bounds if bound is not None]
        assert numbers == sorted(set(numbers))
        assert asked <= 128 + 16 * (len(numbers) + 1)
        edges = [keys[0], *numbers, highest + 1]
        counts = [sum(low <= key < high for key in keys) for low, high in itertools.pairwise(edges)]
        assert sum(counts) == len(keys)
        if None not in bounds:
            assert max(counts) <= 30


def test_a_composite_bound_is_compared_column_by_column() -> None:
    assert range_condition(("a", "b`"), ("1", "2"), ("3", "4")) == (
        "(`a` > 1 OR (`a` = 1 AND (`b``` >= 2))) AND (`a` < 3 OR (`a` = 3 AND (`b``` < 4)))"
    )
    assert range_condition(("a",), None, None) == ""


def test_dates_that_servers_disagree_about_are_no_bounds() -> None:
    column = Column("d", "date")
    assert literal(column, "2024-02-29") == "'2024-02-29'"
    for printed in ("0000-00-00", "2024-00-10", "2023-02-29"):
        assert literal(column, printed) is None


def test_rows_per_chunk_shrink_with_large_rows() -> None:
    assert TableSize(10**6, 200).chunk_rows(50_000) == 50_000
    assert TableSize(10**6, 64 * 1024).chunk_rows(50_000) == 1024
    assert TableSize(10, 10**9).chunk_rows(50_000) == 100
    assert TableSize(0, 0).chunk_rows(50_000) == 50_000


def test_equal_bounds_make_no_empty_chunk() -> None:
    schema = TableSchema(TableId("d", "t"), (Column("k", "int", False),), ("k",))
    chunks = list(join_bounds(schema.table, [("1",), ("1",), ("2",)]))
    assert [(chunk.lower, chunk.upper) for chunk in chunks] == [
        (None, ("1",)),
        (("1",), ("2",)),
        (("2",), None),
    ]
