"""The error for a catalog that cannot be used, with what to change in the pipeline file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from penstock.errors import ConfigError
from penstock.failures.messages import advice_of, text_of
from penstock.sinks.lake.iceberg.registration import IcebergOptions


@contextmanager
def catalog_explained(options: IcebergOptions) -> Iterator[None]:
    """Turns errors of setting up the sink's catalog into `ConfigError`."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        advice = advice_of(text_of(error), rows=False)
        raise ConfigError(
            f"Spark cannot set up the catalog {options.catalog_name}: "
            f"{advice.message if advice is not None else type(error).__name__}",
            hint=f"{advice.hint if advice is not None else ''} {where(options)}".strip(),
        ) from error


def where(options: IcebergOptions) -> str:
    """The part of the pipeline file that says what the catalog is, as the end of a hint."""
    if isinstance(options.catalog, str):
        return f"Check `sink.catalog` and spark.sql.catalog.{options.catalog}* in `spark.conf`."
    return "Check the section `sink.catalog`."
