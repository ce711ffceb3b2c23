"""What people write to PostgreSQL with now, on the rows of `sinks.py`: Debezium's JDBC sink, and Spark's JDBC
writer with an upsert after it.

Debezium's sink gets JSON messages with schemas, of rows alone, 500 at once, as Kafka Connect's consumer
gives them. Its first 5,000 are not counted. Reading them from a broker is not in the figures. Spark's writer
appends to a staging table from two tasks, and one INSERT … ON CONFLICT moves the rows; its first epoch is not
counted. Neither knows whether an epoch was written before.
"""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from bench import java
from bench.measure import RunFailed
from penstock.testing.servers import PostgreSqlServer

WARM_ROWS = 5_000
"""Java has compiled by then what it runs most."""
AT_ONCE = 500  # Kafka's default for a consumer


def bench(server: PostgreSqlServer, phases: Sequence[Sequence[pa.RecordBatch]]) -> None:
    """`phases`: the rows to insert into an empty table, and then the same rows with other values."""
    tables = [pa.Table.from_batches(one).drop_columns(["_penstock_deleted"]) for one in phases]
    debezium(server, tables)
    spark(server, tables)


def _say(who: str, phase: int, rows: int, seconds: float, own: float, theirs: float) -> None:
    what = ("append", "merge ")[phase]
    print(
        f"{who:<12} {what} {rows / seconds:>10,.0f} rows/s   CPU-s per million: "
        f"{own * 1e6 / rows:>6.1f} here, {theirs * 1e6 / rows:>6.1f} there",
        flush=True,
    )


def _server_cpu(server: PostgreSqlServer) -> float:
    """With its sessions, also those that have ended."""
    process = psutil.Process(server.pid)
    sessions = sum(sum(one.cpu_times()[:2]) for one in process.children(recursive=True))
    return float(sum(process.cpu_times()[:4]) + sessions)


# Debezium ---------------------------------------------------------------------------------------------------

_DATE, _MICROS = "io.debezium.time.Date", "io.debezium.time.MicroTimestamp"
_ZONED, _DECIMAL = "io.debezium.time.ZonedTimestamp", "org.apache.kafka.connect.data.Decimal"


def _field(field: pa.Field) -> dict[str, Any]:
    kind: dict[str, Any]
    if pa.types.is_int64(field.type):
        kind = {"type": "int64"}
    elif pa.types.is_string(field.type):
        kind = {"type": "string"}
    elif pa.types.is_boolean(field.type):
        kind = {"type": "boolean"}
    elif pa.types.is_float64(field.type):
        kind = {"type": "double"}
    elif pa.types.is_date(field.type):
        kind = {"type": "int32", "name": _DATE}
    elif pa.types.is_decimal(field.type):
        kind = {
            "type": "bytes",
            "name": _DECIMAL,
            "version": 1,
            "parameters": {"scale": str(field.type.scale)},
        }
    elif field.type.tz is None:
        kind = {"type": "int64", "name": _MICROS}
    else:
        kind = {"type": "string", "name": _ZONED}
    return {**kind, "field": field.name, "optional": field.name != "id"}


def _values(column: pa.ChunkedArray) -> list[Any]:
    kind = column.type
    if pa.types.is_date(kind):
        return list(column.cast(pa.int32()).to_pylist())
    if pa.types.is_decimal(kind):
        whole = [int(one.scaleb(kind.scale)) for one in column.to_pylist()]
        return [base64.b64encode(one.to_bytes(9, "big", signed=True)).decode() for one in whole]
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return list(column.cast(pa.int64()).to_pylist())
    if pa.types.is_timestamp(kind):
        return [one.isoformat().replace("+00:00", "Z") for one in column.to_pylist()]
    return list(column.to_pylist())


def _messages(table: pa.Table) -> Iterator[str]:
    fields = [_field(one) for one in table.schema]
    schema = {"type": "struct", "name": "orders.Value", "optional": False, "fields": fields}
    key_schema = {"type": "struct", "name": "orders.Key", "optional": False, "fields": fields[:1]}
    columns = [_values(column) for column in table.columns]
    for row in zip(*columns, strict=True):
        payload = dict(zip(table.column_names, row, strict=True))
        value = json.dumps({"schema": schema, "payload": payload})
        key = json.dumps({"schema": key_schema, "payload": {"id": row[0]}})
        parts = ["debezium_orders", *(base64.b64encode(one.encode()).decode() for one in (key, value))]
        yield "\t".join(parts) + "\n"


def debezium(server: PostgreSqlServer, tables: Sequence[pa.Table]) -> None:
    command = java.compiled("JdbcSink", java.jdbc_sink_jars())
    url = f"jdbc:postgresql://{server.host}:{server.port}/{server.database}?reWriteBatchedInserts=true"
    command += [url, server.user, server.password, str(AT_ONCE)]
    lines = [[*_messages(table)] for table in tables]
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(command, stdin=-1, stdout=-1, stderr=log, text=True) as process,
    ):
        assert process.stdin is not None and process.stdout is not None
        for phase, every in enumerate([lines[0][:WARM_ROWS], lines[0][WARM_ROWS:], lines[1]]):
            before = _server_cpu(server)
            process.stdin.writelines([*every, "=\n"])
            process.stdin.flush()
            said = process.stdout.readline().split()
            if not said:
                log.seek(0)
                raise RunFailed(f"Debezium's sink failed: {log.read()[-2000:]}")
            if phase:
                used = _server_cpu(server) - before
                _say("debezium", phase - 1, len(every), float(said[1]), float(said[2]), used)
        process.stdin.close()
        process.stdout.read()


# Spark ------------------------------------------------------------------------------------------------------


def spark(server: PostgreSqlServer, tables: Sequence[pa.Table]) -> None:
    from pyspark.sql import SparkSession

    [driver] = java.fetch("org.postgresql:postgresql:42.7.7")
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.extraClassPath", str(driver))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    account = {"user": server.user, "password": server.password}
    options = {
        "url": f"jdbc:postgresql://{server.host}:{server.port}/{server.database}?reWriteBatchedInserts=true",
        "driver": "org.postgresql.Driver", "batchsize": "10000", "truncate": "true", **account,
    }  # fmt: skip
    names = tables[0].column_names
    changed = ", ".join(f"{name} = EXCLUDED.{name}" for name in names if name != "id")
    listed = ", ".join(names)
    own = psutil.Process()
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder,
        psycopg.connect(server.url, autocommit=True, user=server.user, password=server.password) as database,
    ):

        def epoch(number: int, target: str) -> None:
            frame = session.read.parquet(f"{folder}/{number}").repartition(2)
            frame.write.format("jdbc").options(**options, dbtable="staging").mode("overwrite").save()
            database.execute(
                f"INSERT INTO {target} ({listed}) SELECT {listed} FROM staging "
                f"ON CONFLICT (id) DO UPDATE SET {changed}"
            )

        for number, table in enumerate(tables):
            Path(folder, str(number)).mkdir()
            pq.write_table(table, f"{folder}/{number}/rows.parquet")
        first = session.read.parquet(f"{folder}/0").limit(0)
        for target in ("warm", "spark_orders"):
            first.write.format("jdbc").options(**options, dbtable=target).mode("overwrite").save()
            database.execute(f"ALTER TABLE {target} ADD PRIMARY KEY (id)")
        epoch(0, "warm")
        for phase in range(2):
            jvms = [one for one in own.children(recursive=True) if one.name() == "java"]
            processes = [own, *jvms]
            before = sum(sum(one.cpu_times()[:2]) for one in processes), _server_cpu(server)
            began = time.monotonic()
            epoch(phase, "spark_orders")
            seconds = time.monotonic() - began
            after = sum(sum(one.cpu_times()[:2]) for one in processes), _server_cpu(server)
            mine, theirs = (end - begin for end, begin in zip(after, before, strict=True))
            _say("spark jdbc", phase, tables[phase].num_rows, seconds, mine, theirs)
    session.stop()
