"""Tries what a pipeline does with the store of its Delta tables: `penstock doctor`.

The table that is created has a name that no target has, and is removed again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.errors import ConfigError, PenstockError
from penstock.failures import error_log
from penstock.failures.messages import advice_of, text_of
from penstock.sinks.kind import Probed
from penstock.sinks.lake.delta.options import DeltaOptions
from penstock.sinks.lake.delta.stored import StoredDelta


def probe(options: DeltaOptions, spark: SparkSession) -> Iterator[Probed]:
    """See `Probe`."""
    form = StoredDelta(options, str(options.path), spark, "")
    place = f"{form.root}/@penstock-probe-{uuid.uuid4().hex[:12]}"

    def use_store() -> str:
        form.check()
        if not form.is_reached:
            return (
                f"Spark can list {form.root}. Penstock itself cannot reach it, so Spark writes every file, "
                "which is slower."
            )
        return (
            f"An object at {form.root} can be written, read and deleted, and a put that must not replace it "
            "is refused."
        )

    def make_table() -> str:
        name = f"delta.`{place}`"
        spark.sql(f"CREATE TABLE {name} (id BIGINT) USING delta")
        spark.sql(f"INSERT INTO {name} VALUES (1)")
        if spark.sql(f"SELECT * FROM {name}").count() != 1:
            raise ConfigError(f"The table {place} does not have the row that was written to it.")
        return "A table can be created, written and read."

    def drop() -> str:
        form.remove_at(place)
        return "What was created can be removed."

    works = True
    for check, step in (("store", use_store), ("table", make_table)):
        found = _tried(check, form.root, step)
        yield found
        works = found.ok
        if not works:
            break
    if works or check == "table":
        dropped = _tried("drop", form.root, drop)
        if works or not dropped.ok:
            yield dropped


_FAILED = {
    "store": "The store cannot be used",
    "table": "No table can be created",
    "drop": "What was created could not be removed",
}


def _tried(check: str, subject: str, step: Callable[[], str]) -> Probed:
    try:
        return Probed(check, subject, True, step())
    except PenstockError as error:
        return Probed(check, subject, False, f"{error.message} {error.hint}".strip())
    except (Py4JError, PySparkException) as error:
        advice = advice_of(text_of(error), rows=False)
        said = advice.message if advice is not None else f"{type(error).__name__}."
        cure = (advice.hint if advice is not None else "") or "Check `sink.path` and `sink.store`."
        kept = error_log.keep(error, None)
        details = f" Details are in {kept}." if kept is not None else ""
        return Probed(check, subject, False, f"{_FAILED[check]}: {said} {cure}{details}")
