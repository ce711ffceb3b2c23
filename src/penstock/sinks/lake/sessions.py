"""Spark sessions whose options belong to one write, and what crosses from the JVM."""

from __future__ import annotations

import json
import queue
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession


class Sessions:
    """Sessions of one Spark application, lent to one write at a time.

    Some options of a commit (Iceberg's snapshot properties in a MERGE, Delta's transaction id) can be given
    only as options of the session, and several tables are written at once: so each write has a session to
    itself.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._idle: queue.SimpleQueue[SparkSession] = queue.SimpleQueue()

    @contextmanager
    def lend(self, options: dict[str, str]) -> Iterator[SparkSession]:
        try:
            session = self._idle.get_nowait()
        except queue.Empty:
            session = self._spark.newSession()
        for name, value in options.items():
            session.conf.set(name, value)
        try:
            yield session
        finally:
            for name in options:
                session.conf.unset(name)
            self._idle.put(session)


def activate(spark: SparkSession) -> None:
    """Makes it the session of the calling thread. Spark's parser asks that one for its options; a thread
    without a session has Spark's defaults, with which `${…}` in a name is replaced. `spark.sql` needs no
    such help."""
    spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(  # type: ignore[union-attr]
        spark._jsparkSession
    )


@contextmanager
def shared_view(frame: DataFrame) -> Iterator[str]:
    """A name under which every session sees the frame."""
    name = f"penstock_{uuid.uuid4().hex}"
    frame.createGlobalTempView(name)
    try:
        yield f"global_temp.{name}"
    finally:
        frame.sparkSession.catalog.dropGlobalTempView(name)


def java_map(spark: SparkSession, values: Any) -> dict[str, str]:
    """A map of strings from the JVM, in one call however large it is."""
    mapper = spark._jvm.com.fasterxml.jackson.databind.ObjectMapper()  # type: ignore[union-attr]
    found: dict[str, str] = json.loads(mapper.writeValueAsString(values))
    return found
