"""Rows of a step as Arrow batches in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from penstock.sinks.rows import Rows


def batches_of(rows: Rows) -> Iterator[pa.RecordBatch]:
    """The rows in the driver. If they are few, the driver makes them. Otherwise tasks make them and send them
    as Arrow; the rows of one task are in memory while the next task makes its own."""
    if rows.driver_side is not None:
        yield from rows.driver_side()
        return
    frame = rows.through(_as_messages, "batch binary")
    for row in frame.toLocalIterator(prefetchPartitions=True):
        with pa.ipc.open_stream(row[0]) as reader:
            yield from reader


def _as_messages(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.RecordBatch.from_arrays([pa.array([out.getvalue().to_pybytes()], pa.binary())], ["batch"])
