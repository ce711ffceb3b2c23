"""What a chunk's view says of the log, while others write: exactly which transactions it shows."""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.sources.postgresql.pg_log import connected, options_at, table_of

from penstock._core import XidSet
from penstock.errors import InternalError, TransientError
from penstock.model.chunk import Chunk
from penstock.model.schema import DEFAULT_TYPES, TableId
from penstock.sources.postgresql.chunk_reader import PostgreSqlChunkReader
from penstock.sources.postgresql.log_position import last_byte, lsn_of
from penstock.sources.postgresql.window import PostgreSqlWindows
from penstock.testing.servers.postgresql import PostgreSqlServer

WRITERS = 4
READS = 300
CRASHES = 5
"""Attempts to crash before the log is written."""
TRIAL_S = 60.0
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


def test_a_chunk_shows_exactly_the_transactions_that_it_names(
    server: PostgreSqlServer, connection: psycopg.Connection[Any]
) -> None:
    """As it is read: `view_trial.py` looks at many more views."""
    connection.execute("DROP TABLE IF EXISTS public.seen")
    connection.execute("CREATE TABLE public.seen (id bigint PRIMARY KEY)")
    schema = table_of(connection, TableId("public", "seen")).schema
    ended, most = threading.Event(), 0
    writers = [threading.Thread(target=_write, args=(server, seed, ended)) for seed in range(WRITERS)]
    reader = PostgreSqlChunkReader(options_at(server), "all", DEFAULT_TYPES)
    for one in writers:
        one.start()
    views: list[tuple[XidSet, set[int], int]] = []
    try:
        [(first,)] = connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchall()
        limit = time.monotonic() + TRIAL_S
        while len(views) < READS and time.monotonic() < limit:
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
    assert len(views) > READS / 2
    assert differed > len(views) / 2, "the writers have not written between the reads"


@pytest.fixture
def lazy(version: int) -> Iterator[PostgreSqlServer]:
    """Commits without waiting for its log, which is written every ten seconds."""
    settings = {"synchronous_commit": "off", "wal_writer_delay": "10s", "wal_level": "logical"}
    with PostgreSqlServer(settings=settings, version=version) as server:
        with connected(server) as connection:
            connection.execute('CREATE PUBLICATION "all" FOR ALL TABLES')
            connection.execute("CREATE TABLE public.kept (id int PRIMARY KEY)")
            connection.execute("SELECT pg_switch_wal()")
            connection.execute("CHECKPOINT")
        yield server


def test_a_chunk_counts_only_if_what_it_saw_survives_a_crash(lazy: PostgreSqlServer) -> None:
    with connected(lazy) as connection:
        schema = table_of(connection, TableId("public", "kept")).schema
    whole, flushed = Chunk(schema.table, 0, None, None), "SELECT pg_current_wal_flush_lsn()::text"
    for number in range(1, CRASHES + 1):
        reader = PostgreSqlChunkReader(options_at(lazy), "all", DEFAULT_TYPES)
        with connected(lazy) as connection:
            connection.execute("INSERT INTO public.kept VALUES (%s)", (number,))
            read = reader.read(schema, whole)
            batches = iter(read)
            shown = {id for batch in itertools.islice(batches, 1) for id in batch.column(0).to_pylist()}
            assert number in shown
        lazy.kill9()
        with pytest.raises(TransientError):
            list(batches)
        with pytest.raises(InternalError):
            _ = read.result
        reader.close()
        lazy.start()
        with connected(lazy) as connection:
            left = {id for (id,) in connection.execute("SELECT id FROM public.kept")}
        if number not in left:
            break  # the chunk had shown a row that never was
    else:
        raise AssertionError("no crash took back a row that a chunk had shown")
    with connected(lazy) as connection:
        connection.execute("INSERT INTO public.kept VALUES (1000)")
        reader = PostgreSqlChunkReader(options_at(lazy), "all", DEFAULT_TYPES)
        read = reader.read(schema, whole)
        assert 1000 in [id for batch in read for id in batch.column(0).to_pylist()]
        [(text,)] = connection.execute(flushed.encode()).fetchall()
        reader.close()
    window = PostgreSqlWindows().of(read.result.watermarks)
    assert lsn_of(text) >= window.high, "the chunk counts before its log is durable"


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
