"""Runs `penstock receive FILE` until the relay log has reached a place. Arguments: pipeline-file place
timeout-s. The place is `binlog:position`, or an LSN.

Timed from the last look at which nothing was in the relay log yet (there is one every 2 ms, on a machine that
is not busy) to the moment an index entry has committed the place, which is when readers see it: fsync
included. CPU time and resident memory are those of the receiver alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

import psutil

from bench.programs.lag import position_of
from penstock import config as configuration
from penstock.relaylog.reader import RelayLog
from penstock.testing.memory import peak_bytes

_FIRST_POLL_S = 0.002
_POLL_S = 0.003


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    file, place, timeout = sys.argv[1:]
    goal, timeout_s = position_of(place), float(timeout)
    folder = configuration.load(file).relay_log_path
    suffix = "pgoutput" if "/" in place else "binlog"
    receiver = subprocess.Popen([sys.executable, "-m", "penstock", "receive", file])
    process = psutil.Process(receiver.pid)
    deadline = time.monotonic() + timeout_s

    def wait(interval_s: float) -> None:
        if receiver.poll() is not None:
            sys.exit(f"Error: the receiver ended with code {receiver.returncode}")
        if time.monotonic() > deadline:
            receiver.kill()
            sys.exit(f"Error: the relay log has not reached {goal} after {timeout_s:g} s")
        time.sleep(interval_s)  # polls for a file, then for an offset; both with a limit

    began, cpu_began = looked = time.monotonic(), cpu_s(process)
    while not any(path.stat().st_size for path in folder.glob(f"*.{suffix}")):
        began, cpu_began = looked
        wait(_FIRST_POLL_S)
        looked = time.monotonic(), cpu_s(process)
    while not RelayLog.exists(folder):
        wait(_FIRST_POLL_S)
    log = RelayLog.open(folder)
    while not log.reached(goal):
        wait(_POLL_S)
        log.refresh()
    ended = time.monotonic()
    report = {
        "began": began,
        "ended": ended,
        "wall_s": ended - began,
        "cpu_s": cpu_s(process) - cpu_began,
        "rss_mb": peak_bytes(receiver.pid) / 1e6,
        "bytes": log.end - log.start,
    }
    receiver.terminate()
    receiver.wait(30)
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
