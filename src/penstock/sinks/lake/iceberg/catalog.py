"""The catalog of the targets, asked without SQL: for Spark, reading and planning a statement takes many times
as long as the catalog takes for what it says, and there may be a thousand tables to make.

Names are given as lists of levels, not as text: Spark's parser replaces `${…}` in all that it reads, unless
the session of the calling thread says otherwise, and not every thread has one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from penstock.sinks.spark_sql import quoted

PROPERTIES = {
    "format-version": "3",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
    "write.distribution-mode": "none",
    "write.merge.distribution-mode": "hash",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
    # Every commit reads and writes the list of manifests more than once.
    "commit.manifest.min-count-to-merge": "16",
    # Housekeeping commits beside a stream that commits several times a second.
    "commit.retry.num-retries": "20",
    "commit.retry.min-wait-ms": "20",
    "commit.retry.max-wait-ms": "500",
}
"""Of the tables that are made; `sink.py` says what was measured."""


class Catalog:
    """`name`: as Spark's session has it. Places of tables are levels: those of the namespace, then the name
    of the table. Thread-safe."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        jvm: Any = spark._jvm
        self._spark = spark
        self._name = name
        self._identifier = jvm.org.apache.spark.sql.connector.catalog.Identifier.of
        self._type = jvm.org.apache.spark.sql.types.DataType.fromJson
        self._map = jvm.java.util.HashMap().getClass()
        self._read_json = jvm.com.fasterxml.jackson.databind.ObjectMapper().readValue
        self._array = spark.sparkContext._gateway.new_array  # type: ignore[union-attr]
        self._transforms = self._array(jvm.org.apache.spark.sql.connector.expressions.Transform, 0)
        self._text = jvm.java.lang.String
        self._guard = threading.Lock()
        self._namespaces: dict[tuple[str, ...], Any] = {}
        """Those that are there, as Java's arrays."""

    def open(self) -> Any:
        """Sets the catalog up. Spark does so on first use, and Iceberg's own lookup of tables does not count
        as use."""
        return self._spark._jsparkSession.sessionState().catalogManager().catalog(self._name)

    def table_name(self, levels: Sequence[str]) -> str:
        """As Spark SQL."""
        return ".".join(quoted(level) for level in (self._name, *levels))

    def load(self, levels: Sequence[str]) -> Any:
        """An Iceberg table as it is now."""
        return self.open().loadTable(self._identifier_of(levels)).table()

    def exists(self, levels: Sequence[str]) -> bool:
        return bool(self.open().tableExists(self._identifier_of(levels)))

    def make(self, levels: Sequence[str], columns: StructType, properties: Mapping[str, str]) -> bool:
        """Makes a table, and the namespaces above it. False: there is one meanwhile."""
        *namespace, name = levels
        user = self._spark.sparkContext.sparkUser()
        told = {**properties, "provider": "iceberg", "owner": user}  # as with a statement
        try:
            place = self._identifier(self._namespace(tuple(namespace)), name)
            values = self._read_json(json.dumps(told), self._map)
            self.open().createTable(place, self._type(columns.json()), self._transforms, values)
        except (Py4JJavaError, PySparkException):
            with self._guard:
                self._namespaces.clear()  # one of them may be gone
            if not self.exists(levels):
                raise
            return False
        return True

    def _namespace(self, levels: tuple[str, ...]) -> Any:
        with self._guard:
            known = self._namespaces.get(levels)
        if known is not None:
            return known
        for depth in range(1, len(levels) + 1):
            self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.table_name(levels[:depth])}")
        array = self._texts(levels)
        with self._guard:
            return self._namespaces.setdefault(levels, array)

    def _identifier_of(self, levels: Sequence[str]) -> Any:
        *namespace, name = levels
        return self._identifier(self._texts(namespace), name)

    def _texts(self, values: Sequence[str]) -> Any:
        array = self._array(self._text, len(values))
        for place, value in enumerate(values):
            array[place] = value
        return array
