"""How many rows a second the sinks for databases take: `python -m bench.sinks [ROWS]`.

Rows with 15 columns are appended to an empty table, and then merged: every row is updated. The servers are
private ones on this machine, with their own durability (PostgreSQL without fsync, MySQL and Valkey as in
tests), so the figures are about the way to them. No Spark and no decoding is in them.
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

from penstock.model.change import COMMIT_TIMESTAMP, DELETED, SEQUENCE
from penstock.model.schema import Column, TableId, TableSchema
from penstock.secret import Secret
from penstock.sinks import registry
from penstock.sinks.base import Commit, TableSink, table_sink
from penstock.sinks.redis.registration import RedisOptions
from penstock.sinks.rows import Newer, Rows
from penstock.sinks.sql.registration import JdbcOptions
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
        columns[COMMIT_TIMESTAMP] = columns["seen"]
        yield pa.RecordBatch.from_pydict(columns)


def rows_of(rows: int, sequence: int) -> Rows:
    made = list(batches(rows, sequence))

    def frame() -> Any:
        raise AssertionError("the sink started Spark")

    return Rows(frame, Newer(lambda: iter(made)))


def measured(write: Callable[[], bool], rows: int, server: int | None) -> str:
    """Rows a second, and CPU seconds per million rows of this process and of the server."""

    def cpu(process: psutil.Process) -> float:
        """Of a server with its sessions' processes."""
        every = [process] if process == own else [process, *process.children(recursive=True)]
        return float(sum(sum(one.cpu_times()[:2]) for one in every))

    own, theirs = psutil.Process(), None if server is None else psutil.Process(server)
    before = cpu(own), 0.0 if theirs is None else cpu(theirs)
    started = time.monotonic()
    assert write()
    seconds = time.monotonic() - started
    used = [f"{(cpu(own) - before[0]) * 1e6 / rows:.1f}"]
    used.append("-" if theirs is None else f"{(cpu(theirs) - before[1]) * 1e6 / rows:.1f}")
    return f"{rows / seconds:>10,.0f} rows/s   CPU-s per million: {used[0]:>6} here, {used[1]:>6} there"


def bench(name: str, options: Any, rows: int, server: int | None) -> None:
    pipeline = str(uuid.uuid4())
    sink: TableSink = table_sink(registry.open_sink(options, None, pipeline))  # type: ignore[arg-type]
    first = next(batches(1, 1))
    fields = [field for field in first.schema if not field.name.startswith("_")]
    schema = TableSchema(TABLE, tuple(Column(field.name, "varchar") for field in fields), ("id",))
    sink.create(schema, pa.schema(fields))
    old, new = rows_of(rows, 10), rows_of(rows, 20)
    print(f"{name:<12} append {measured(lambda: sink.append(TABLE, old, Commit(pipeline, 1)), rows, server)}")
    merge = measured(lambda: sink.merge(TABLE, new, ("id",), Commit(pipeline, 2)), rows, server)
    print(f"{name:<12} merge  {merge}", flush=True)
    sink.close()


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
        bench("sqlite", JdbcOptions(type="jdbc", url=f"sqlite://{folder}/t.db"), rows, None)
        with servers.postgresql() as postgresql:
            account = {"user": postgresql.user, "password": Secret(postgresql.password)}
            options = JdbcOptions(type="jdbc", url=postgresql.url, **account)
            bench("postgresql", options, rows, postgresql.pid)
        for name in ("mysql80", "mariadb1011"):
            with servers.FLAVORS[name]() as mysql:
                options = JdbcOptions(
                    type="jdbc",
                    url=f"mysql://{mysql.host}:{mysql.port}",
                    user=mysql.user,
                    password=Secret(mysql.password),
                )
                bench(name, options, rows, mysql.pid)
        with servers.valkey({"appendfsync": "everysec"}) as valkey:
            for value in ("hash", "json"):
                redis = RedisOptions(
                    type="redis", url=valkey.url, password=Secret(valkey.password),
                    value=value, key=f"{value}:{{database}}:{{table}}:{{key}}", control=value,
                )  # fmt: skip
                bench(f"redis {value}", redis, rows, valkey.pid)


if __name__ == "__main__":
    main()
