"""A pipeline follows `bench.live`, which is changed all the time. Arguments: pipeline-file warm-s seconds.

The latency of a change is the time from its commit, as the source's own log tells it, to the moment at
which the pipeline has recorded the epoch that brought it to the target (which the target has committed
before). Both clocks are this machine's. All changes of the second part, of `seconds`, count, deletions too:
they are taken from the relay log when everything is over. The writer's CPU time is told apart, for it is no
part of a pipeline.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.latency.changes import TABLE, Changes
from bench.latency.summary import summary
from bench.programs.lag import Epochs, applied, source_position
from penstock import config as configuration
from penstock._core import RangeDecoder
from penstock.config import PipelineConfig
from penstock.model.offset import LogRange
from penstock.model.schema import TableId
from penstock.relaylog.reader import RelayLog
from penstock.sources import registry
from penstock.testing.running import RunningPipeline

_START_S_MAX = 180
_DRAIN_S_MAX = 600
_POLL_S = 0.5
KINDS = {"insert": "inserts", "update_postimage": "updates", "delete": "deletes"}


def main() -> None:
    file, warm_s, seconds = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    config = configuration.load(file)
    epochs = Epochs(config.state / "state.sqlite")
    with RunningPipeline(file) as pipeline:
        pipeline.wait_until(lambda status: status["snapshot"]["done"], "the snapshot", seconds=_START_S_MAX)
        changes = Changes(config.source)
        watch(pipeline, epochs, warm_s)
        began, began_us, cpu_began = time.monotonic(), time.time_ns() // 1000, changes.cpu_s
        watch(pipeline, epochs, seconds)
        ended, ended_us, cpu_ended = time.monotonic(), time.time_ns() // 1000, changes.cpu_s
        changes.stop()
        place = source_position(config)
        pipeline.wait_until(partial(applied, place), "the last change", seconds=_DRAIN_S_MAX)
        pipeline.stop()
        epochs.collect()
    commits, counts = logged(config)
    if counts != changes.counts:
        sys.exit(f"Error: {changes.counts} were written, the relay log has {counts}")
    latencies = [latency for commit_us, latency in epochs.lags_s(commits) if began_us <= commit_us < ended_us]
    report = {
        "changes": len(latencies), "began": began, "ended": ended, "writer_cpu_s": cpu_ended - cpu_began,
        "writer_late_s_max": round(changes.late_s_max, 3),
        "epochs": sum(began_us <= applied_us < ended_us for _, applied_us in epochs.applied.values()),
        "epochs_applied": len(epochs.applied), **summary(latencies),
    }  # fmt: skip
    print(json.dumps(report), flush=True)


def watch(pipeline: RunningPipeline, epochs: Epochs, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if not pipeline.alive:
            sys.exit(f"Error: the pipeline ended: {pipeline.errors[-2000:]}")
        epochs.collect()
        time.sleep(min(_POLL_S, left))


def logged(config: PipelineConfig) -> tuple[list[tuple[int, int]], dict[str, int]]:
    """Of each change in the relay log commit time in µs and sequence; how many there are of each kind."""
    source = registry.kind(config.source.type).open(config, foreign_keys=False)
    schema = source.catalog.read_table(TableId.parse(TABLE))
    source.close()
    assert schema is not None, f"the source has no table {TABLE}"
    log = RelayLog.open(config.relay_log_path)
    commits: list[tuple[int, int]] = []
    counts = dict.fromkeys(KINDS.values(), 0)
    for split in log.splits(LogRange(log.start, log.end), schema.table, bytes_aim=1 << 30):
        where = (split.path, split.base, split.start, split.end)
        for batch in RangeDecoder(
            schema.to_json(), *where, preamble=split.preamble, columns=["id"], before_images=False
        ):
            for item in batch.column("_change_type").value_counts().to_pylist():
                counts[KINDS[item["values"]]] += item["counts"]
            commits += zip(microseconds(batch), batch.column("_sequence").to_pylist(), strict=True)
    return commits, counts


def microseconds(batch: pa.RecordBatch) -> Any:
    return batch.column("_commit_timestamp").cast(pa.int64()).to_pylist()


if __name__ == "__main__":
    main()
