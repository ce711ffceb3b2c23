"""What a chunk's view says of the log, while others write: exactly which transactions it shows."""

from __future__ import annotations

import json
import random
import threading
import time
from bisect import bisect_left
from typing import Any

import psycopg
import pytest
from tests.sources.postgresql.pg_log import connected, table_of

from penstock._core import XidSet
from penstock.model.chunk import Chunk
from penstock.model.schema import DEFAULT_TYPES, TableId
from penstock.secret import Secret
from penstock.sources.postgresql.chunk_reader import PostgreSqlChunkReader
from penstock.sources.postgresql.log_position import last_byte
from penstock.sources.postgresql.options import PostgreSqlOptions
from penstock.testing.servers.postgresql import PostgreSqlServer

WRITERS = 4
TRIAL_S = 240.0
"""Limit for the reads of a trial, in seconds."""
LATER = 500
"""So many later transactions are looked at, too: the view must not name them as seen."""


def _write(server: PostgreSqlServer, seed: int, ended: threading.Event) -> None:
    """Each transaction leaves its id, as a row; some are rolled back, some have subtransactions."""
    chance = random.Random(seed)
    with connected(server) as sql:
        sql.execute(f"SET synchronous_commit = {'on' if seed % 2 else 'off'}".encode())
        while not ended.is_set():
            with sql.transaction(force_rollback=chance.random() < 0.2):
                sql.execute("INSERT INTO public.seen VALUES (pg_current_xact_id()::text::bigint)")
                if chance.random() < 0.3:
                    with sql.transaction(force_rollback=chance.random() < 0.5):
                        sql.execute("INSERT INTO public.seen VALUES (-pg_current_xact_id()::text::bigint)")


@pytest.mark.parametrize("reads", [300, pytest.param(20_000, marks=pytest.mark.slow)])
def test_a_view_shows_exactly_the_transactions_that_it_names(
    server: PostgreSqlServer, version: int, connection: psycopg.Connection[Any], reads: int
) -> None:
    if reads > 300 and version != 17:
        pytest.skip("long trials are for one version")
    connection.execute("DROP TABLE IF EXISTS public.seen")
    connection.execute("CREATE TABLE public.seen (id bigint PRIMARY KEY)")
    options = PostgreSqlOptions(
        type="postgresql", host=server.host, port=server.port, database=server.database, user=server.user,
        password=Secret(server.password),
    )  # fmt: skip
    schema = table_of(connection, TableId("public", "seen")).schema
    ended, most = threading.Event(), 0
    writers = [threading.Thread(target=_write, args=(server, seed, ended)) for seed in range(WRITERS)]
    reader = PostgreSqlChunkReader(options, "all", DEFAULT_TYPES)
    for one in writers:
        one.start()
    views: list[tuple[XidSet, set[int], int]] = []
    try:
        [(first,)] = connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchall()
        limit = time.monotonic() + TRIAL_S
        while len(views) < reads and time.monotonic() < limit:
            lowest = max(first, most - 200)
            read = reader.read(schema, Chunk(schema.table, 0, (str(lowest),), None))
            shown = {row["id"] for batch in read for row in batch.to_pylist()}
            low = XidSet(json.loads(json.dumps(read.result.watermarks.to_json()))["low"])
            most = max(shown, default=most)
            views.append((low, shown, lowest))
    finally:
        ended.set()
        for one in writers:
            one.join()
        reader.close()
    query = "SELECT id FROM public.seen WHERE id > 0 ORDER BY id"
    committed = [id for (id,) in connection.execute(query).fetchall()]
    differed = 0
    for low, shown, lowest in views:
        start = bisect_left(committed, lowest)
        near = set(committed[start : start + len(shown) + LATER])
        assert {id for id in near if str(id) in low} == shown
        differed += near != shown
    print(f"{len(views)} reads")
    assert len(views) > min(reads, 1000) / 2
    assert differed > len(views) / 2, "the writers have not written between the reads"


def test_a_position_behind_a_page_header_is_where_the_last_record_ends() -> None:
    block, segment = 8192, 16 << 20
    assert last_byte(segment + 40, block, segment) == segment
    assert last_byte(segment + block + 24, block, segment) == segment + block
    for end in (segment + block + 40, segment + 64, segment + block + 32, segment - 8):
        assert last_byte(end, block, segment) == end


def test_a_log_that_ends_with_a_file_is_reached(
    server: PostgreSqlServer, connection: psycopg.Connection[Any]
) -> None:
    """After `pg_switch_wal` the next record's position is behind a header that is not written yet."""
    segment = 16 << 20
    for _ in range(50):  # until nobody else writes in between
        connection.execute("SELECT pg_switch_wal()")
        [(inserted, flushed)] = connection.execute(
            "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn, pg_current_wal_flush_lsn() - '0/0'::pg_lsn"
        ).fetchall()
        if int(inserted) % segment == 40:
            assert last_byte(int(inserted), 8192, segment) <= int(flushed) < int(inserted)
            return
        connection.execute("SELECT pg_logical_emit_message(true, 'test', 'x')")
    raise AssertionError("the log never ended with a file")
