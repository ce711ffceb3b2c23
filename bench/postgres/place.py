"""A private PostgreSQL with a log to read: the table `orders`, its changes, and a slot that keeps them all.

Everybody reads the same changes, each by a copy of that slot, so each begins where the log does. The last
transaction is one row of the table `tail`, at which whoever reads the log stops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import yaml

from bench.workload import Counts, thousands
from penstock.sources.postgresql.log_position import lsn_of
from penstock.testing.postgresql_shop import connected
from penstock.testing.servers.postgresql import PostgreSqlServer

TABLE, TAIL = "orders", "tail"
PUBLICATION = "bench"
KEPT = "bench_kept"
"""The slot that keeps the log for all."""
TAIL_TEXT = "the log of the benchmark ends here"
ROWS = 600_000
"""Inserted at full size. Of the blocks of rows every second one is updated, then every tenth one deleted."""
BLOCK_ROWS = 100
"""Of one transaction."""
SETTINGS = {
    "wal_level": "logical", "max_wal_size": "16GB", "shared_buffers": "512MB", "max_replication_slots": "20",
    "max_wal_senders": "20",
}  # fmt: skip
DEFINITION = f"""
CREATE TYPE order_status AS ENUM ('new', 'paid', 'packed', 'sent', 'returned', 'closed');
CREATE TABLE {TABLE} (
  id bigint PRIMARY KEY, customer_id bigint NOT NULL, status order_status NOT NULL,
  amount numeric(12,2) NOT NULL, quantity int NOT NULL, priority smallint, weight real,
  score double precision NOT NULL, due date, created timestamp NOT NULL, changed timestamptz,
  name varchar(80) NOT NULL, note text, attributes jsonb, token bytea NOT NULL);
CREATE TABLE {TAIL} (id int PRIMARY KEY, note text NOT NULL);
CREATE PUBLICATION {PUBLICATION} FOR ALL TABLES
"""
_ROW = """n, n % 100003, (enum_range(NULL::order_status))[n % 6 + 1], n % 99999999 / 100.0, n % 977,
CASE WHEN n % 11 > 0 THEN n % 100 END, n / 64.0, n / 7e0, DATE '2024-01-01' + n % 900,
TIMESTAMP '2024-02-29 23:59:59.000001' + n * INTERVAL '1 s',
CASE WHEN n % 5 > 0 THEN TIMESTAMPTZ '2024-03-31 00:30:00.125Z' + n * INTERVAL '1 s' END,
'Größe ' || n % 1000 || ' für Kunde ' || n, CASE WHEN n % 3 = 0 THEN repeat('note ', n % 30) END,
jsonb_build_object('size', n % 40, 'tags', '["a", "b"]'::jsonb), decode(md5(n::text), 'hex')"""
_CHANGE = "status = 'sent', amount = amount + 1, quantity = quantity + 1, changed = now()"


@dataclass
class Place:
    """`end`: the position behind the tail."""

    server: PostgreSqlServer
    counts: Counts
    end: int
    log_bytes: int
    folder: Path
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def about(self) -> str:
        counts = self.counts
        return (
            f"The log: 15 columns of mixed types, in transactions of {BLOCK_ROWS} rows; {counts.changes:,} "
            f"changes ({counts.inserts:,} inserts, {counts.updates:,} updates, {counts.deletes:,} deletes), "
            f"{self.log_bytes / 1e6:.0f} MB of WAL, PostgreSQL "
            f"{PostgreSqlServer.RELEASES[self.server.version]}; {counts.rows_left:,} rows left."
        )

    @contextmanager
    def slot(self) -> Iterator[str]:
        """A slot of its own with the whole log."""
        name = f"bench_{next(self._numbers)}"
        with connected(self.server) as sql:
            sql.execute("SELECT pg_copy_logical_replication_slot(%s, %s)", (KEPT, name))
            try:
                yield name
            finally:
                drop(sql, name)

    def pipeline_file(self, slot: str | None) -> Path:
        return pipeline_file(
            self.server, self.folder / f"pipeline-{next(self._numbers)}", [f"public.{TABLE}"], slot=slot
        )


def pipeline_file(
    server: PostgreSqlServer,
    home: Path,
    tables: Sequence[str],
    *,
    slot: str | None = None,
    sections: dict[str, Any] | None = None,
) -> Path:
    """A pipeline in a folder of its own."""
    home.mkdir()
    document = {
        "name": "bench",
        "source": {
            "type": "postgresql", "host": server.host, "port": server.port, "database": server.database,
            "user": server.user, "password": server.password, "tls": "disable", "publication": PUBLICATION,
            **({"slot": slot} if slot else {}),
        },
        "tables": list(tables),
        "sink": {"type": "iceberg", "path": str(home / "warehouse")},
        "state": str(home / "state"),
        "relay_log": {"path": str(home / "relay")},
        **(sections or {}),
    }  # fmt: skip
    path = home / "pipeline.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def drop(sql: psycopg.Connection[Any], slot: str) -> None:
    """Ends whoever still reads by the slot, and removes it."""
    sql.execute(
        "SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots WHERE slot_name = %s",
        (slot,),
    )
    sql.execute("SELECT pg_drop_replication_slot(%s)", (slot,))


@contextmanager
def running(scale: float, folder: Path) -> Iterator[Place]:
    """A server whose log has the changes. It takes half a minute at full size."""
    with PostgreSqlServer(settings=SETTINGS) as server:
        with connected(server) as sql:
            sql.execute(DEFINITION.encode())
            sql.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (KEPT,))
            start = position(sql)
            counts = _write(sql, thousands(scale, ROWS))
            sql.execute(f"INSERT INTO {TAIL} VALUES (1, '{TAIL_TEXT}')".encode())
            end = position(sql)
            sql.execute("VACUUM ANALYZE")
            sql.execute("CHECKPOINT")
        yield Place(server, counts, end, end - start, folder)


def position(sql: psycopg.Connection[Any]) -> int:
    """The end of what is durable in the server's log."""
    row = sql.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
    assert row is not None
    return lsn_of(row[0])


def _write(sql: psycopg.Connection[Any], rows: int) -> Counts:
    """As many as the server says."""

    def blocks(step: int, statement: str) -> int:
        firsts = range(1, rows + 1, step * BLOCK_ROWS)
        texts = (statement.format(first=first, last=first + BLOCK_ROWS - 1) for first in firsts)
        return sum(sql.execute(text.encode()).rowcount for text in texts)

    where = "WHERE id BETWEEN {first} AND {last}"
    return Counts(
        inserts=blocks(1, f"INSERT INTO {TABLE} SELECT {_ROW} FROM generate_series({{first}}, {{last}}) n"),
        updates=blocks(2, f"UPDATE {TABLE} SET {_CHANGE} {where}"),
        deletes=blocks(10, f"DELETE FROM {TABLE} {where}"),
    )
