"""A pipeline writes the changes of `bench.live` to Kafka, and a consumer reads them. Arguments: pipeline-file
bootstrap warm-s seconds.

The latency of a change is the time from its commit, as the source's own log tells it, to the moment at which
a consumer with `read_committed` has its message. The CPU time of writer and consumer is told apart.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from bench.latency.changes import TABLE, Changes
from bench.latency.summary import summary
from penstock import config as configuration
from penstock.sources.mysql.options import options_of
from penstock.testing.running import RunningPipeline

_START_S_MAX = 180
_END_S_MAX = 60
_LOOK_S = 0.05


class Arrivals:
    """What has come so far: of each change when it was committed and when it was here."""

    def __init__(self, bootstrap: str) -> None:
        self.changes: list[tuple[int, int]] = []
        self.cpu_s = 0.0
        self._consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": "bench", "isolation.level": "read_committed",
            "enable.auto.commit": False, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 100,
        })  # fmt: skip
        self._consumer.assign([TopicPartition(TABLE, 0, 0)])
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._stopped.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                here_us = time.time_ns() // 1000
                change = json.loads(message.value() or b"")
                if change["op"] != "r":
                    self.changes.append((change["ts_us"], here_us))
                self.cpu_s = time.thread_time()


def main() -> None:
    file, bootstrap, warm_s, seconds = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
    sys.setswitchinterval(0.0005)  # writer and consumer are threads of this process
    config = configuration.load(file)
    with RunningPipeline(file) as pipeline:
        pipeline.wait_until(lambda status: status["snapshot"]["done"], "the snapshot", seconds=_START_S_MAX)
        arrivals = Arrivals(bootstrap)
        changes = Changes(options_of(config))
        time.sleep(warm_s)
        began, began_us, cpu_began = time.monotonic(), time.time_ns() // 1000, changes.cpu_s + arrivals.cpu_s
        time.sleep(seconds)
        ended, ended_us, cpu_ended = time.monotonic(), time.time_ns() // 1000, changes.cpu_s + arrivals.cpu_s
        changes.stop()
        deadline = time.monotonic() + _END_S_MAX
        while len(arrivals.changes) < sum(changes.counts.values()) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        pipeline.stop()
        arrivals.stop()
    if len(arrivals.changes) != sum(changes.counts.values()):
        sys.exit(f"Error: {changes.counts} were written, {len(arrivals.changes)} messages have come")
    latencies = [(here - at) / 1e6 for at, here in arrivals.changes if began_us <= at < ended_us]
    report = {
        "changes": len(latencies), "began": began, "ended": ended, "writer_cpu_s": cpu_ended - cpu_began,
        "writer_late_s_max": round(changes.late_s_max, 3), **summary(latencies),
    }  # fmt: skip
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
