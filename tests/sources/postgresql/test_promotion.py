"""A server whose log goes on under another timeline, as that of a standby that becomes the primary."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.sources.postgresql.pg_log import connected, options_at, table_of
from tests.sources.postgresql.receiving import Receiving, changes_of, receive

from penstock.model.chunk import Chunk
from penstock.model.offset import LogRange
from penstock.model.schema import DEFAULT_TYPES, TableId
from penstock.serve.batches import Place
from penstock.serve.source_places import of_place, to_place
from penstock.sources.chunks import ReadResult
from penstock.sources.postgresql.chunk_reader import PostgreSqlChunkReader
from penstock.testing.servers.postgresql import PostgreSqlServer

pytestmark = pytest.mark.slow

TABLE = TableId("public", "t")


@pytest.fixture
def own_server(version: int) -> Iterator[PostgreSqlServer]:
    with PostgreSqlServer(settings={"wal_level": "logical"}, version=version) as server:
        with connected(server) as connection:
            connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
            connection.execute("CREATE PUBLICATION penstock_p FOR TABLE t")
        yield server


def _promote(server: PostgreSqlServer) -> psycopg.Connection[Any]:
    """Starts a stopped server as a standby without a primary, and makes it one."""
    (server.folder / "data" / "standby.signal").touch()
    server.start()
    connection = connected(server)
    assert connection.execute("SELECT pg_promote()").fetchone() == (True,)
    connection.execute("CHECKPOINT")
    assert connection.execute("SELECT timeline_id FROM pg_control_checkpoint()").fetchone() != (1,)
    return connection


def test_the_log_goes_on_after_a_promotion(own_server: PostgreSqlServer, tmp_path: Path) -> None:
    receiving = Receiving(own_server, tmp_path, "p")
    with receiving.started():
        with connected(own_server) as connection:
            receiving.wait_until_streaming()
            connection.execute("INSERT INTO t VALUES (1)")
            receiving.wait_until_received(connection)
            before, end = _read(own_server), receiving.log().end
            place = of_place(receiving.log(), Place(end))
        own_server.stop()
        with _promote(own_server) as connection:
            connection.execute("INSERT INTO t VALUES (2)")
            receiving.wait_until_received(connection)
            assert [row["id"] for row in changes_of(receiving, connection, TABLE)] == [1, 2]
        log, after = receiving.log(), _read(own_server)
    # A chunk that was read before may have shown what the promotion has lost.
    assert log.server_uuid_at(end) == before.server_uuid != after.server_uuid == log.server_uuid_at(log.end)
    found = to_place(log, replace(place, relay_log="another")).offset
    assert end <= found < log.end, "subscribers find their place from before it"
    assert not log.tables(LogRange(end, found), exact=True)


def _read(server: PostgreSqlServer) -> ReadResult:
    with connected(server) as connection:
        schema = table_of(connection, TABLE, "penstock_p").schema
    with closing(PostgreSqlChunkReader(options_at(server), "penstock_p", DEFAULT_TYPES)) as reader:
        read = reader.read(schema, Chunk(TABLE, 0, None, None))
        assert sum(batch.num_rows for batch in read) > 0
        return read.result


def test_a_primary_that_lacks_what_the_log_has_is_refused(
    own_server: PostgreSqlServer, tmp_path: Path
) -> None:
    receiving, data = Receiving(own_server, tmp_path, "p"), own_server.folder / "data"
    with receiving.started(), connected(own_server) as connection:
        receiving.wait_until_streaming()
        connection.execute("INSERT INTO t VALUES (1)")
        receiving.wait_until_received(connection)
    own_server.stop()
    shutil.copytree(data, tmp_path / "standby")
    own_server.start()
    with receiving.started(), connected(own_server) as connection:
        connection.execute("INSERT INTO t VALUES (2)")
        receiving.wait_until_received(connection)
    own_server.stop()
    shutil.rmtree(data)
    shutil.move(tmp_path / "standby", data)
    with _promote(own_server) as connection:
        connection.execute("INSERT INTO t SELECT generate_series(10, 50000)")  # beyond the end of the log
        done = receive(receiving)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert "became the primary without the rest" in done.stderr


def _restored(server: PostgreSqlServer, copy: Path) -> None:
    """The server is killed, and has the files of the copy."""
    server.kill9()
    shutil.rmtree(server.folder / "data")
    shutil.copytree(copy, server.folder / "data")
    server.start()


def test_an_older_copy_of_the_server_is_refused_though_it_has_written_more(
    own_server: PostgreSqlServer, tmp_path: Path
) -> None:
    receiving = Receiving(own_server, tmp_path, "p")
    with receiving.started(), connected(own_server) as connection:
        receiving.wait_until_streaming()
        connection.execute("INSERT INTO t VALUES (1)")
        receiving.wait_until_received(connection)
    own_server.stop()
    shutil.copytree(own_server.folder / "data", tmp_path / "copy")
    own_server.start()
    with receiving.started(), connected(own_server) as connection:
        connection.execute("INSERT INTO t VALUES (2)")
        receiving.wait_until_received(connection)
    (end,) = receiving.log().position_at(receiving.log().end).order
    for lost, other in (
        ("It has transaction", "INSERT INTO t VALUES (3)"),
        ("It does not have transaction", "CREATE TABLE u (id int)"),
    ):
        _restored(own_server, tmp_path / "copy")
        with connected(own_server) as connection:
            connection.execute(other.encode())
            connection.execute("CREATE TABLE filler (id int)")
            connection.execute("INSERT INTO filler SELECT generate_series(1, 50000)")
            connection.execute("INSERT INTO t VALUES (4)")
            [(now,)] = connection.execute("SELECT pg_current_wal_flush_lsn() - '0/0'").fetchall()
            assert now > end  # positions alone show nothing
            done = receive(receiving)
        assert done.returncode != 0 and "Traceback" not in done.stderr
        assert lost in done.stderr and "put back to an older copy" in done.stderr, done.stderr


def test_what_a_server_sends_again_after_a_crash_is_in_the_log_once(
    own_server: PostgreSqlServer, tmp_path: Path
) -> None:
    receiving = Receiving(own_server, tmp_path, "p")
    with connected(own_server) as connection:
        connection.execute("CHECKPOINT")
    for first in (1, 10, 20):
        with receiving.started(), connected(own_server) as connection:
            receiving.wait_until_streaming()
            for id in range(first, first + 5):
                connection.execute(f"INSERT INTO t VALUES ({id})")
            receiving.wait_until_received(connection)
        own_server.kill9()
        own_server.start()
        with connected(own_server) as connection:  # the slot has forgotten what it had confirmed
            (end,) = receiving.log().position_at(receiving.log().end).order
            [(kept,)] = connection.execute(
                "SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots"
            ).fetchall()
            assert kept < end
    with receiving.started(), connected(own_server) as connection:
        receiving.wait_until_received(connection)
        found = [row["id"] for row in changes_of(receiving, connection, TABLE)]
    assert found == [*range(1, 6), *range(10, 15), *range(20, 25)]
