"""Makes the archive of Spark's classes (`classes.py`) with a training run: it does once, with invented rows,
what a pipeline does."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.config import SinkOptions, SparkConfig
from penstock.errors import PenstockError
from penstock.model.change import CHANGE_TYPE, DELETED, SEQUENCE
from penstock.sinks import registry
from penstock.sinks.jars import jars
from penstock.spark import classes
from penstock.spark.session import session_options, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sinks.base import Sink

JVM_EXIT_SECONDS = 120
"""Limit for the end of a JVM that writes its archive, which takes some seconds."""
QUERY_SECONDS = 60
"""Limit for the start of a query, which takes some seconds."""


def prepare(sink: SinkOptions) -> Path:
    """Makes the archive for pipelines with such a sink, unless it exists. Takes half a minute. The target's
    catalog and store are not used."""
    kind = registry.kind(sink.type)
    path = classes.archive(jars([sink]))
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        made = place / "classes.jsa"
        conf = {"spark.driver.extraJavaOptions": f'"-XX:ArchiveClassesAtExit={made}"'}
        spark_config = SparkConfig(master="local[2]", driver_memory="1g", conf=conf)
        example = kind.example(place / "warehouse")
        options = session_options(spark_config, [example], place / "state", jars_of=[sink])
        spark = start(options, spark_config.master, place / "state")
        try:
            _exercise(spark, None if kind.example_needs_server else example, place / "state")
            kind.load_classes(sink, spark)
        finally:
            _end(spark)
        if not made.exists():
            raise PenstockError(
                f"Java wrote no class archive to {path.parent}.", hint="Check its free space."
            )
        made.replace(path)
    classes.forget_unused(path.parent)
    return path


def _end(spark: SparkSession) -> None:
    """Stops Spark and its JVM, and waits for the JVM, which writes the archive when it ends."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    spark.stop()
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(JVM_EXIT_SECONDS)
    SparkContext._gateway = None
    SparkContext._jvm = None


def _exercise(spark: SparkSession, options: SinkOptions | None, state: Path) -> None:
    """Executes each kind of write and read of a pipeline and of its verification, on a table with a few
    types. None: writes nothing."""
    from penstock.sinks.registry import open_sink
    from penstock.spark.stream import start_query
    from penstock.state import StateStore

    store = StateStore(state)
    started = threading.Event()
    query = start_query(spark, started.set, state)
    if options is not None:
        _write(spark, open_sink(options, spark, store.uuid), store.uuid)
    started.wait(QUERY_SECONDS)
    query.stop()
    store.close()


def _write(spark: SparkSession, sink: Sink, pipeline: str) -> None:
    from penstock.model.buckets import RangeBuckets
    from penstock.model.schema import DEFAULT_TYPES, Column, TableId, TableSchema
    from penstock.sinks.base import ChangeSink, Commit, EvolvedColumn, Readable, TableSink
    from penstock.spark.verify import SparkTarget
    from penstock.verify.check import Compared

    table = TableId("shop", "orders")
    columns = (
        Column("id", "bigint", nullable=False),
        Column("name", "varchar", length=50, charset="utf8mb4"),
        Column("price", "decimal", precision=12, scale=2),
        Column("at", "datetime", fsp=3),
    )
    schema = TableSchema(table, columns, ("id",))
    sink.create(schema, _arrow(schema, "rows"))
    if isinstance(sink, ChangeSink):
        sink.write_changes(table, _rows(spark, schema, "changelog"), Commit(pipeline, 1))
        if isinstance(sink, Readable):
            sink.read(table).count()
    if not isinstance(sink, TableSink):
        return
    layout = "latest"
    sink.append(table, _rows(spark, schema, layout), Commit(pipeline, 1))
    for epoch in (2, 3):
        sink.merge(table, _rows(spark, schema, layout), schema.key, Commit(pipeline, epoch))
    for epoch in (4, 5):
        sink.merge(table, _few_rows(spark, schema), schema.key, Commit(pipeline, epoch))
    sink.compact(table)
    if isinstance(sink, Readable):
        compared = Compared(schema, RangeBuckets("id", 100), sink.version(table))
        SparkTarget(sink.read).sums([compared], DEFAULT_TYPES)
    arrow = _arrow(schema, "rows")
    changed = [EvolvedColumn(field, field.name) for field in arrow]
    changed += [EvolvedColumn(pa.field("more", pa.int32()), None, "7")]
    sink.evolve(table, changed, Commit(pipeline, 6), narrowing="keep")
    sink.delete_older(table, 2, Commit(pipeline, 7))
    sink.truncate(table, Commit(pipeline, 8), sequence=9)
    sink.open(table)


def _arrow(schema: Any, layout: str) -> pa.Schema:
    from penstock._core import arrow_schema

    return arrow_schema(schema.to_json(), layout)


def _rows(spark: SparkSession, schema: Any, layout: str) -> Any:
    """A thousand rows, made by tasks like those of a pipeline."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from penstock.sinks.rows import Rows

    arrow = _arrow(schema, layout)
    spark_schema = from_arrow_schema(arrow, prefer_timestamp_ntz=True)
    return Rows(spark.range(1, 1001, 1, 2).mapInArrow(partial(_made, arrow), spark_schema))


def _few_rows(spark: SparkSession, schema: Any) -> Any:
    """The rows, with a hundred of them that the driver makes, for sinks that need no Spark job for few
    rows."""
    from penstock.sinks.rows import Newer

    few_rows = partial(_made, _arrow(schema, "latest"), [pa.record_batch({"id": pa.array(range(1, 101))})])
    return replace(_rows(spark, schema, "latest"), kind=Newer(driver_side=few_rows))


def _made(arrow: pa.Schema, indexes: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows with invented values, and NULL where it is allowed."""
    for batch in indexes:
        count = batch.num_rows
        known = {
            "id": batch.column(0),
            "name": pa.array([f"name {n % 50}" for n in range(count)]),
            DELETED: pa.array([n % 10 == 0 for n in range(count)]),
            SEQUENCE: batch.column(0),
            CHANGE_TYPE: pa.array(["insert"] * count),
        }
        columns = [known.get(field.name, pa.nulls(count, field.type)) for field in arrow]
        yield pa.RecordBatch.from_arrays([c.cast(f.type) for c, f in zip(columns, arrow, strict=True)],
                                         schema=arrow)  # fmt: skip
