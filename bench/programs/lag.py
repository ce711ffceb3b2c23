"""A pipeline streams `bench.ticks`; then a large table is added by a signal, and read beside the stream.
Arguments: pipeline-file table before-s during-s.

Each tick is a transaction of one row that holds the time at which it was sent. Its lag is the time from then
to the end of the epoch that brought it to the target, by the pipeline's own history: both clocks are this
machine's. The ticks are those in the target, and all that were written must be there. The first part lasts
`before-s`; the second one from the signal to the end of the snapshot, but at most `during-s`.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any

from penstock import config as configuration
from penstock.config import PipelineConfig
from penstock.model.offset import SourcePosition
from penstock.relaylog import segment_format
from penstock.sources import registry
from penstock.sources.mysql.connection import connect
from penstock.sources.mysql.options import options_of
from penstock.sources.postgresql.log_position import lsn_of
from penstock.testing.running import RunningPipeline

TICKS = "bench.ticks"
TICKS_PER_S = 50
_WARM_EPOCHS = 10
_START_S_MAX = 180
_DRAIN_S_MAX = 600
_POLL_S = 0.5


@dataclass
class Ticks:
    """Writes ticks until it is told to stop."""

    config: PipelineConfig
    written: int = 0
    stopped: threading.Event = field(default_factory=threading.Event)
    failed: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.stopped.set()
        self._thread.join(60)
        if self.failed:
            raise self.failed[0]

    def _run(self) -> None:
        connection = connect(options_of(self.config))
        due = time.monotonic()
        try:
            with connection.cursor() as cursor:
                while not self.stopped.wait(max(0.0, due - time.monotonic())):
                    cursor.execute(f"INSERT INTO {TICKS} VALUES ({self.written}, {time.time_ns() // 1000})")
                    connection.commit()
                    self.written += 1
                    due += 1 / TICKS_PER_S
        except BaseException as error:
            self.failed.append(error)
        finally:
            connection.close()


@dataclass
class Epochs:
    """Which offsets were at the target when, collected while the pipeline still remembers."""

    path: Path
    applied: dict[int, tuple[int, int]] = field(default_factory=dict)
    """End offset and time in µs, by epoch."""

    def collect(self) -> None:
        with contextlib.closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as database:
            rows = database.execute(
                "SELECT epoch, end, applied_us FROM epochs WHERE applied_us IS NOT NULL AND epoch > ?",
                (max(self.applied, default=-1),),
            )
            self.applied.update({epoch: (end, applied_us) for epoch, end, applied_us in rows})

    def lags_s(self, ticks: list[tuple[int, int]]) -> list[tuple[int, float]]:
        """For ticks `(sent_us, sequence)`: when sent, and how long after that the target had them."""
        epochs = sorted(self.applied.values())
        lags, at = [], 0
        for sent_us, sequence in sorted(ticks, key=lambda tick: tick[1]):
            while epochs[at][0] < sequence:
                at += 1
            lags.append((sent_us, (epochs[at][1] - sent_us) / 1e6))
        return lags


def main() -> None:
    file, table, before_s, during_s = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
    config = configuration.load(file)
    epochs = Epochs(config.state / "state.sqlite")
    with RunningPipeline(file) as pipeline:
        ticks = Ticks(config)
        pipeline.wait_until(streams, "the stream", seconds=_START_S_MAX)
        before = Phase()
        before.watch(pipeline, epochs, lambda: False, seconds=before_s)
        during = Phase()
        signal = ["signal", str(file), "add-table", table]
        subprocess.run([sys.executable, "-m", "penstock", *signal], check=True, stdout=subprocess.DEVNULL)
        during.watch(pipeline, epochs, lambda: is_read(pipeline.latest, table), seconds=during_s)
        finished = is_read(pipeline.latest, table)
        placed = of_table(pipeline.latest, table).get("rows_placed", 0)
        ticks.stop()
        place = source_position(config)
        pipeline.wait_until(partial(applied, place), "the last tick", seconds=_DRAIN_S_MAX)
        pipeline.stop()
        epochs.collect()
    found = query(file, f"SELECT sent_us, _sequence FROM {TICKS.partition('.')[2]} WHERE id >= 0")
    rows = query(file, f"SELECT count(*) AS n FROM {table.partition('.')[2]}")[0]["n"] if finished else None
    if len(found) != ticks.written:
        sys.exit(f"Error: {ticks.written} ticks were written, the target has {len(found)}")
    lags = epochs.lags_s([(row["sent_us"], row["_sequence"]) for row in found])
    report = {
        "before": before.to_json(lags), "during": during.to_json(lags), "rows_placed": placed,
        "rows_at_target": rows, "finished": finished,
    }  # fmt: skip
    print(json.dumps(report), flush=True)


def streams(status: dict[str, Any]) -> bool:
    """The first reading of the ticks is over, and some epochs, so that little is still cold."""
    return bool(status["snapshot"]["done"]) and int(status["since_start"]["epochs"]) >= _WARM_EPOCHS


def source_position(config: PipelineConfig) -> SourcePosition:
    """The end of the source's log."""
    source = registry.kind(config.source.type).open(config, foreign_keys=False)
    try:
        position: SourcePosition = source.end_position()
        return position
    finally:
        source.close()


def applied(place: SourcePosition, status: dict[str, Any]) -> bool:
    """The source's log up to `place` is at the targets."""
    reached = position_of(status["source_position"])
    return reached.order >= place.order and status["offset"] >= status["log_end"]


def position_of(text: str) -> SourcePosition:
    """A place of MySQL (`file:position`) or PostgreSQL (an LSN)."""
    if "/" in text:
        return segment_format.lsn_position(lsn_of(text))
    file, _, number = text.rpartition(":")
    return segment_format.position(file, int(number or 0))


def of_table(status: dict[str, Any], table: str) -> dict[str, Any]:
    found: dict[str, Any] = next((one for one in status["tables"] if one["table"] == table), {})
    return found


def is_read(status: dict[str, Any], table: str) -> bool:
    chunks = of_table(status, table).get("chunks", {"total": 0, "placed": 0})
    return bool(status["snapshot"]["done"]) and 0 < chunks["total"] == chunks["placed"]


def query(file: Path, sql: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "penstock", "query", str(file), sql, "--json", "--limit", "10000000"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


class Phase:
    """A span of time, from when it is made to the end of `watch`."""

    def __init__(self) -> None:
        self.began, self.began_us = time.monotonic(), time.time_ns() // 1000

    def watch(self, pipeline: RunningPipeline, epochs: Epochs, over: Any, *, seconds: float) -> None:
        while not over() and time.monotonic() < self.began + seconds:
            if not pipeline.alive:
                sys.exit(f"Error: the pipeline ended: {pipeline.errors[-2000:]}")
            epochs.collect()
            time.sleep(_POLL_S)
        self.ended, self.ended_us = time.monotonic(), time.time_ns() // 1000

    def to_json(self, lags: list[tuple[int, float]]) -> dict[str, Any]:
        """About the ticks that were sent in this time."""
        mine = [lag for sent_us, lag in lags if self.began_us <= sent_us < self.ended_us]
        if len(mine) < 20:
            sys.exit(f"Error: only {len(mine)} ticks in {self.ended - self.began:.0f} s")
        percent = quantiles(mine, n=100)
        return {
            "began": self.began, "ended": self.ended, "changes": len(mine),
            "lag_p50_s": round(percent[49], 3), "lag_p95_s": round(percent[94], 3),
            "lag_max_s": round(max(mine), 3),
        }  # fmt: skip


if __name__ == "__main__":
    main()
