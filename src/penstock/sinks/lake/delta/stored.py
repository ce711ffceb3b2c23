"""Delta tables in an object store or on HDFS, which Spark reaches by Hadoop's file systems.

Targets cannot be renamed there: an object store would copy all files. So a renamed table is read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from penstock.errors import ConfigError
from penstock.failures.messages import advice_of, text_of
from penstock.sinks.lake.delta.format import LOG, DeltaFormat, Held
from penstock.sinks.lake.delta.location import hadoop_url
from penstock.sinks.lake.delta.options import DeltaOptions
from penstock.sinks.lake.java_errors import JAVA_ERRORS
from penstock.store.base import Store
from penstock.store.options import Retries
from penstock.store.probe import check_conditions

_IMPATIENT = Retries(seconds_max=20)
"""Few retries for the first access: a store that does not answer then has probably been named wrongly."""
_FIRST = f"{LOG}/{0:020d}.json"
"""The log entry that made the table. It says whose it is."""


class StoredDelta(DeltaFormat):
    def __init__(self, options: DeltaOptions, url: str, spark: SparkSession, pipeline: str) -> None:
        super().__init__(options, hadoop_url(url), spark, pipeline)

    def check(self) -> None:
        """Raises `ConfigError` if the store cannot be used or ignores conditions, or if the root is a table
        itself."""
        store = self._store(self._root, retries=_IMPATIENT)
        if store is not None:
            check_conditions(store)
        with _explained(self._root):
            held = self._held(self._root)
        if held == "table":
            raise ConfigError(
                f"The sink's path {self._root} holds something else: {LOG}.",
                hint="Give `sink.path` a directory of its own.",
                path=self._root,
            )

    @property
    def root(self) -> str:
        return self._root

    @property
    def is_reached(self) -> bool:
        """Whether Penstock itself can read and write there."""
        return self._store(self._root) is not None

    def remove_at(self, place: str) -> None:
        """Removes a table at a URL."""
        self._delete(place)
        self._forget_paths()

    def _held(self, place: str) -> Held:
        """Looks for the log first, so that the objects of a large table are not listed."""
        path = self._path(place)
        system = path.getFileSystem(self._hadoop)
        if system.exists(self._path(f"{place}/{LOG}")):
            return "table"
        empty = not system.exists(path) or not len(system.listStatus(path))
        return "nothing" if empty else "something else"

    def _delete(self, place: str) -> None:
        """Deletes a table: first its data, then its log, the beginning of the log last. If the process is
        killed meanwhile, an older version of the table is left, or no table."""
        store = self._store(place)
        if store is not None:
            keys = [one.key for one in store.objects()]
            log = sorted((key for key in keys if key.startswith(f"{LOG}/")), reverse=True)
            store.delete_many(key for key in keys if not key.startswith(f"{LOG}/"))
            store.delete_many(key for key in log if key != _FIRST)
            store.delete_many(key for key in log if key == _FIRST)
        path = self._path(place)
        path.getFileSystem(self._hadoop).delete(path, True)  # with it, Hadoop's markers of directories

    def _store(self, place: str, *, retries: Retries | None = None) -> Store | None:
        """Penstock's own access to the objects at a place. None: it has none."""
        return self._access.store(place, retries=retries)

    def _path(self, place: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(place)

    @property
    def _hadoop(self) -> Any:
        return self._spark.sparkContext._jsc.hadoopConfiguration()


@contextmanager
def _explained(root: str) -> Iterator[None]:
    """Turns Spark's errors about the root into `ConfigError`."""
    try:
        yield
    except JAVA_ERRORS as error:
        advice = advice_of(text_of(error), rows=False)
        said = advice.message if advice is not None else f"{type(error).__name__}."
        cure = (advice.hint if advice is not None else "") or "Check `sink.path` and `spark.conf`."
        raise ConfigError(f"Spark cannot use {root}: {said}", hint=cure, path=root) from error
