"""Makes sure that only one JVM works on a pipeline's state.

When a driver is killed, its JVM notices that and ends, but not at once. It may still finish a commit. If a
new driver looked at the target before this commit and then appended the same rows, they would be there
twice. So the JVM itself holds a file lock for as long as it lives, and a new JVM waits for the lock before
it touches a target. (A file lock is better than a recorded pid, because the operating system releases it
exactly when the process is gone.)

A JVM without a driver can take minutes to end, because libraries wait for their threads. The caller here
holds the state's own lock, so no driver is left that such a JVM could work for, and it is killed. What it
has committed stays; the rest is repeated.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from penstock.disk.lock import holder
from penstock.errors import ConfigError

log = logging.getLogger(__name__)

WAIT_SECONDS_MAX = 120.0
"""How long a run waits for the JVM of an earlier run to release the state, before it gives up."""
KILL_AFTER_SECONDS = 10.0
"""How long the JVM of a dead driver may take to end by itself. Most need a second or two."""


def lock_state(spark: SparkSession, directory: Path) -> None:
    """Waits until this session's JVM holds the lock on `directory`. The JVM keeps it until it ends.

    This process must hold `directory` (`penstock.disk.directory.held`). Raises `ConfigError` if another JVM
    keeps the lock and this process cannot end it.
    """
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    path = directory / "spark.lock"
    # Created here, because the JVM would create it with the mode of its umask.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    file = jvm.java.io.RandomAccessFile(str(path), "rw")
    began = time.monotonic()
    killed: set[int] = set()
    while True:
        is_ours, lock = _try_lock(file.getChannel())
        if lock is not None:
            # Kept in the JVM's properties: garbage collection of the channel would release the lock.
            jvm.java.lang.System.getProperties().put(f"penstock.lock.{directory}", lock)
        if is_ours:
            return
        waited = time.monotonic() - began
        if waited > KILL_AFTER_SECONDS and (pid := left_behind(path)) is not None and pid not in killed:
            log.warning("the JVM of a dead driver (pid %d) does not end and is killed", pid)
            killed.add(pid)
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if waited > WAIT_SECONDS_MAX:
            raise ConfigError(
                f"Another Spark driver still holds {directory} after {WAIT_SECONDS_MAX:.0f} s.",
                hint="It was started by an earlier run of this pipeline and has not ended; end that java "
                "process.",
            )
        time.sleep(0.1)  # polls the lock, with a limit


def release_state(spark: SparkSession, directory: Path) -> None:
    """Gives the lock back while the JVM lives on, because it is the caller's."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    lock = jvm.java.lang.System.getProperties().remove(f"penstock.lock.{directory}")
    if lock is not None:
        lock.acquiredBy().close()


def left_behind(lock: Path) -> int | None:
    """The pid of the JVM that holds the lock, if it is one of Penstock's JVMs for this state directory.

    None if the operating system does not say. A process of another machine (on a shared file system), or
    another process with the same number, is not mistaken for it: Penstock's JVMs have the directory in their
    arguments.
    """
    pid = holder(lock)
    if pid is None:
        return None
    try:
        arguments = Path("/proc", str(pid), "cmdline").read_bytes()
    except OSError:
        return None
    ours = os.fsencode(lock.parent.absolute() / "tmp") in arguments and b"java" in arguments.split(b"\0")[0]
    return pid if ours else None


def _try_lock(channel: Any) -> tuple[bool, Any]:
    """Returns (whether this JVM holds the lock, the lock if it was just acquired)."""
    try:
        lock = channel.tryLock()
        return lock is not None, lock
    except Py4JJavaError as error:
        # This JVM already holds it, for an earlier pipeline in the same Python process.
        if "OverlappingFileLockException" in str(error.java_exception):
            return True, None
        raise
