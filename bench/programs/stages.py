"""What each stage of a backlog's way into an Iceberg table costs, alone. Arguments: relay-log schemas-file
pipeline-file.

Stages that are our own code run in this one thread, and their CPU time is its own. What Spark does is the CPU
time of this process and all its children, of runs that follow a first one, with one task slot.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from penstock import config as configuration
from penstock._core import KeySet, LatestReducer, RangeDecoder, arrow_schema
from penstock.config import SparkConfig
from penstock.model.offset import LogRange, Split
from penstock.model.schema import TableSchema
from penstock.relaylog.reader import RelayLog
from penstock.sinks.base import Commit, TableSink
from penstock.sinks.files import FileWriter
from penstock.sinks.registry import open_sink
from penstock.sinks.rows import Newer, Rows
from penstock.spark.session import build_session
from penstock.store.files import Folder

SPLIT_BYTES = 24 * 1024**2
MANY = 4096
"""A share of so many builds next to no rows: what is left is the cost of reading the range."""
EPOCHS = 20

Batches = list[pa.RecordBatch]


class Stages:
    def __init__(self, table: str, splits: list[Split], folder: Path) -> None:
        self.table, self.splits, self.folder = table, splits, folder
        self.rows: Batches = []
        self.seconds: dict[str, float] = {}

    def latest(
        self, splits: Iterable[Split], bucket: tuple[int, int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        seen = KeySet(self.table)
        for split in splits:
            yield from RangeDecoder(
                self.table, split.path, split.base, split.start, split.end, preamble=split.preamble,
                layout="latest", bucket=bucket, seen=seen,
            )  # fmt: skip

    def own(self) -> None:
        """Twice, for warm caches; the second counts."""
        for _ in range(2):
            self._timed("scan", lambda: list(self.latest(reversed(self.splits), (0, MANY))))
            self._timed("decode", lambda: self._keep(list(self.latest(reversed(self.splits)))))
            parts = [list(self.latest([split])) for split in self.splits]
            self._timed("reduce", lambda parts=parts: self._reduced(parts))  # type: ignore[misc]
            self._timed("write", self._written)

    def _timed(self, name: str, run: Callable[[], Any]) -> None:
        began = time.process_time()
        run()
        self.seconds[name] = time.process_time() - began

    def _keep(self, rows: Batches) -> None:
        self.rows = rows

    def _reduced(self, parts: list[Batches]) -> None:
        reducer = LatestReducer(self.table)
        for batch in (batch for part in parts for batch in part):
            reducer.push(batch)
        for _ in reducer.finish():
            pass

    def _written(self) -> None:
        fields = arrow_schema(self.table, "rows")
        writer = FileWriter(Folder.local(self.folder), fields)
        writer.remove(list(writer.files(self.rows)))


class OfSpark:
    """What Spark adds, on one slot."""

    def __init__(self, file: Path, stages: Stages) -> None:
        config = configuration.load(file)
        self.spark = build_session(SparkConfig(master="local[1]"), config.sink, stages.folder / "spark")
        self.pipeline = str(uuid.uuid4())
        self.sink = open_sink(config.sink, self.spark, self.pipeline)
        self.stages = stages

    def frame(self) -> Any:
        stages, kind = self.stages, from_arrow_schema(arrow_schema(self.stages.table, "latest"),
                                                      prefer_timestamp_ntz=True)  # fmt: skip
        table, splits = stages.table, stages.splits

        def made(indexes: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in indexes:
                for number in batch.column(0).to_pylist():
                    yield from Stages(table, splits, Path()).latest([splits[number]])

        return self.spark.range(0, len(splits), 1, len(splits)).mapInArrow(made, kind)

    def measure(self) -> dict[str, float]:
        key = TableSchema.from_json(self.stages.table).key
        frame = self.frame()
        plain = self._warm(lambda: frame.write.format("noop").mode("overwrite").save())
        shuffled = frame.repartition(2, *key)
        both = self._warm(lambda: shuffled.write.format("noop").mode("overwrite").save())
        found = {"shuffle": both[0] - plain[0]}
        found |= self._epochs()
        self.spark.stop()
        return found

    def _epochs(self) -> dict[str, float]:
        """Of commits that hold nearly nothing: with a Spark job for two tasks, and without one."""
        schema = TableSchema.from_json(self.stages.table)
        arrow = arrow_schema(self.stages.table, "latest")
        assert isinstance(self.sink, TableSink)
        self.sink.create(schema, arrow_schema(self.stages.table, "rows"))
        few = self.stages.rows[0].slice(0, 10)

        def tasks(consume: Any, result: str) -> Any:
            return self.spark.range(0, 2, 1, 2).mapInArrow(lambda indexes: consume(iter([few])), result)

        frame = self.spark.createDataFrame([], from_arrow_schema(arrow, prefer_timestamp_ntz=True))
        few_rows = Newer(driver_side=lambda: iter([few]))
        ways = {"epoch": Rows(frame, run=tasks), "small_epoch": Rows(frame, few_rows)}
        found, epoch = {}, 0
        for name, rows in ways.items():
            for number in range(2 * EPOCHS):
                if number == EPOCHS:
                    began, cpu = time.monotonic(), self._cpu()
                epoch += 1
                self.sink.append(schema.table, rows, Commit(self.pipeline, epoch))
            found[name] = (self._cpu() - cpu) / EPOCHS
            found[f"{name}_wall"] = (time.monotonic() - began) / EPOCHS
        return found

    def _warm(self, run: Callable[[], Any]) -> tuple[float, float]:
        run()
        cpu, began = self._cpu(), time.monotonic()
        run()
        return self._cpu() - cpu, time.monotonic() - began

    def _cpu(self) -> float:
        me = psutil.Process()
        times = [one.cpu_times() for one in (me, *me.children(recursive=True))]
        return sum(one.user + one.system for one in times)


def main() -> None:
    folder, schemas_file, file = sys.argv[1:]
    log = RelayLog.open(folder)
    [table] = Path(schemas_file).read_text().splitlines()
    splits = log.splits(
        LogRange(log.start, log.end), TableSchema.from_json(table).table, bytes_aim=SPLIT_BYTES
    )
    began, cpu = time.monotonic(), time.process_time()
    with tempfile.TemporaryDirectory(dir=Path(file).parent) as scratch:
        stages = Stages(table, splits, Path(scratch))
        stages.own()
        seconds = stages.seconds | OfSpark(Path(file), stages).measure()
        rows = sum(batch.num_rows for batch in stages.rows)
    report = {"changes": rows, "rows": rows, "splits": len(splits), "seconds": seconds}
    report |= {"wall_s": time.monotonic() - began, "cpu_s": time.process_time() - cpu}
    report |= {"bytes": sum(split.end - split.start for split in splits)}
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
