"""Calls Spark's catalog directly instead of by SQL. Spark needs much longer to parse and plan a statement
than the catalog needs to execute it, and there may be a thousand tables to create.

Names are lists of levels, not text. Spark's parser would replace `${…}` in a text unless the calling thread
has an active session that turns this off, and not every thread has one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from penstock.errors import ConfigError
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
    # Maintenance commits while the stream commits several times a second.
    "commit.retry.num-retries": "20",
    "commit.retry.min-wait-ms": "20",
    "commit.retry.max-wait-ms": "500",
}
"""Properties of new tables. `format.py` says what was measured."""
LOCAL_PROPERTIES = {"commit.manifest.min-count-to-merge": "16"}
"""Properties of new tables on a local disk, where reading manifests costs little. Every commit reads and
writes the list of manifests more than once. In an object store, Iceberg's default of 100 is better: merging
sixteen manifests of data and deletes takes 35 requests, one after another."""


def may_remove_files(table: Any) -> bool:
    """Whether clients may remove files of a table that its newest snapshot does not use. Catalogs with
    branches or other references of their own forbid it by a property."""
    return bool(table.properties().get("gc.enabled") != "false")


_LIBRARY_CATALOGS = ("HadoopCatalog", "JdbcCatalog", "HiveCatalog")
"""Iceberg's Java classes of catalogs that create tables themselves."""

_OTHER_BRANCH = ("spark.wap.branch", "spark.wap.id")
"""Options by which Spark's writes do not go to the main branch."""

_MISSING = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND")
"""Spark's names of errors for a missing table or namespace."""


class Catalog:
    """The catalog with this name in the Spark session. A table is given by the levels of its namespace and
    then its name. Thread-safe."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        jvm: Any = spark._jvm
        self._spark = spark
        self._name = name
        self._identifier = jvm.org.apache.spark.sql.connector.catalog.Identifier.of
        self._type = jvm.org.apache.spark.sql.types.DataType.fromJson
        self._map = jvm.java.util.HashMap().getClass()
        self._read_json = jvm.com.fasterxml.jackson.databind.ObjectMapper().readValue
        self._array = spark.sparkContext._gateway.new_array  # type: ignore[union-attr]
        iceberg = jvm.org.apache.iceberg
        self._java_list, self._set = jvm.java.util.ArrayList, jvm.java.util.HashSet
        self._schema, self._convert = iceberg.Schema, iceberg.spark.SparkSchemaUtil.convert
        self._table_identifier = iceberg.catalog.TableIdentifier.of
        self._iceberg_namespace = iceberg.catalog.Namespace.of
        self._rebuilt = iceberg.spark.Spark3Util.rebuildCreateProperties
        self._transforms = self._array(jvm.org.apache.spark.sql.connector.expressions.Transform, 0)
        self._text = jvm.java.lang.String
        self._guard = threading.Lock()
        self._namespaces: dict[tuple[str, ...], Any] = {}
        """Namespaces that exist, as Java arrays."""

    def check(self, *, connects_late: bool) -> None:
        """Raises `ConfigError`, or an error of Spark, if the catalog cannot be used. `connects_late`: Iceberg
        connects to it only when it needs it."""
        for name in _OTHER_BRANCH:
            if self._spark.conf.get(name, None):
                raise ConfigError(
                    f"The Spark session has the option {name}, which would divert some of the rows: those "
                    "that Spark itself writes.",
                    hint="Leave it out. `branch` in `sink.tables` writes all rows to a branch.",
                )
        self.open()
        if connects_late:
            self.has_namespace(("penstock",))  # any name: what counts is that it answers

    def open(self) -> Any:
        """The catalog's Java object. The first call lets Spark set up the catalog; Iceberg's own lookup of
        tables would not."""
        return self._spark._jsparkSession.sessionState().catalogManager().catalog(self._name)

    def table_name(self, levels: Sequence[str]) -> str:
        """The table's name in Spark SQL."""
        return ".".join(quoted(level) for level in (self._name, *levels))

    def load(self, levels: Sequence[str]) -> Any:
        """An Iceberg table as it is now."""
        return self.open().loadTable(self._identifier_of(levels)).table()

    def find(self, levels: Sequence[str]) -> Any | None:
        """An Iceberg table as it is now. None: there is none of this name."""
        try:
            return self.load(levels)
        except (Py4JJavaError, PySparkException) as error:
            if not _says_missing(error):
                raise
            return None

    def exists(self, levels: Sequence[str]) -> bool:
        return bool(self.open().tableExists(self._identifier_of(levels)))

    def has_namespace(self, levels: Sequence[str]) -> bool:
        return bool(self.open().namespaceExists(self._texts(levels)))

    def create(
        self,
        levels: Sequence[str],
        columns: StructType,
        properties: Mapping[str, str],
        *,
        identifiers: Sequence[str] = (),
        prepare: Callable[[Any], None] | None = None,
    ) -> bool:
        """Creates a table and its namespaces. False: the table exists already. `identifiers`: its identifier
        fields, columns that are NOT NULL. `prepare`: changes the new table, in the same commit."""
        *namespace, name = levels
        user = self._spark.sparkContext.sparkUser()
        full = {**properties, "provider": "iceberg", "owner": user}  # as CREATE TABLE sets them
        try:
            place = self._identifier(self._namespace(tuple(namespace)), name)
            values = self._read_json(json.dumps(full), self._map)
            kinds = self._type(columns.json())
            if prepare is None:
                self._create(levels, kinds, identifiers, values)
            else:
                staged = self.open().stageCreate(place, kinds, self._transforms, values)
                update = staged.table().updateSchema()
                update.setIdentifierFields(self._list(identifiers)).commit()
                prepare(staged.table())
                staged.commitStagedChanges()
        except (Py4JJavaError, PySparkException):
            with self._guard:
                self._namespaces.clear()  # one of them may be gone
            if not self.exists(levels):
                raise
            return False
        return True

    def _identified(self, columns: Any, identifiers: Sequence[str]) -> Any:
        """Iceberg's schema for columns in Spark's types."""
        found = self._convert(columns)
        ids = self._set()
        for name in identifiers:
            ids.add(found.findField(name).fieldId())
        return self._schema(found.columns(), ids)

    def _create(
        self, levels: Sequence[str], columns: Any, identifiers: Sequence[str], properties: Any
    ) -> None:
        """Creates a table with identifier fields, which Spark's own catalog cannot set.

        Some catalog servers cannot create such a table either (Nessie 0.99 fails). There, a second commit
        sets the fields. After a kill between the two commits, the table has none.
        """
        *namespace, name = levels
        place = self._table_identifier(self._iceberg_namespace(self._texts(namespace)), name)
        catalog = self.open().icebergCatalog()
        at_once = catalog.getClass().getSimpleName() in _LIBRARY_CATALOGS
        made = catalog.buildTable(place, self._identified(columns, identifiers if at_once else ()))
        if (location := properties.get("location")) is not None:
            made = made.withLocation(location)
        table = made.withProperties(self._rebuilt(properties)).create()
        if identifiers and not at_once:
            table.updateSchema().setIdentifierFields(self._list(identifiers)).commit()

    def _list(self, values: Sequence[str]) -> Any:
        found = self._java_list()
        for value in values:
            found.add(value)
        return found

    def drop(self, levels: Sequence[str]) -> None:
        """Drops a table with its files. A catalog that removes files by itself, such as Nessie, forbids that
        (`may_remove_files`); then the files stay."""
        purge = " PURGE" if may_remove_files(self.load(levels)) else ""
        self._spark.sql(f"DROP TABLE {self.table_name(levels)}{purge}")

    def forget(self, levels: Sequence[str]) -> bool:
        """Removes a table from the catalog if its metadata file is missing. Its other files stay. Returns
        False, and does nothing, if the table can be loaded or fails for another reason."""
        try:
            self.load(levels)
        except (Py4JJavaError, PySparkException) as error:
            if not _says_gone(error):
                return False
        else:
            return False
        *namespace, name = levels
        place = self._table_identifier(self._iceberg_namespace(self._texts(namespace)), name)
        return bool(self.open().icebergCatalog().dropTable(place, False))

    def _namespace(self, levels: tuple[str, ...]) -> Any:
        with self._guard:  # a JDBC catalog refuses the second of two threads that create one namespace
            if levels not in self._namespaces:
                for depth in range(1, len(levels) + 1):
                    self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.table_name(levels[:depth])}")
                self._namespaces[levels] = self._texts(levels)
            return self._namespaces[levels]

    def _identifier_of(self, levels: Sequence[str]) -> Any:
        *namespace, name = levels
        return self._identifier(self._texts(namespace), name)

    def _texts(self, values: Sequence[str]) -> Any:
        array = self._array(self._text, len(values))
        for place, value in enumerate(values):
            array[place] = value
        return array


def _says_missing(error: Py4JJavaError | PySparkException) -> bool:
    """Whether Spark says that there is no such table."""
    if isinstance(error, PySparkException):
        return error.getCondition() in _MISSING
    return bool(error.java_exception.getClass().getSimpleName() == "NoSuchTableException")


def _says_gone(error: Py4JJavaError | PySparkException) -> bool:
    """Whether Iceberg says that a file is missing."""
    if isinstance(error, PySparkException):
        return False
    return bool(
        error.java_exception.getClass().getName() == "org.apache.iceberg.exceptions.NotFoundException"
    )
