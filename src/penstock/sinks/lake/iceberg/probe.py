"""Tries what a pipeline does with its catalog and its store: `penstock doctor`.

Each step is one result. The table that is created has a name that no source table has, and is dropped again,
and so is a namespace that did not exist. Objects are written through the table's own FileIO, because a REST
catalog may hand out other credentials for each table.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from penstock.errors import ConfigError
from penstock.failures import error_log
from penstock.failures.messages import advice_of, text_of
from penstock.model.schema import TableId
from penstock.sinks.kind import Probed
from penstock.sinks.lake.iceberg.catalog import PROPERTIES, Catalog
from penstock.sinks.lake.iceberg.catalog_errors import catalog_explained, cure
from penstock.sinks.lake.iceberg.options import IcebergOptions

_COLUMNS = StructType([StructField("id", LongType())])
_DATA = b"penstock"


def probe(options: IcebergOptions, spark: SparkSession, databases: Sequence[str]) -> Iterator[Probed]:
    """See `Probe`. Without `databases`, only a sink with a fixed namespace can be tried further than the
    connection to the catalog."""
    trial = _Trial(options, spark, databases)
    works = True
    for check, step in (
        ("catalog", trial.open_catalog),
        ("namespace", trial.make_namespace),
        ("table", trial.make_table),
        ("store", trial.use_store),
    ):
        found = trial.tried(check, step)
        if found is None:
            break
        yield found
        works = found.ok
        if not works:
            break
    dropped = trial.clean_up()
    if dropped is not None and (works or not dropped.ok):
        yield dropped


class _Trial:
    def __init__(self, options: IcebergOptions, spark: SparkSession, databases: Sequence[str]) -> None:
        self._options = options
        self._spark = spark
        self._catalog = Catalog(spark, options.catalog_name)
        self._namespace = _namespace(options, databases)
        self._table = f"penstock_probe_{uuid.uuid4().hex[:12]}"
        self._undo: list[tuple[str, Callable[[], object]]] = []
        """What was created, and what drops it."""

    def tried(self, check: str, step: Callable[[], str | None]) -> Probed | None:
        """Runs one step, and returns what came of it. None: the step had nothing to try, and neither have the
        steps after it."""
        subject = self._options.catalog_name
        try:
            message = step()
        except ConfigError as error:
            details = _details(error.__cause__) if error.__cause__ is not None else ""
            return Probed(check, subject, False, f"{error.message} {error.hint}{details}".strip())
        except (Py4JError, PySparkException) as error:
            return Probed(check, subject, False, self._failed(check, error))
        return None if message is None else Probed(check, subject, True, message)

    # the steps: each says what worked --------------------------------------------------------------------

    def open_catalog(self) -> str:
        name = self._options.catalog_name
        with catalog_explained(self._options):
            self._catalog.open()
            if self._namespace:
                self._catalog.has_namespace(self._namespace)
        return f"The catalog {name} answers."

    def make_namespace(self) -> str | None:
        if not self._namespace:
            return None
        made = False
        for depth in range(1, len(self._namespace) + 1):
            levels = self._namespace[:depth]
            if not self._catalog.has_namespace(levels):
                name = self._catalog.table_name(levels)
                self._spark.sql(f"CREATE NAMESPACE {name}")
                drop = partial(self._spark.sql, f"DROP NAMESPACE {name}")
                self._undo.append((f"the namespace {'.'.join(levels)}", drop))
                made = True
        return f"The namespace {'.'.join(self._namespace)} {'can be created' if made else 'exists'}."

    def make_table(self) -> str:
        levels = (*self._namespace, self._table)
        self._catalog.create(levels, _COLUMNS, PROPERTIES)
        self._undo.append((f"the table {'.'.join(levels)}", partial(self._catalog.drop, levels)))
        jvm: Any = self._spark._jvm
        version = jvm.org.apache.iceberg.TableUtil.formatVersion(self._catalog.load(levels))
        if version < 3:
            return (
                f"A table can be created. The catalog gives it format version {version}, so merges leave a "
                "file of position deletes for each data file concerned. With version 3 they are faster."
            )
        return "A table can be created."

    def use_store(self) -> str:
        target = self._catalog.load((*self._namespace, self._table))
        place, store = target.locationProvider().newDataLocation(f"{self._table}.txt"), target.io()
        out = store.newOutputFile(place).create()
        out.write(_DATA)
        out.close()
        stream = store.newInputFile(place).newStream()
        read = bytes(stream.readNBytes(len(_DATA) + 1))
        stream.close()
        store.deleteFile(place)
        if read != _DATA:
            raise ConfigError(f"The store returned other bytes for {place} than were written.")
        return f"An object at {target.location()} can be written, read and deleted."

    def clean_up(self) -> Probed | None:
        """Removes what the trial has made, the newest first. None: there was nothing."""
        for what, drop in reversed(self._undo):
            try:
                drop()
            except (Py4JError, PySparkException) as error:
                reason = self._failed("drop", error)
                message = f"{what.capitalize()} could not be dropped again. {reason}"
                return Probed("drop", self._options.catalog_name, False, message)
        if not self._undo:
            return None
        return Probed("drop", self._options.catalog_name, True, "What was created can be dropped.")

    def _failed(self, check: str, error: Exception) -> str:
        advice = advice_of(text_of(error), rows=False)
        said = advice.message if advice is not None else f"{type(error).__name__}."
        return f"{_FAILED[check]}: {said} {cure(advice, self._options)}{_details(error)}"


_FAILED = {
    "catalog": "The catalog does not answer",
    "namespace": "The namespace cannot be created",
    "table": "No table can be created",
    "store": "The store cannot be used",
    "drop": "The catalog or the store refused",
}


def _details(error: BaseException) -> str:
    """Writes the stack trace to a file, and names it."""
    kept = error_log.keep(error, None)
    return f" Details are in {kept}." if kept is not None else ""


def _namespace(options: IcebergOptions, databases: Sequence[str]) -> tuple[str, ...]:
    """The levels of one namespace that the pipeline writes to; empty if none is known."""
    if "{database}" in options.namespace and not databases:
        return ()
    *namespace, _ = options.levels(TableId(databases[0] if databases else "database", "table"))
    return tuple(namespace)
