"""Small epochs of random updates to one Iceberg table of a given size. Arguments: rows folder.

No server and no log: rows are made here, and what is timed is the sink, from decoded rows to the commit. The
last line is a JSON object.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.config import SparkConfig
from penstock.model.schema import Column, TableId, TableSchema
from penstock.sinks.base import Commit
from penstock.sinks.lake.iceberg.options import IcebergOptions
from penstock.sinks.registry import open_sink
from penstock.sinks.rows import Newer, Rows
from penstock.spark.session import build_session

TABLE = TableId("bench", "sized")
COLUMNS = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.int64()), ("note", pa.string())])
LATEST = pa.schema(
    [
        *COLUMNS,
        ("_penstock_deleted", pa.bool_()),
        ("_sequence", pa.int64()),
    ]
)
FILE_ROWS, BATCH_ROWS = 1_000_000, 100_000
CHANGES, INTERVAL_S = 200, 0.2
"""Of one epoch, and how often there is one: 1,000 changes a second."""
WARM, COUNTED = 50, 300
"""Epochs."""
LARGE_CHANGES, LARGE_WARM, LARGE_COUNTED = 100_000, 2, 5
"""Epochs of a backlog."""


def main() -> None:
    rows, folder = int(sys.argv[1]), Path(sys.argv[2])
    options = IcebergOptions(path=folder / "lake")
    bench = Sized(options, folder, rows)
    bench.fill()
    found = bench.build() | bench.update() | bench.catch_up()
    bench.check()
    print(json.dumps(found))


class Sized:
    def __init__(self, options: IcebergOptions, folder: Path, rows: int) -> None:
        self.rows = rows
        self.folder = folder
        self.options = options
        self.spark = build_session(SparkConfig(master="local[2]"), options, folder / "state")
        self.pipeline = str(uuid.uuid4())
        self.sink: Any = open_sink(options, self.spark, self.pipeline)
        self.epoch = 0
        jvm: Any = self.spark.sparkContext._jvm
        self.jvm = int(jvm.java.lang.ProcessHandle.current().pid())

    def fill(self, table: TableId = TABLE) -> None:
        columns = tuple(Column(name, "bigint") for name in COLUMNS.names)
        self.sink.create(TableSchema(table, columns, ("id",)), COLUMNS)
        for start in range(0, self.rows, FILE_ROWS):
            end = min(start + FILE_ROWS, self.rows)

            def batches(start: int = start, end: int = end) -> Iterator[pa.RecordBatch]:
                for first in range(start, end, BATCH_ROWS):
                    yield self.batch(np.arange(first, min(first + BATCH_ROWS, end)))

            self.sink.append(table, self.made(batches), self.commit())

    def build(self) -> dict[str, Any]:
        """Until the first epoch that needs no Spark job, in a sink that has lost its index: one that wrote
        the table itself has noted the keys of each file. While the index is built, this process does nothing
        else."""
        self.sink.close()
        shutil.rmtree(self.folder / "state" / "index")
        self.sink = open_sink(self.options, self.spark, self.pipeline)
        began, cpu_began = time.monotonic(), time.process_time()
        self.merge(1)
        index = self.sink.format._indexes.known(TABLE)
        if index._building is not None:
            index._building.result()
        seconds, cpu = time.monotonic() - began, time.process_time() - cpu_began
        self.merge(1)
        index.index.save()
        size = sum(file.stat().st_size for file in (self.folder / "state" / "index").rglob("*.run"))
        return {"build_s": seconds, "build_cpu_s": cpu, "index_bytes": size}

    def update(self) -> dict[str, Any]:
        times: list[float] = []
        cpu = 0.0
        for number in range(WARM + COUNTED):
            if number == WARM:
                times, cpu = [], self.cpu_s()
            began = time.monotonic()
            self.merge(CHANGES)
            times.append(time.monotonic() - began)
            time.sleep(max(0.0, INTERVAL_S - times[-1]))
        times.sort()
        return {
            "rows": self.rows,
            "p50_s": times[COUNTED // 2],
            "p99_s": times[COUNTED * 99 // 100],
            "cpu_ms_per_change": (self.cpu_s() - cpu) / COUNTED / CHANGES * 1000,
        }

    def catch_up(self) -> dict[str, Any]:
        """Large epochs, one after the other."""
        cpu = began = 0.0
        for number in range(LARGE_WARM + LARGE_COUNTED):
            if number == LARGE_WARM:
                cpu, began = self.cpu_s(), time.monotonic()
            self.merge(LARGE_CHANGES)
        changes = LARGE_COUNTED * LARGE_CHANGES
        return {
            "large_cpu_s_per_million": (self.cpu_s() - cpu) / changes * 1e6,
            "large_per_s": changes / (time.monotonic() - began),
        }

    def check(self) -> None:
        """Every key is there once."""
        found = self.sink.read(TABLE).selectExpr("count(*)", "count(DISTINCT id)").collect()[0]
        assert tuple(found) == (self.rows, self.rows), found
        self.sink.close()
        self.spark.stop()

    def merge(self, changes: int) -> None:
        ids = np.array(random.sample(range(self.rows), changes))
        batch = self.batch(ids)
        self.sink.merge(TABLE, self.made(lambda: iter([batch])), ("id",), self.commit())

    def made(self, batches: Any) -> Rows:
        def frame() -> Any:
            return self.spark.createDataFrame(pa.Table.from_batches(list(batches())))

        return Rows(frame, Newer(driver_side=batches))

    def batch(self, ids: np.ndarray) -> pa.RecordBatch:
        count, number = len(ids), pa.array(np.random.randint(0, 10**9, len(ids)))
        note = pc.binary_join_element_wise("row", pc.cast(number, pa.string()), " ")
        arrays = [pa.array(ids), number, number, note, pa.repeat(False, count)]
        arrays += [pa.repeat(self.epoch, count), pa.repeat(0, count).cast(pa.timestamp("us", "UTC"))]
        return pa.RecordBatch.from_arrays(arrays, schema=LATEST)

    def commit(self) -> Commit:
        self.epoch += 1
        return Commit(self.pipeline, self.epoch)

    def cpu_s(self) -> float:
        """Of this process and its JVM."""
        fields = Path(f"/proc/{self.jvm}/stat").read_text().rpartition(")")[2].split()
        return time.process_time() + (int(fields[11]) + int(fields[12])) / 100


if __name__ == "__main__":
    main()
