"""One JVM per state directory, also when the one before does not want to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import penstock
from penstock.testing.scenario import wait_for

_DRIVER = """
import sys, time
from pathlib import Path
from penstock.config import SparkConfig
from penstock.sinks.console.registration import ConsoleOptions
from penstock.spark.lock import lock_state
from penstock.spark.session import build_session
state = Path(sys.argv[1])
config = SparkConfig(master="local[1]", driver_memory="500m")
spark = build_session(config, ConsoleOptions(type="console"), state)
lock_state(spark, state)
print(spark._jvm.java.lang.ProcessHandle.current().pid(), flush=True)
sys.stdin.readline()
"""


def driver(state: Path) -> subprocess.Popen[str]:
    source = str(Path(penstock.__file__).parent.parent)
    return subprocess.Popen(
        [sys.executable, "-c", _DRIVER, str(state)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    )


def is_over(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@pytest.mark.slow
def test_a_jvm_that_outlives_its_driver_and_does_not_end_is_killed(tmp_path: Path) -> None:
    state = tmp_path / "my state"
    state.mkdir()
    one = driver(state)
    assert one.stdout is not None
    stuck = psutil.Process(int(one.stdout.readline()))
    stuck.send_signal(signal.SIGSTOP)
    try:
        one.kill()
        one.wait(60)
        assert stuck.is_running()
        with driver(state) as two:
            assert two.stdout is not None
            assert int(two.stdout.readline()) != stuck.pid
            # Killed, it gives up the lock a moment before the system calls it ended.
            wait_for(lambda: is_over(stuck), "the end of the stuck JVM", seconds=30)
            two.communicate("\n", timeout=120)
    finally:
        if stuck.is_running():
            stuck.kill()
