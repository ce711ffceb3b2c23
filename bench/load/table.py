"""The server that holds the large table: built once per number of rows and kept in the cache, as the log is,
in a data directory of its own.

The table is `bench.orders` with the ids 1 to rows, written in the order of its key, as an auto-increment
column does it. When `running` hands it out it is analysed, and all its pages are in the buffer pool.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench import workload
from bench.log import KeptServer
from penstock.errors import InternalError
from penstock.testing import artifacts, orders
from penstock.testing.servers import MySqlServer

ROWS = 5_000_000
ROWS_MIN = 1_000
ROWS_MAX = 100_000_000
TABLE = f"{workload.DATABASE}.{workload.TABLE}"
_INSERT_ROWS = 100_000
_ROW_BYTES_MAX = 600
"""Of the clustered index, with room to spare; the pool is made for that."""
_POOL_MB_MIN = 512
_FORMAT = 1
"""Of the kept data directory; raise it when what is built changes."""


@dataclass(frozen=True)
class LoadTable:
    """A running server with the table."""

    server: MySqlServer
    rows: int
    data_bytes: int
    """Size of the clustered index."""


def cache_name(rows: int) -> str:
    return f"bench/load-{rows}-{MySqlServer.release}-{_FORMAT}"


def options(rows: int) -> dict[str, object]:
    return {
        "binlog_row_metadata": "FULL",
        "binlog_expire_logs_seconds": 0,
        "innodb_buffer_pool_size": f"{max(_POOL_MB_MIN, rows * _ROW_BYTES_MAX // 1024**2)}M",
        "innodb_buffer_pool_dump_at_shutdown": "OFF",
        "innodb_buffer_pool_load_at_startup": "OFF",
    }


@contextlib.contextmanager
def running(rows: int) -> Iterator[LoadTable]:
    """The table on a private server, which is removed at the end. Each call starts from equal data."""
    kept = artifacts.entry(cache_name(rows), lambda target: _build(target, rows))

    class Server(KeptServer):
        template = kept

    with Server(options(rows)) as server:
        _warm(server)
        [[size]] = server.query(
            "SELECT data_length FROM information_schema.tables "
            f"WHERE table_schema = '{workload.DATABASE}' AND table_name = '{workload.TABLE}'"
        )
        yield LoadTable(server, rows, int(size))


def _build(target: Path, rows: int) -> None:
    """Fills `target` with the data directory of a server that has the table and was shut down cleanly."""
    with MySqlServer(options(rows)) as server:
        orders.create(server)
        server.execute(*workload.PEER_ACCOUNT)
        with server.connect() as connection, connection.cursor() as cursor:
            # The log has nothing to do with this part, and would be larger than the table.
            cursor.execute("SET SESSION sql_log_bin = 0, time_zone = '+00:00'")
            for first in range(1, rows + 1, _INSERT_ROWS):
                cursor.execute(orders.insert(min(_INSERT_ROWS, rows + 1 - first), first))
            cursor.execute(f"ANALYZE TABLE {TABLE}")
            cursor.fetchall()
        [found] = server.query(f"SELECT COUNT(*), MIN(id), MAX(id) FROM {TABLE}")
        if found != (rows, 1, rows):
            raise InternalError(f"{TABLE} has {found} (rows, first and last id) instead of {rows:,} rows.")
        server.stop()
        shutil.copytree(server.datadir, target, dirs_exist_ok=True)


def _warm(server: MySqlServer) -> None:
    """Reads every page; raises if reading them again still reads from disk."""
    for _ in range(2):
        before = _pages_read(server)
        server.query(f"SELECT SUM(quantity) FROM {TABLE}")
    if (again := _pages_read(server) - before) > 0:
        raise InternalError(f"The table does not fit into the buffer pool: {again} pages were read again.")


def _pages_read(server: MySqlServer) -> int:
    return int(server.query("SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_reads'")[0][1])
