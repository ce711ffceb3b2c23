"""The rows that the sink `hbase` has written, for the conformance suite."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_type
from tests.sinks.conformance.example.typed_rows import frame_of

from penstock.model.change import SEQUENCE
from penstock.model.schema import TableId
from penstock.sinks.hbase.cluster import Cluster
from penstock.sinks.hbase.options import HBaseOptions
from penstock.sinks.hbase.records import Records
from penstock.sinks.hbase.rows import OWN
from penstock.sinks.hbase.times import sequences_of
from penstock.sinks.hbase.values import Form


def written_rows(options: HBaseOptions, spark: SparkSession, table: TableId) -> DataFrame:
    cluster = Cluster(options, spark)
    record = Records(cluster, options.control).find(":".join(options.full_name(table)))
    assert record is not None
    rows: list[tuple[Any, ...]] = []
    name = cluster.name(*options.full_name(table))
    for frame in cluster.scan(name, OWN, [record.form.qualifier(one) for one in record.names]):
        columns = zip(frame.columns, record.columns, strict=True)
        rows += zip(*[_values(one.values, field, record.form) for one, field in columns], strict=True)
        own = record.names.index(SEQUENCE)
        assert [int(row[own]) for row in rows[-len(frame) :]] == sequences_of(frame.times).tolist()
    cluster.close()
    return frame_of(spark, rows, record.columns)


def _values(values: pa.Array, field: Any, form: Form) -> list[Any]:
    kind = to_arrow_type(field.dataType)
    found = values.cast(pa.string()) if field.name == SEQUENCE else form.values(values, kind)
    if pa.types.is_string(found.type) and pa.types.is_boolean(kind):
        found = found.cast(pa.int8())
    if pa.types.is_timestamp(kind):
        found = found.cast(pa.timestamp("us"))
    return list(found.cast(kind).to_pylist())
