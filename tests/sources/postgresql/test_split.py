"""Tables without a key are read in ranges of their blocks. The judge is the server's SELECT."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from tests.sources.postgresql.pg_log import options_at, table_of

from penstock.errors import ChunkOutdated
from penstock.model.chunk import Chunk
from penstock.model.schema import DEFAULT_TYPES, TableId, TableSchema
from penstock.sources.postgresql.chunk_reader import PostgreSqlChunkReader
from penstock.sources.postgresql.session import PostgreSqlSession
from penstock.sources.postgresql.sql import select_rows
from penstock.testing.servers.postgresql import PostgreSqlServer

ROWS = 6000
Rows = list[tuple[int, int]]


class Bag:
    """A table without a key. Each row has its number, and how often it was changed."""

    def __init__(self, server: PostgreSqlServer, connection: psycopg.Connection[Any], name: str) -> None:
        self.sql, self.options, self.name = connection, options_at(server), name
        self.table = TableId("public", name)
        self.run("DROP TABLE IF EXISTS {}")

    def run(self, statement: str) -> None:
        self.sql.execute(statement.format(f"public.{self.name}").encode())

    def fill(self) -> None:
        self.run("ALTER TABLE {} REPLICA IDENTITY FULL")
        self.run(f"INSERT INTO {{}} SELECT i, 0, repeat('x', i % 90) FROM generate_series(1, {ROWS}) i")
        self.run("ANALYZE {}")

    @property
    def schema(self) -> TableSchema:
        return table_of(self.sql, self.table).schema

    def chunks(self, rows: int = 500, after: Chunk | None = None) -> list[Chunk]:
        with closing(PostgreSqlSession(self.options, "all")) as session:
            return list(session.find(self.schema, rows, "", sized=lambda rows: None, after=after))

    def read(self, reader: PostgreSqlChunkReader, chunk: Chunk) -> Rows:
        found = [row for batch in reader.read(self.schema, chunk) for row in batch.to_pylist()]
        return [(row["id"], row["v"]) for row in found]

    def reader(self) -> PostgreSqlChunkReader:
        return PostgreSqlChunkReader(self.options, "all", DEFAULT_TYPES)


@pytest.fixture(params=[False, True], ids=["plain", "partitioned"])
def bag(server: PostgreSqlServer, connection: psycopg.Connection[Any], request: pytest.FixtureRequest) -> Bag:
    bag = Bag(server, connection, "parted_bag" if request.param else "bag")
    columns = "(id int, v int, note text)"
    if request.param:
        bag.run(f"CREATE TABLE {{}} {columns} PARTITION BY RANGE (id)")
        bag.run(f"CREATE TABLE {{0}}_1 PARTITION OF {{0}} FOR VALUES FROM (MINVALUE) TO ({ROWS // 4})")
        bag.run(f"CREATE TABLE {{0}}_2 PARTITION OF {{0}} FOR VALUES FROM ({ROWS // 4}) TO (MAXVALUE)")
        bag.run("ALTER TABLE {}_1 REPLICA IDENTITY FULL")
        bag.run("ALTER TABLE {}_2 REPLICA IDENTITY FULL")
    else:
        bag.run(f"CREATE TABLE {{}} {columns}")
    bag.fill()
    return bag


def test_ranges_of_blocks_have_each_row_once(bag: Bag) -> None:
    chunks = bag.chunks()
    assert len(chunks) > 5
    assert (chunks[0].lower, chunks[-1].upper) == (None, None)
    assert all(one.upper == other.lower for one, other in pairwise(chunks))
    bag.run("INSERT INTO {} VALUES (7000, 0, 'behind the last block')")
    with closing(bag.reader()) as reader:
        shown = [bag.read(reader, one) for one in chunks]
    wanted = bag.sql.execute(f"SELECT id, v FROM public.{bag.name}".encode()).fetchall()
    assert Counter(row for rows in shown for row in rows) == Counter(wanted)
    assert max(map(len, shown)) < 3 * 500
    assert bag.chunks(after=chunks[3]) == chunks[4:]
    assert len(bag.chunks(rows=10**6)) == 1


def test_the_server_reads_only_the_blocks_of_a_chunk(bag: Bag) -> None:
    query = select_rows(table_of(bag.sql, bag.table), bag.chunks()[2])
    plan = "\n".join(line for (line,) in bag.sql.execute(f"EXPLAIN {query}".encode()))
    assert "Tid Range Scan" in plan and "Seq Scan" not in plan


def test_rows_that_move_between_ranges_are_not_lost(bag: Bag) -> None:
    """Those that are in no chunk were changed since the table's start: the log has them."""
    chunks, changed = bag.chunks(), set[int]()
    shown = Counter[int]()
    with closing(bag.reader()) as reader:
        for number, chunk in enumerate(chunks):
            shown.update(id for id, _ in bag.read(reader, chunk))
            moved = bag.sql.execute(
                f"UPDATE public.{bag.name} SET v = v + 1, note = repeat('y', 95) "
                f"WHERE id % {len(chunks)} = {number} RETURNING id".encode()
            ).fetchall()
            changed.update(id for (id,) in moved)
            bag.run("VACUUM {}")  # so that places are used again, also those of earlier ranges
    there = {id for (id,) in bag.sql.execute(f"SELECT id FROM public.{bag.name}".encode())}
    assert there - set(shown) <= changed
    assert any(count > 1 for count in shown.values()), "no row has moved, so nothing was tried"
    assert {id for id, count in shown.items() if count > 1} <= changed


@pytest.mark.parametrize("statement", ["VACUUM FULL {}", "ALTER TABLE {} ALTER v TYPE int USING v + 0"])
def test_a_chunk_of_files_that_are_gone_is_not_read(bag: Bag, statement: str) -> None:
    if "VACUUM" in statement and bag.name != "bag":
        statement = "VACUUM FULL {}_2"
    chunks = bag.chunks()
    with closing(bag.reader()) as reader:
        assert bag.read(reader, chunks[0])
        bag.run(statement)
        for chunk in (chunks[0], chunks[1], chunks[-1]):
            with pytest.raises(ChunkOutdated, match="other files"):
                bag.read(reader, chunk)
        assert sum(len(bag.read(reader, one)) for one in bag.chunks()) == ROWS


@pytest.mark.parametrize(
    ("key", "value"),
    [("bigint", "i::bigint * i - 900"), ("numeric(12,3)", "i / 8.0 - 100"), ("text", "'key ' || i")],
)
def test_a_table_is_cut_into_even_chunks_in_the_order_of_its_key(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], key: str, value: str
) -> None:
    bag = Bag(server, connection, "keyed")
    bag.run(f"CREATE TABLE {{}} (k {key} PRIMARY KEY, id int, v int)")
    bag.run(f"INSERT INTO {{}} SELECT {value}, i, 0 FROM generate_series(1, {ROWS}) i ORDER BY i % 7")
    bag.run("ANALYZE {}")
    chunks = bag.chunks()
    with closing(bag.reader()) as reader:
        shown = [bag.read(reader, one) for one in chunks]
    assert [len(rows) for rows in shown] == [500] * (ROWS // 500)
    assert sorted(row for rows in shown for row in rows) == [(i, 0) for i in range(1, ROWS + 1)]
    assert bag.chunks(after=chunks[3]) == chunks[4:]
