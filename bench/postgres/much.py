"""Much of something in PostgreSQL: one large transaction, many tables, many partitions. And what the server
keeps of its log for a receiver whose targets are away.

The receiver's peak memory is compared with that of a sixteenth of the same: it is flat if it hardly grows.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from bench import measure
from bench.latency.changes import DEFINITION, ROWS_BEFORE, TABLE, Changes
from bench.lines import Line
from bench.postgres.place import PUBLICATION, SETTINGS, pipeline_file, position
from penstock import config as configuration
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment_format import lsn_position
from penstock.testing.postgresql_shop import connected
from penstock.testing.servers.postgresql import PostgreSqlServer

MEMORY, KEPT = "memory", "kept"
GIB, TABLES = 5.0, 10_000
"""At full size: of the transaction; tables, and partitions."""
SHARE = 16
GROWTH_GOAL = 1.5
KEPT_GOAL_MB = 20.0
KEPT_MINUTES = 2.0
"""The server looks every 15 s for what it need not keep any more."""
_ROW_BYTES = 1900
"""Less than what the server compresses or stores apart."""
_STATEMENT_ROWS = 100_000
_CREATE_ROWS = 500
"""Tables that one transaction creates, which needs a lock for each."""
_TIMEOUT_S = 1200
_SAMPLE_S = 0.5
_SLOT = "bench_much"
_KEPT = """
SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::int8,
       pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::int8
FROM pg_replication_slots WHERE slot_name = %s
"""


def memory_lines(scale: float, folder: Path) -> Iterator[Line]:
    size, tables = int(GIB * scale * 1024**3), max(SHARE, int(TABLES * scale))
    mib = size / 1024**2
    yield from _grown(folder, f"transaction of {mib:,.0f} MiB", size, _transaction)
    yield from _grown(folder, f"a row in each of {tables:,} tables", tables, _tables)
    yield from _grown(folder, f"a row in each of {tables:,} partitions", tables, _partitions)


def _grown(
    folder: Path, what: str, much: int, write: Callable[[psycopg.Connection[Any], int, bool], None]
) -> Iterator[Line]:
    small, large = [_received(folder, one, write) for one in (much // SHARE, much)]
    yield Line(MEMORY, f"{what}: received in", large["wall_s"], "s")
    yield Line(MEMORY, "... peak memory of the receiver", large["rss_mb"], "MB")
    yield Line(MEMORY, "... the same of a sixteenth", small["rss_mb"], "MB")
    yield Line(MEMORY, "... growth", large["rss_mb"] / small["rss_mb"], "times", GROWTH_GOAL)


def _received(
    folder: Path, much: int, write: Callable[[psycopg.Connection[Any], int, bool], None]
) -> dict[str, float]:
    """What is written is in the log when the receiver starts. What must be there before is not in it."""
    home = Path(tempfile.mkdtemp(dir=folder))
    settings = {**SETTINGS, "max_locks_per_transaction": "1024"}
    with PostgreSqlServer(settings=settings, folder=home) as server, connected(server) as sql:
        write(sql, much, True)
        options = "publish_via_partition_root = true"
        sql.execute(f"CREATE PUBLICATION {PUBLICATION} FOR ALL TABLES WITH ({options})".encode())
        sql.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (_SLOT,))
        write(sql, much, False)
        file = pipeline_file(server, home / "pipeline", ["public.*"], slot=_SLOT)
        command = measure.program("bench.programs.receive", file, lsn_position(position(sql)), _TIMEOUT_S)
        return measure.run(command, timeout_s=_TIMEOUT_S + 60, sample_ms=500).report


def _transaction(sql: psycopg.Connection[Any], size: int, is_before: bool) -> None:
    if is_before:
        sql.execute("CREATE TABLE huge (id bigint PRIMARY KEY, v text NOT NULL)")
        return
    rows = size // _ROW_BYTES
    with sql.transaction():
        for first in range(1, rows + 1, _STATEMENT_ROWS):
            last = min(first + _STATEMENT_ROWS - 1, rows)
            values = f"n, repeat(chr(97 + n % 26), {_ROW_BYTES})"
            sql.execute(f"INSERT INTO huge SELECT {values} FROM generate_series({first}, {last}) n".encode())


def _tables(sql: psycopg.Connection[Any], count: int, is_before: bool) -> None:
    create = "CREATE TABLE t{n} (id bigint PRIMARY KEY, a int, b text, c timestamp, d numeric(12,2))"
    _each(sql, count, create if is_before else "INSERT INTO t{n} VALUES (1, 2, 'three', now(), 5)")


def _partitions(sql: psycopg.Connection[Any], count: int, is_before: bool) -> None:
    if not is_before:
        _each(sql, count, "INSERT INTO parted VALUES ({n}, 'row')")
        return
    sql.execute("CREATE TABLE parted (id bigint PRIMARY KEY, v text) PARTITION BY RANGE (id)")
    _each(sql, count, "CREATE TABLE part{n} PARTITION OF parted FOR VALUES FROM ({n}) TO ({n} + 1)")


def _each(sql: psycopg.Connection[Any], count: int, statement: str) -> None:
    for first in range(0, count, _CREATE_ROWS):
        numbers = range(first, min(first + _CREATE_ROWS, count))
        sql.execute(";".join(statement.format(n=number) for number in numbers).encode())


def kept_lines(minutes: float, folder: Path) -> Iterator[Line]:
    """A receiver without a reader: nothing but the receiver reads the relay log."""
    home = Path(tempfile.mkdtemp(dir=folder))
    seconds = max(20.0, minutes * 60)
    with PostgreSqlServer(settings=SETTINGS) as server, connected(server) as sql:
        sql.execute(f"CREATE SCHEMA {TABLE.partition('.')[0]}".encode())
        sql.execute(DEFINITION.encode())
        rows = f"SELECT n, 0, 0, 'row ' || n FROM generate_series(0, {ROWS_BEFORE - 1}) n"
        sql.execute(f"INSERT INTO {TABLE} {rows}".encode())
        sql.execute(f"CREATE PUBLICATION {PUBLICATION} FOR ALL TABLES".encode())
        file = pipeline_file(server, home / "pipeline", [TABLE], slot=_SLOT)
        config = configuration.load(file)
        with _receiver(file):
            _wait_for(lambda: RelayLog.exists(config.relay_log_path))
            changes, start = Changes(config.source), position(sql)
            kept = confirmed = 0
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                time.sleep(_SAMPLE_S)
                row = sql.execute(_KEPT, (_SLOT,)).fetchone()
                assert row is not None
                kept, confirmed = max(kept, row[0]), max(confirmed, row[1])
            changes.stop()
            written = position(sql) - start
    yield Line(KEPT, f"WAL written in {seconds:.0f} s", written / 1e6, "MB")
    yield Line(KEPT, "WAL kept for the slot, at most, no target there", kept / 1e6, "MB", KEPT_GOAL_MB)
    yield Line(KEPT, "... not confirmed", confirmed / 1e6, "MB")


@contextlib.contextmanager
def _receiver(file: Path) -> Iterator[None]:
    process = subprocess.Popen(measure.program("penstock", "receive", file), env=measure.environment())
    try:
        yield
        if process.poll() is not None:
            raise measure.RunFailed(f"the receiver ended with code {process.returncode}")
    finally:
        process.terminate()
        process.wait(60)


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise measure.RunFailed("the receiver has not begun within 60 s")
        time.sleep(0.1)
