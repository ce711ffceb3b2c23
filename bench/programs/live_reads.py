"""What it costs to read a table under small updates, with deletion vectors and with equality deletes.
Arguments: rows folder.

Two Iceberg tables get the same rows and then the same updates. One is written by the sink. In the other, each
epoch adds a file of new rows and an equality delete of their keys, as Flink's writer does and as Penstock did
before it had the key index. Spark reads both in turn, with nothing put together in between. The last line is
a JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from bench.programs.table_size import COLUMNS, TABLE, Sized
from penstock.model.schema import TableId
from penstock.sinks.files import field_id
from penstock.sinks.lake.iceberg.files import description, file_writer, key_writer
from penstock.sinks.lake.iceberg.options import IcebergOptions

OTHER = TableId("bench", "equality")
DELETES = {TABLE: "vectors", OTHER: "equality"}
EPOCHS = (0, 10, 50, 200)
"""After how many epochs the tables are read."""
SEED = 1
"""Of the values, so that both tables get the same."""
CHANGES = 200
"""Of one epoch."""
READS, WARM = 5, 2
"""Of each query on each table. The first ones do not count."""


def main() -> None:
    rows, folder = int(sys.argv[1]), Path(sys.argv[2])
    bench = Live(IcebergOptions(path=folder / "lake"), folder, rows)
    bench.fill_both()
    found = []
    for epochs in EPOCHS:
        bench.advance(epochs)
        found.append({"epochs": epochs, **bench.read()})
    bench.sink.close()
    bench.spark.stop()
    print(json.dumps({"rows": rows, "updates_per_epoch": CHANGES, "found": found}))


class Live(Sized):
    """The table of `table_size`, and one with the same rows whose updates are equality deletes."""

    def fill_both(self) -> None:
        for table in DELETES:
            np.random.seed(SEED)
            self.fill(table)
        self.done = 0

    def advance(self, epochs: int) -> None:
        for _ in range(epochs - self.done):
            batch = self.batch(np.random.choice(self.rows, CHANGES, replace=False))
            self.sink.merge(TABLE, self.made(lambda batch=batch: iter([batch])), ("id",), self.commit())
            self.replace_by_keys(batch)
        self.done = epochs

    def replace_by_keys(self, batch: pa.RecordBatch) -> None:
        """Adds a file with these rows, and one with their keys as equality deletes."""
        form = self.sink.format
        target, classes = form.load(OTHER), form._classes
        writer = file_writer(classes, target)
        keys = key_writer(writer, ("id",)) if writer is not None else None
        assert writer is not None and keys is not None
        spec, change = target.spec(), target.newRowDelta()
        for file in writer.files([batch]):
            change.addRows(classes.described(description(spec.specId(), file, writer.fields), spec))
        ids = [field_id(field) for field in keys.fields]
        for file in keys.files([batch.select(["id"])]):
            fields = description(spec.specId(), file, keys.fields)
            fields |= {"content": "EQUALITY_DELETES", "equality-ids": ids}
            change.addDeletes(classes.described(fields, spec))
        change.commit()

    def read(self) -> dict[str, Any]:
        """Each query on each table in turn. They must give the same answer."""
        queries: dict[str, Callable[[Any], Any]] = {
            "whole": lambda frame: frame.selectExpr("count(*)", "sum(a)", "sum(hash(note))").collect(),
            "one_key": lambda frame: frame.where(f"id = {self.rows // 3}").collect(),
        }
        found: dict[str, Any] = {}
        for name, query in queries.items():
            times: dict[str, list[tuple[float, float]]] = {way: [] for way in DELETES.values()}
            for _ in range(WARM + READS):
                answers = []
                for table, way in DELETES.items():
                    frame = self.sink.read(table).select(*COLUMNS.names)
                    began, cpu = time.monotonic(), self.cpu_s()
                    answers.append(query(frame))
                    times[way].append((time.monotonic() - began, self.cpu_s() - cpu))
                assert answers[0] == answers[1], (name, answers)
            for way, taken in times.items():
                seconds, cpus = zip(*taken[WARM:], strict=True)
                found[f"{name}_{way}"] = {"seconds": median(seconds), "cpu_s": median(cpus)}
        return found


if __name__ == "__main__":
    main()
