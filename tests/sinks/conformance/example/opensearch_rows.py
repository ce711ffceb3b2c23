"""The rows that the sink `opensearch` has written, for the conformance suite."""

from __future__ import annotations

import base64
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType
from tests.sinks.conformance.example.typed_rows import frame_of

from penstock.model.change import SEQUENCE
from penstock.model.schema import TableId
from penstock.sinks.opensearch.client import Client
from penstock.sinks.opensearch.indexes import Indexes
from penstock.sinks.opensearch.options import OpenSearchOptions
from penstock.sinks.opensearch.records import Records
from penstock.sinks.opensearch.values import field_name


def written_rows(options: OpenSearchOptions, spark: SparkSession, table: TableId) -> DataFrame:
    client = Client(options)
    record = Records(client, options.control).find(options.alias(table))
    assert record is not None
    alias = options.alias(table)
    found = [
        hit["_source"]
        for hits in Indexes(client, {}).portions(alias, {"match_all": {}}, whole=True)
        for hit in hits
    ]
    client.close()
    rows = [tuple(_value(one, field) for field in record.columns) for one in found]
    return frame_of(spark, rows, record.columns)


def _value(document: dict[str, Any], field: Any) -> Any:
    name = SEQUENCE if field.name == SEQUENCE else field_name(field.name)
    value = document.get(name)
    if value is None or not isinstance(field.dataType, BinaryType):
        return value
    return base64.b64decode(value)
