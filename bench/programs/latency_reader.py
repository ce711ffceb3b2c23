"""A reader of the relay log in Python, without Spark (`penstock.changes`), follows `bench.live`, which is
changed all the time, while `penstock receive` writes the log. Arguments: pipeline-file warm-s seconds.

The latency of a change is the time from its commit, as the source's own log tells it, to the moment at which
the reader has it as a row of an Arrow batch; it is durable in the relay log by then. The writer's CPU time is
told apart.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from bench.latency.changes import TABLE, Changes
from bench.latency.summary import summary
from bench.programs.latency import KINDS, microseconds
from penstock import config as configuration
from penstock.changes import ChangeBatch, ChangeReader, follow
from penstock.relaylog.reader import RelayLog

_LOOK_S = 0.01
_START_S_MAX = 60
_END_S_MAX = 10
"""For the last changes to come."""


class Arrivals:
    """What has come so far: of each change when it was committed and when it was here."""

    def __init__(self) -> None:
        self.changes: list[tuple[int, int]] = []
        self.counts: Counter[str] = Counter()

    def read(self, reader: ChangeReader) -> None:
        """Until the reader is stopped."""
        for item in reader:
            if isinstance(item, ChangeBatch):
                here_us = time.time_ns() // 1000
                self.changes += [(commit_us, here_us) for commit_us in microseconds(item.batch)]
                self.counts.update(KINDS[kind] for kind in item.batch.column("_change_type").to_pylist())


def main() -> None:
    file, warm_s, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    sys.setswitchinterval(0.0005)  # the writer is a thread of this process
    config = configuration.load(file)
    receiver = subprocess.Popen([sys.executable, "-m", "penstock", "receive", file])
    try:
        deadline = time.monotonic() + _START_S_MAX
        while not RelayLog.exists(config.relay_log_path):
            if receiver.poll() is not None or time.monotonic() > deadline:
                sys.exit("Error: the receiver has not begun")
            time.sleep(_LOOK_S)
        arrivals = Arrivals()
        with ThreadPoolExecutor(1) as pool, follow(file, [TABLE], before_images=False) as reader:
            reading = pool.submit(arrivals.read, reader)
            changes = Changes(config.source)
            time.sleep(warm_s)
            began, began_us, cpu_began = time.monotonic(), time.time_ns() // 1000, changes.cpu_s
            time.sleep(seconds)
            ended, ended_us, cpu_ended = time.monotonic(), time.time_ns() // 1000, changes.cpu_s
            changes.stop()
            deadline = time.monotonic() + _END_S_MAX
            while arrivals.counts != changes.counts and time.monotonic() < deadline and not reading.done():
                time.sleep(_LOOK_S)
            reader.stop()
            reading.result()
    finally:
        receiver.terminate()
        receiver.wait(60)
    if arrivals.counts != changes.counts:
        sys.exit(f"Error: {changes.counts} were written, the reader has {dict(arrivals.counts)}")
    latencies = [
        (here_us - commit_us) / 1e6
        for commit_us, here_us in arrivals.changes
        if began_us <= commit_us < ended_us
    ]
    report = {
        "changes": len(latencies), "began": began, "ended": ended, "writer_cpu_s": cpu_ended - cpu_began,
        "writer_late_s_max": round(changes.late_s_max, 3), **summary(latencies),
    }  # fmt: skip
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
