"""A reader of the relay log in Python, without Spark, follows `bench.live`, which is changed all the time,
while `penstock receive` writes the log. Arguments: pipeline-file warm-s seconds.

The latency of a change is the time from its commit, as the source's own log tells it, to the moment at which
the reader has it as a row of an Arrow batch; it is durable in the relay log by then. The reader looks for
more every half a millisecond. The writer's CPU time is told apart.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from bench.latency.changes import TABLE, Changes
from bench.latency.summary import summary
from bench.programs.latency import KINDS, microseconds
from penstock import config as configuration
from penstock._core import RangeDecoder
from penstock.model.offset import LogRange
from penstock.model.schema import TableId, TableSchema
from penstock.relaylog.reader import RelayLog
from penstock.sources.mysql.session import SourceSession

_LOOK_S = 0.0005
_START_S_MAX = 60
_END_S = 2
"""Without anything new after the last change: then everything has come."""


class Reader:
    """What has come so far: of each change when it was committed and when it was here."""

    def __init__(self, folder: Path, schema: TableSchema) -> None:
        self._log = RelayLog.open(folder)
        self._at = self._log.end
        self._schema, self._json = schema, schema.to_json()
        self.changes: list[tuple[int, int]] = []
        self.counts: Counter[str] = Counter()

    def follow(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            end = self._log.refresh()
            if end == self._at:
                time.sleep(_LOOK_S)
                continue
            for split in self._log.splits(LogRange(self._at, end), self._schema.table, bytes_aim=1 << 30):
                where = (split.path, split.base, split.start, split.end)
                for batch in RangeDecoder(self._json, *where, preamble=split.preamble, before_images=False):
                    here_us = time.time_ns() // 1000
                    self.changes += [(commit_us, here_us) for commit_us in microseconds(batch)]
                    self.counts.update(KINDS[kind] for kind in batch.column("_change_type").to_pylist())
            self._at = end


def main() -> None:
    file, warm_s, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    sys.setswitchinterval(0.0005)  # the writer is a thread of this process
    config = configuration.load(file)
    session = SourceSession(config.source)
    schema = session.read_table(TableId.parse(TABLE))
    session.close()
    assert schema is not None, f"the source has no table {TABLE}"
    receiver = subprocess.Popen([sys.executable, "-m", "penstock", "receive", file])
    try:
        deadline = time.monotonic() + _START_S_MAX
        while not RelayLog.exists(config.relay_log_path):
            if receiver.poll() is not None or time.monotonic() > deadline:
                sys.exit("Error: the receiver has not begun")
            time.sleep(_LOOK_S)
        reader = Reader(config.relay_log_path, schema)
        changes = Changes(config.source)
        reader.follow(warm_s)
        began, began_us, cpu_began = time.monotonic(), time.time_ns() // 1000, changes.cpu_s
        reader.follow(seconds)
        ended, ended_us, cpu_ended = time.monotonic(), time.time_ns() // 1000, changes.cpu_s
        changes.stop()
        reader.follow(_END_S)
    finally:
        receiver.terminate()
        receiver.wait(60)
    if reader.counts != changes.counts:
        sys.exit(f"Error: {changes.counts} were written, the reader has {dict(reader.counts)}")
    latencies = [
        (here_us - commit_us) / 1e6
        for commit_us, here_us in reader.changes
        if began_us <= commit_us < ended_us
    ]
    report = {
        "changes": len(latencies), "began": began, "ended": ended, "writer_cpu_s": cpu_ended - cpu_began,
        "writer_late_s_max": round(changes.late_s_max, 3), **summary(latencies),
    }  # fmt: skip
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
