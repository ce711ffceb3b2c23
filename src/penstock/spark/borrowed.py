"""A Spark session of the caller, in which a pipeline runs: in a notebook, or in a job of others.

The pipeline gets a session of its own in the same Spark context (`newSession`), so nothing that it sets is
seen by the caller. What cannot be set any more once Spark has started must be there already.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from penstock.config import SparkConfig
from penstock.config.sections import FIXED_OF_SPARK
from penstock.errors import ConfigError
from penstock.sinks import registry
from penstock.sinks.kind import SinkOptions
from penstock.sinks.spark_sessions import activate
from penstock.spark import cluster
from penstock.spark.session import session_options

_CATALOG = "spark.sql.catalog."
_HADOOP = "spark.hadoop."
_NEEDED = frozenset({
    *FIXED_OF_SPARK,
    "spark.sql.parquet.outputTimestampType",
    "spark.sql.execution.arrow.pyspark.enabled",
    "spark.sql.execution.arrow.maxRecordsPerBatch",
    "spark.sql.streaming.checkpointFileManagerClass",
})  # fmt: skip
"""What a pipeline sets in any session of its own, besides its sink's options. All others of
`session_options` only save time."""


def borrow(spark: Any, config: SparkConfig, sink: SinkOptions, state: Path) -> SparkSession:
    """A new session in the caller's Spark context, with what a pipeline into this sink needs. Raises
    `ConfigError` that names all that it lacks."""
    if not isinstance(spark, SparkSession) or not hasattr(spark, "sparkContext"):
        raise ConfigError(
            "A pipeline cannot run in a session of Spark Connect: it starts jobs and streams in the driver.",
            hint="Run it where the driver is, or leave `spark` out, so that it starts its own.",
        )
    cluster.check_version(spark)
    wanted = session_options(config, [sink], state)
    of_sink = registry.kind(sink.type).spark_options(sink, config.conf, state)
    session = spark.newSession()
    lacks = _set(session, {name: wanted[name] for name in (*_NEEDED, *of_sink) if name in wanted}, of_sink)
    lacks |= _classes_missing(session, of_sink)
    if lacks:
        listed = "; ".join(f"{name}={value}" for name, value in sorted(lacks.items()))
        raise ConfigError(
            f"The Spark session lacks what a pipeline into {sink.type} needs: {listed}.",
            hint="Start Spark with these options and jars (`penstock prepare` fetches the jars), or leave "
            "`spark` out in a process without a session, so that the pipeline starts its own.",
            lacks=dict(lacks),
        )
    activate(session)  # a catalog is set up with the options of its thread's active session
    return session


def _set(session: SparkSession, wanted: Mapping[str, str], of_sink: Mapping[str, str]) -> dict[str, str]:
    """Sets the options that can be set. Returns those that cannot and have another value."""
    lacks = {}
    local = session.sparkContext.getConf()
    for name, value in wanted.items():
        if name == "spark.sql.streaming.checkpointFileManagerClass":
            continue  # it needs a file system that is faster than Hadoop's, and only saves time
        if name.startswith(_CATALOG) or session.conf.isModifiable(name):
            session.conf.set(name, value)
        elif name.startswith(_HADOOP):
            session.sparkContext._jsc.hadoopConfiguration().set(name.removeprefix(_HADOOP), value)
        elif name in of_sink and name.startswith("spark.sql."):
            present = local.get(name) or session.conf.get(name, "") or ""
            missing = [part for part in value.split(",") if part not in present.split(",")]
            if missing:
                lacks[name] = ",".join(missing)
    return lacks


def _classes_missing(session: SparkSession, of_sink: Mapping[str, str]) -> dict[str, str]:
    """Classes that the sink's options name and that Java cannot load: their jars are not there."""
    jvm = session.sparkContext._jvm
    assert jvm is not None
    lacks = {}
    for name, value in of_sink.items():
        is_catalog = name.startswith(_CATALOG) and "." not in name.removeprefix(_CATALOG)
        if not is_catalog and name != "spark.sql.extensions":
            continue
        for one in value.split(","):
            try:
                jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(one)
            except Py4JJavaError:
                lacks["a jar with the class"] = one
    return lacks
