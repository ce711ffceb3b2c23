"""The least that writing a backlog's rows costs: pyarrow writes the rows that are left, with the codec of the
sink. Arguments: relay-log schemas-file shares.

The rows are decoded in `shares` parts by key, and only writing them is timed. CPU time is that of this
process, pyarrow's threads included.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock._core import KeySet, RangeDecoder
from penstock.model.change import DELETED
from penstock.model.offset import LogRange
from penstock.model.schema import TableSchema
from penstock.relaylog.reader import RelayLog
from penstock.sinks.files import DICTIONARY_BYTES_MAX

SPLIT_BYTES = 24 * 1024**2
ROW_GROUP_ROWS = 100_000
"""About what the sink puts into a row group."""


def main() -> None:
    folder, schemas_file, shares = sys.argv[1], sys.argv[2], int(sys.argv[3])
    log = RelayLog.open(folder)
    [table] = Path(schemas_file).read_text().splitlines()
    name = TableSchema.from_json(table).table
    splits = list(reversed(log.splits(LogRange(log.start, log.end), name, bytes_aim=SPLIT_BYTES)))
    rows = size = 0
    wall_s = cpu_s = 0.0
    with tempfile.TemporaryDirectory() as scratch:
        for share in range(shares):
            seen = KeySet(table)
            batches: list[pa.RecordBatch] = []
            for split in splits:
                batches += RangeDecoder(
                    table, split.path, split.base, split.start, split.end, preamble=split.preamble,
                    layout="latest", bucket=(share, shares), seen=seen,
                )  # fmt: skip
            whole = pa.Table.from_batches(batches)
            left = whole.filter(pc.invert(whole[DELETED]))
            path = Path(scratch, f"{share}.parquet")
            began, cpu = time.monotonic(), time.process_time()
            pq.write_table(
                left, path, compression="zstd", store_decimal_as_integer=True,
                dictionary_pagesize_limit=DICTIONARY_BYTES_MAX, row_group_size=ROW_GROUP_ROWS,
            )  # fmt: skip
            wall_s += time.monotonic() - began
            cpu_s += time.process_time() - cpu
            rows += len(left)
            size += path.stat().st_size
    print(json.dumps({"rows": rows, "bytes": size, "wall_s": wall_s, "cpu_s": cpu_s}), flush=True)


if __name__ == "__main__":
    main()
