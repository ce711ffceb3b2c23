"""Decodes the whole relay log into Arrow, as tasks do. Arguments: relay-log schemas-file layout threads
passes.

The file has the definition of a table a line. The splits of each table are the relay log's own. One thread
decodes them one after the other; two share them (layout `changelog`) or each build their share of the keys
from all of them (layout `latest`, as the pipeline's tasks do). A first pass, not timed, counts the changes by
kind. The others go over the log as often as takes some time, each time from nothing, and without waiting for
each other in between: over once in a fifth of a second, much of what is measured on two threads is how they
start and end. Told is one time over, of the pass with the median wall time.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from threading import Lock

import pyarrow as pa

from penstock._core import KeySet, RangeDecoder
from penstock.model.offset import LogRange, Split
from penstock.model.schema import TableId, TableSchema
from penstock.relaylog.outline import Outlines
from penstock.relaylog.reader import RelayLog

SPLIT_BYTES = 16 * 1024**2
"""Of small splits none waits long for another at the end, but each costs a start: on one thread 8 MiB take
8 % longer than 24."""
PASS_SECONDS = 1.5


class Work:
    """A pass, so many times over the splits of each table, whose definition is the JSON beside them."""

    def __init__(
        self, tables: list[tuple[str, list[Split]]], layout: str, threads: int, *, times: int = 1
    ) -> None:
        self._tables, self._layout, self._threads = tables, layout, threads
        self._times = times
        self._lock = Lock()
        self.rows = 0
        self.bytes = 0
        self.kinds: Counter[str] = Counter()

    def run(self, *, count_kinds: bool = False) -> None:
        jobs = [partial(job, count_kinds) for _ in range(self._times) for job in self._jobs()]
        if self._threads == 1:
            for job in jobs:
                job()
            return
        with ThreadPoolExecutor(self._threads) as pool:
            for future in [pool.submit(job) for job in jobs]:
                future.result()

    def _jobs(self) -> list[partial[None]]:
        outlines = Outlines({_id(table): splits for table, splits in self._tables})
        if self._layout == "latest":
            shares = range(self._threads)
            return [
                partial(self._latest, outlines, table, splits, share)
                for table, splits in self._tables
                for share in shares
            ]
        return [
            partial(self._changelog, outlines, table, split)
            for table, splits in self._tables
            for split in splits
        ]

    def _decoder(
        self,
        outlines: Outlines,
        table: str,
        split: Split,
        bucket: tuple[int, int] | None = None,
        seen: KeySet | None = None,
    ) -> RangeDecoder:
        return RangeDecoder(
            table,
            split.path,
            split.base,
            split.start,
            split.end,
            preamble=split.preamble,
            positions=outlines.positions(_id(table), split),
            layout=self._layout,
            bucket=bucket,
            seen=seen,
            identity_images=self._layout == "changelog",
        )

    def _changelog(self, outlines: Outlines, table: str, split: Split, count_kinds: bool) -> None:
        for batch in self._decoder(outlines, table, split):
            self._took(batch, "_change_type" if count_kinds else None)

    def _latest(
        self, outlines: Outlines, table: str, splits: list[Split], share: int, count_kinds: bool
    ) -> None:
        seen = KeySet(table)
        bucket = (share, self._threads) if self._threads > 1 else None
        for split in reversed(splits):
            for batch in self._decoder(outlines, table, split, bucket, seen):
                self._took(batch, "_penstock_deleted" if count_kinds else None)

    def _took(self, batch: pa.RecordBatch, kind: str | None) -> None:
        with self._lock:
            self.rows += batch.num_rows
            self.bytes += batch.nbytes
            if kind is not None:
                for item in batch.column(kind).value_counts().to_pylist():
                    self.kinds[str(item["values"])] += item["counts"]


@cache
def _id(table: str) -> TableId:
    return TableSchema.from_json(table).table


def main() -> None:
    folder, schemas_file, layout, threads, passes = sys.argv[1:]
    log = RelayLog.open(folder)
    everything = LogRange(log.start, log.end)
    tables = [
        (text, log.splits(everything, TableSchema.from_json(text).table, bytes_aim=SPLIT_BYTES))
        for text in Path(schemas_file).read_text().splitlines()
    ]

    began = time.monotonic()
    counted = Work(tables, layout, int(threads))
    counted.run(count_kinds=True)
    times = math.ceil(PASS_SECONDS / (time.monotonic() - began))
    timed = []
    for _ in range(int(passes)):
        began, cpu_began = time.monotonic(), time.process_time()
        done = Work(tables, layout, int(threads), times=times)
        done.run()
        timed.append(((time.monotonic() - began) / times, (time.process_time() - cpu_began) / times))
        assert done.rows == times * counted.rows
    wall_s, cpu_s = sorted(timed)[(len(timed) - 1) // 2]
    report = {
        "rows": counted.rows,
        "arrow_bytes": counted.bytes,
        "kinds": dict(counted.kinds),
        "splits": sum(len(splits) for _, splits in tables),
        "times": times,
        "wall_s": wall_s,
        "cpu_s": cpu_s,
    }
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
