"""The error for a catalog that cannot be used, with what to change in the pipeline file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from penstock.errors import ConfigError
from penstock.failures.advice import Advice
from penstock.failures.messages import advice_of, text_of
from penstock.sinks.lake.iceberg.registration import IcebergOptions


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
