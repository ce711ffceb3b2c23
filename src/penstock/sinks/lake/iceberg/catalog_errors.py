"""Errors for what Iceberg refuses, with what to change: in the pipeline file or in the target."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from penstock.errors import ConfigError, TableError
from penstock.failures.advice import Advice
from penstock.failures.messages import advice_of, text_of
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.lake.iceberg.options import IcebergOptions
from penstock.sinks.lake.java_errors import JAVA_ERRORS, class_of, message_of


@contextmanager
def catalog_explained(options: IcebergOptions) -> Iterator[None]:
    """Turns errors of setting up the sink's catalog into `ConfigError`."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        advice = advice_of(text_of(error), rows=False)
        said = advice.message if advice is not None else f"{type(error).__name__}."
        raise ConfigError(
            f"Spark cannot set up the catalog {options.catalog_name}: {said}",
            hint=cure(advice, options),
        ) from error


def cure(advice: Advice | None, options: IcebergOptions) -> str:
    """The hint for an error of the catalog or its store."""
    hint = advice.hint if advice is not None else ""
    if isinstance(options.catalog, str):
        place = f"Check `sink.catalog` and spark.sql.catalog.{options.catalog}* in `spark.conf`."
        return f"{hint} {place}".strip()
    return hint or "Check the section `sink.catalog`."


@contextmanager
def columns_refused(table: TableId) -> Iterator[None]:
    """Turns Iceberg's refusal to change a table's columns into a `TableError`."""
    try:
        yield
    except JAVA_ERRORS as error:
        if class_of(error) not in ("ValidationException", "IllegalArgumentException"):
            raise
        message, name = message_of(error), argument(table)
        again = f"`penstock resnapshot FILE {name}"
        hint = (
            "Take the columns concerned out of the target's partitions and sort order, then run "
            f"{again}`. If Iceberg refuses it again, because of partitions that the target had earlier, run "
            f"{again} --recreate`."
        )
        if "reserved" in message:
            hint = f"Drop or rename these columns of the target, then run `penstock unpark FILE {name}`."
        raise TableError(
            f"The columns of the target of {table} cannot be changed: {message}.",
            hint=hint,
            table=str(table),
        ) from error
