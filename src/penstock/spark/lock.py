"""One JVM per pipeline state.

When a driver is killed, its JVM notices and ends, but not at once: a commit that is under way may still be
made. A new driver that looked at the target before that commit, and appended the same rows after it, would
double them. So the JVM itself holds a file lock for as long as it lives, and a new one waits for the lock
before it touches a target. (A plain file lock rather than a recorded pid: the operating system gives it up
exactly when the process is gone.)

A JVM whose driver is gone may also take minutes to end: libraries wait for their threads when it shuts down.
Whoever asks here holds the state's own lock, so no driver is left that such a JVM could work for, and it is
killed; what it has committed stays, what it has not is done again.
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
"""How long the JVM of an earlier run may hold the state before this run gives up."""
KILL_AFTER_SECONDS = 10.0
"""Longest that the JVM of a dead driver is left to end by itself."""


def hold_state(spark: SparkSession, directory: Path) -> None:
    """Returns when this session's JVM holds the lock on `directory`; it keeps it until it ends.

    Before: this process holds `directory` (`penstock.disk.directory.held`). Raises `ConfigError` if another
    JVM keeps the lock and cannot be ended from here.
    """
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    path = directory / "spark.lock"
    # Made here: the JVM would make it with the modes that its umask leaves.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    file = jvm.java.io.RandomAccessFile(str(path), "rw")
    began = time.monotonic()
    killed: set[int] = set()
    while True:
        held, lock = _try_lock(file.getChannel())
        if lock is not None:
            # Referenced from the JVM's own properties: a collected channel would give up the lock.
            jvm.java.lang.System.getProperties().put(f"penstock.lock.{directory}", lock)
        if held:
            return
        waited = time.monotonic() - began
        if waited > KILL_AFTER_SECONDS and (pid := left_behind(path)) is not None and pid not in killed:
            log.warning("the JVM of a driver that is gone (pid %d) does not end and is killed", pid)
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


def left_behind(lock: Path) -> int | None:
    """The pid of the JVM that holds the lock, if the system tells it and it is one of this state directory.

    A process of another machine (a shared file system), or whatever has that number here, is not taken for
    it: a JVM of ours names the directory in its arguments.
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
    """(this JVM holds the lock, the lock if it is new)."""
    try:
        lock = channel.tryLock()
        return lock is not None, lock
    except Py4JJavaError as error:
        # This JVM has it already: an earlier pipeline of the same Python process.
        if "OverlappingFileLockException" in str(error.java_exception):
            return True, None
        raise
