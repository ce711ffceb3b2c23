"""The Python of a cluster's workers: which interpreter runs tasks, and where it finds Penstock's packages.

Spark brings the archive of packages (`artifacts/environment.py`) to each executor, unpacks it in the folder
in which the executor runs, and starts its Python there. So a relative module path finds it on every kind of
cluster. The interpreter itself is the one of this version on the PATH of the executor, unless the user names
another.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.artifacts import environment
from penstock.config import SparkConfig
from penstock.spark.daemon import EXPECTED

PYTHON = "spark.pyspark.python"
"""Spark's option that names the interpreter of tasks."""
_UNPACKED = "penstock-env"
"""The folder in which executors unpack the archive."""


def options(spark_config: SparkConfig, scratch: Path) -> dict[str, str]:
    """Options of a session on a cluster. `scratch`: the session's own directory, which outlives its JVM."""
    version = environment.python_version()
    packed = spark_config.environment == "packed"
    chosen = spark_config.conf.get(PYTHON) or os.environ.get("PYSPARK_PYTHON")
    found = {
        PYTHON: chosen or (f"python{version}" if packed else "python3"),
        f"spark.executorEnv.{EXPECTED}": version,
    }
    if packed:
        found["spark.archives"] = f"{_linked(environment.archive(), scratch)}#{_UNPACKED}"
        found["spark.executorEnv.PYTHONPATH"] = f"./{_UNPACKED}"
    return found


@contextmanager
def tasks_run(python: str) -> Iterator[None]:
    """Gives tasks of contexts that are made in the block this interpreter. PySpark reads only the variable,
    and not Spark's option. The variable of the user stays as it was for other sessions."""
    given = os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = python
    try:
        yield
    finally:
        if given is None:
            del os.environ["PYSPARK_PYTHON"]
        else:
            os.environ["PYSPARK_PYTHON"] = given


def _linked(archive: Path, scratch: Path) -> Path:
    """A link to the archive in the session's own directory. Executors that join later fetch it from there,
    when the cache may have removed the original."""
    own = scratch / archive.name
    own.unlink(missing_ok=True)
    try:
        own.hardlink_to(archive)
    except OSError:  # another file system
        shutil.copyfile(archive, own)
    return own
