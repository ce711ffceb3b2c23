"""How many rows a second the sinks for databases take: `python -m bench.sinks [ROWS [NAME…]]`.

Rows with 15 columns are appended to an empty table, and then merged: every row is updated. The servers are
private ones on this machine, with their own durability (PostgreSQL without fsync, MySQL and Valkey as in
tests), so the figures are about the way to them. No Spark and no decoding is in them. `peers`: what people
use now, into the same PostgreSQL (`sinks_peers.py`).
"""

from __future__ import annotations

import datetime
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from bench import sinks_peers
from penstock.config import SparkConfig
from penstock.model.change import DELETED, SEQUENCE
from penstock.model.schema import Column, TableId, TableSchema
from penstock.secret import Secret
from penstock.sinks import registry
from penstock.sinks.base import Commit, TableSink, table_sink
from penstock.sinks.clickhouse.options import ClickHouseOptions
from penstock.sinks.hbase.options import HBaseOptions
from penstock.sinks.opensearch.options import OpenSearchOptions
from penstock.sinks.redis.options import RedisOptions
from penstock.sinks.rows import Newer, Rows
from penstock.sinks.sql.options import JdbcOptions
from penstock.spark.session import build_session
from penstock.testing import servers

BATCH_ROWS = 20_000
"""As the decoder makes them."""
TABLE = TableId("shop", "orders")


def batches(rows: int, sequence: int) -> Iterator[pa.RecordBatch]:
    now = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)
    for start in range(0, rows, BATCH_ROWS):
        ids = list(range(start, min(rows, start + BATCH_ROWS)))
        count = len(ids)
        columns: dict[str, pa.Array] = {"id": pa.array(ids, pa.int64())}
        for number in range(4):
            columns[f"number_{number}"] = pa.array([one * 7 + number for one in ids], pa.int64())
            columns[f"text_{number}"] = pa.array([f"text {one} of column {number}" for one in ids])
        columns["price"] = pa.array([Decimal(one) / 100 for one in ids], pa.decimal128(12, 2))
        columns["weight"] = pa.array([one / 3 for one in ids], pa.float64())
        columns["day"] = pa.array([now.date()] * count, pa.date32())
        columns["at"] = pa.array([now] * count, pa.timestamp("us"))
        columns["seen"] = pa.array([now] * count, pa.timestamp("us", "UTC"))
        columns["flag"] = pa.array([bool(one % 2) for one in ids])
        columns[DELETED] = pa.array([False] * count)
        columns[SEQUENCE] = pa.array([sequence] * count, pa.int64())
        yield pa.RecordBatch.from_pydict(columns)


def rows_of(rows: int, sequence: int) -> Rows:
    made = list(batches(rows, sequence))

    def frame() -> Any:
        raise AssertionError("the sink started Spark")

    return Rows(frame, Newer(lambda: iter(made)))


def measured(write: Callable[[], bool], rows: int, server: int | None, jvm: int | None = None) -> str:
    """Rows a second, and CPU seconds per million rows of this process (with its JVM) and of the server."""

    def cpu(process: psutil.Process) -> float:
        """Of a server with its sessions' processes."""
        every = [process] if process == own else [process, *process.children(recursive=True)]
        return float(sum(sum(one.cpu_times()[:2]) for one in every))

    own, theirs = psutil.Process(), None if server is None else psutil.Process(server)
    client = None if jvm is None else psutil.Process(jvm)

    def here() -> float:
        return cpu(own) + (0.0 if client is None else cpu(client))

    before = here(), 0.0 if theirs is None else cpu(theirs)
    started = time.monotonic()
    assert write()
    seconds = time.monotonic() - started
    used = [f"{(here() - before[0]) * 1e6 / rows:.1f}"]
    used.append("-" if theirs is None else f"{(cpu(theirs) - before[1]) * 1e6 / rows:.1f}")
    return f"{rows / seconds:>10,.0f} rows/s   CPU-s per million: {used[0]:>6} here, {used[1]:>6} there"


def bench(name: str, options: Any, rows: int, server: int | None, spark: Any = None) -> None:
    pipeline = str(uuid.uuid4())
    sink: TableSink = table_sink(registry.open_sink(options, spark, pipeline))
    first = next(batches(1, 1))
    fields = [field for field in first.schema if not field.name.startswith("_")]
    schema = TableSchema(TABLE, tuple(Column(field.name, "varchar") for field in fields), ("id",))
    sink.create(schema, pa.schema(fields))
    old, new = rows_of(rows, 10), rows_of(rows, 20)
    jvm = None if spark is None else int(spark._jvm.java.lang.ProcessHandle.current().pid())
    append = measured(lambda: sink.append(TABLE, old, Commit(pipeline, 1)), rows, server, jvm)
    print(f"{name:<12} append {append}")
    merge = measured(lambda: sink.merge(TABLE, new, ("id",), Commit(pipeline, 2)), rows, server, jvm)
    print(f"{name:<12} merge  {merge}", flush=True)
    sink.close()


def sqlite(rows: int, stack: ExitStack) -> None:
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-"))
    bench("sqlite", JdbcOptions(type="jdbc", url=f"sqlite://{folder}/t.db"), rows, None)


def duckdb(rows: int, stack: ExitStack) -> None:
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-"))
    bench("duckdb", JdbcOptions(type="jdbc", url=f"duckdb://{folder}/t.duckdb"), rows, None)


def postgresql(rows: int, stack: ExitStack, *, peers: bool = False) -> None:
    server = stack.enter_context(servers.postgresql())
    account = {"user": server.user, "password": Secret(server.password)}
    bench("postgresql", JdbcOptions(type="jdbc", url=server.url, **account), rows, server.pid)
    if peers:
        sinks_peers.bench(server, [list(batches(rows, 10)), list(batches(rows, 20))])


def mysql(rows: int, stack: ExitStack) -> None:
    for name in ("mysql80", "mariadb1011"):
        server = stack.enter_context(servers.FLAVORS[name]())
        account = {"user": server.user, "password": Secret(server.password)}
        url = f"mysql://{server.host}:{server.port}"
        bench(name, JdbcOptions(type="jdbc", url=url, **account), rows, server.pid)


def redis(rows: int, stack: ExitStack) -> None:
    server = stack.enter_context(servers.valkey({"appendfsync": "everysec"}))
    for value in ("hash", "json"):
        options = RedisOptions(
            type="redis", url=server.url, password=Secret(server.password),
            value=value, key=f"{value}:{{database}}:{{table}}:{{key}}", control=value,
        )  # fmt: skip
        bench(f"redis {value}", options, rows, server.pid)


def opensearch(rows: int, stack: ExitStack) -> None:
    server = stack.enter_context(servers.opensearch())
    bench("opensearch", OpenSearchOptions(type="opensearch", url=server.url), rows, server.pid)


def clickhouse(rows: int, stack: ExitStack) -> None:
    server = stack.enter_context(servers.clickhouse())
    account = {"user": server.user, "password": Secret(server.password)}
    bench("clickhouse", ClickHouseOptions(type="clickhouse", url=server.url, **account), rows, server.pid)


def hbase(rows: int, stack: ExitStack) -> None:
    """With a Spark session, in whose JVM its client runs: that is counted as here."""
    server = stack.enter_context(servers.hbase())
    options = HBaseOptions(type="hbase", quorum=server.quorum)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
    spark = build_session(SparkConfig(master="local[1]"), options, folder)
    stack.callback(spark.stop)
    bench("hbase", options, rows, server.pid, spark)


def with_peers(rows: int, stack: ExitStack) -> None:
    postgresql(rows, stack, peers=True)


EVERY: dict[str, Callable[[int, ExitStack], None]] = {
    "sqlite": sqlite,
    "duckdb": duckdb,
    "peers": with_peers,
    "mysql": mysql,
    "redis": redis,
    "opensearch": opensearch,
    "clickhouse": clickhouse,
    "hbase": hbase,
}


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    for name in sys.argv[2:] or EVERY:
        with ExitStack() as stack:
            EVERY[name](rows, stack)


if __name__ == "__main__":
    main()
