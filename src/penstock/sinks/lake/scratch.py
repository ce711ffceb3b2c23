"""Where a sink puts files that only this run needs."""

from __future__ import annotations

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession


def make_directory(spark: SparkSession, prefix: str) -> Path:
    """A new directory that only this account can read, in Spark's scratch space, which only this run uses.
    The next run removes what a killed one left there. A session that names no scratch space uses that of the
    system."""
    found = spark.conf.get("spark.local.dir", None)
    return Path(tempfile.mkdtemp(prefix=prefix, dir=found if found and Path(found).is_dir() else None))
