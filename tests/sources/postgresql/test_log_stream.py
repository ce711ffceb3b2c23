"""The connection over which the log comes, with TLS and without: its messages, and how it ends."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from tests.sinks.certificates import certificate
from tests.sources.postgresql.pg_log import PgLog, connected, table_of

from penstock.errors import TransientError
from penstock.model.schema import TableId
from penstock.sources.postgresql.log_stream import LibpqStream, LogStream, PlainStream
from penstock.testing.servers.postgresql import PostgreSqlServer

TABLE = TableId("public", "streamed")
LARGE = 5_000_000
"""Characters of a value that is more than what is taken at once."""


@contextmanager
def running(folder: Path, *, tls: bool) -> Iterator[PostgreSqlServer]:
    settings = {"wal_level": "logical"}
    if tls:
        file, key = certificate(folder)
        key.chmod(0o600)  # the server demands it
        settings |= {
            "ssl": "on", "ssl_cert_file": str(file), "ssl_key_file": str(key)
        }  # fmt: skip
    with PostgreSqlServer(settings=settings) as server:
        with connected(server) as sql:
            sql.execute(f"CREATE TABLE {TABLE} (id int PRIMARY KEY, v text NOT NULL)")
            sql.execute('CREATE PUBLICATION "all" FOR ALL TABLES')
        yield server


@pytest.mark.parametrize(("tls", "kind"), [(False, PlainStream), (True, LibpqStream)])
def test_rows_of_all_sizes_come_and_the_servers_last_word_is_told(
    tmp_path: Path, tls: bool, kind: type[LogStream]
) -> None:
    with running(tmp_path, tls=tls) as server, connected(server) as sql:
        log = PgLog(server, sql, "streamed")
        sizes = [0, 1, 100, 8_000, LARGE, 3, *itertools.repeat(50, 5_000)]
        sql.cursor().executemany(f"INSERT INTO {TABLE} SELECT %s, repeat('x', %s)", list(enumerate(sizes)))
        segment = log.segment(tmp_path / "0.pgoutput")
        assert isinstance(log.replication._stream, kind)
        rows = segment.changes(table_of(sql, TABLE).schema.to_json())
        assert [(row["id"], len(row["v"])) for row in rows] == list(enumerate(sizes))
        sql.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots")
        with pytest.raises(TransientError, match="terminating connection due to administrator command"):
            for _ in range(100):
                log.replication.take(1.0, 1 << 20)
        log.close()


def test_a_slot_that_is_in_use_is_an_error_that_passes(
    server: PostgreSqlServer, connection: psycopg.Connection[object]
) -> None:
    log = PgLog(server, connection, "twice")
    try:
        log.replication.start("twice", "all", log.start, binary=True)
        other = PgLog(server, connection, "other")
        with pytest.raises(TransientError, match=r"twice of .* is in use"):
            other.replication.start("twice", "all", log.start, binary=True)
        other.close()
    finally:
        log.close()
