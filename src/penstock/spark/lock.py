"""One JVM per pipeline state.

When a driver is killed, its JVM notices and ends, but not at once: a commit that is under way may still be
made. A new driver that looked at the target before that commit, and appended the same rows after it, would
double them. So the JVM itself holds a file lock for as long as it lives, and a new one waits for the lock
before it touches a target. (A plain file lock rather than a recorded pid: the operating system gives it up
exactly when the process is gone.)
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from penstock.errors import ConfigError

WAIT_SECONDS_MAX = 120.0


def hold_state(spark: SparkSession, directory: Path) -> None:
    """Returns when this session's JVM holds the lock on `directory`; it keeps it until it ends."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    file = jvm.java.io.RandomAccessFile(str(directory / "spark.lock"), "rw")
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while True:
        held, lock = _try_lock(file.getChannel())
        if lock is not None:
            # Referenced from the JVM's own properties: a collected channel would give up the lock.
            jvm.java.lang.System.getProperties().put(f"penstock.lock.{directory}", lock)
        if held:
            return
        if time.monotonic() > deadline:
            raise ConfigError(
                f"Another Spark driver still holds {directory} after {WAIT_SECONDS_MAX:.0f} s.",
                hint="It was started by an earlier run of this pipeline and has not ended; end that java "
                "process.",
            )
        time.sleep(0.1)  # polls the lock, with a limit


def _try_lock(channel: Any) -> tuple[bool, Any]:
    """(this JVM holds the lock, the lock if it is new)."""
    try:
        lock = channel.tryLock()
        return lock is not None, lock
    except Py4JJavaError as error:
        # This JVM has it already: an earlier pipeline of the same Python process.
        if "OverlappingFileLockException" in str(error.java_exception):
            return True, None
        raise
