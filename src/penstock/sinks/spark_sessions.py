"""Spark sessions for single writes, and helpers around sessions."""

from __future__ import annotations

import json
import queue
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession


class Sessions:
    """A pool of sessions. Each is used for one write at a time.

    Some options of a commit (Iceberg's snapshot properties in a MERGE, Delta's transaction identifier) can be
    set only on a session, and several tables are written at once. So each write needs a session of its own.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._idle: queue.SimpleQueue[SparkSession] = queue.SimpleQueue()

    @contextmanager
    def lend(self, options: dict[str, str]) -> Iterator[SparkSession]:
        """A session that has these options for the time of the `with` block."""
        try:
            session = self._idle.get_nowait()
        except queue.Empty:
            session = session_like(self._spark)
        for name, value in options.items():
            session.conf.set(name, value)
        try:
            yield session
        finally:
            for name in options:
                session.conf.unset(name)
            self._idle.put(session)


def session_like(spark: SparkSession) -> SparkSession:
    """A new session with the same options. `newSession` has only those of the Spark context, and the
    catalog of a pipeline in a session of the caller is not among them."""
    return SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())


def activate(spark: SparkSession) -> None:
    """Makes `spark` the active session of the calling thread. Spark's parser takes its options from the
    active session; without one it has Spark's defaults, and replaces `${…}` in names. `spark.sql` does this
    by itself."""
    spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(  # type: ignore[union-attr]
        spark._jsparkSession
    )


@contextmanager
def shared_view(frame: DataFrame) -> Iterator[str]:
    """A view of the frame that every session sees, for the time of the `with` block. Returns its name."""
    name = f"penstock_{uuid.uuid4().hex}"
    frame.createGlobalTempView(name)
    try:
        yield f"global_temp.{name}"
    finally:
        frame.sparkSession.catalog.dropGlobalTempView(name)


def java_map(spark: SparkSession, values: Any) -> dict[str, str]:
    """Copies a map of strings from the JVM in one call, which is fast even if it is large."""
    mapper = spark._jvm.com.fasterxml.jackson.databind.ObjectMapper()  # type: ignore[union-attr]
    found: dict[str, str] = json.loads(mapper.writeValueAsString(values))
    return found
