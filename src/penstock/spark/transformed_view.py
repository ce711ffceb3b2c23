"""The source's part of a verification of targets with `transforms`: its rows are read, transformed as in a
pipeline, and hashed as the target's rows are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager

import pyarrow as pa
import pyarrow.compute as pc

from penstock._core import arrow_schema
from penstock.model.buckets import Buckets, BucketSum, KeyExtent
from penstock.model.change import DELETED, SEQUENCE, free_name
from penstock.model.schema import TableSchema, TypeOptions
from penstock.sinks.base import Sink
from penstock.sinks.names import source_columns
from penstock.sources.read_view import ReadView
from penstock.sources.windows import Window
from penstock.spark.dead_letters import Letter, sift
from penstock.spark.transform_chain import Chain
from penstock.spark.transformed_sink import TransformedSink
from penstock.spark.verify import LOW_BITS, rows_of_buckets, share_of, sums_of
from penstock.transforms.comparison import TransformedRows

ROWS_AT_ONCE = 100_000
"""Rows that are transformed together: each time may cost a Spark job."""


def transformed_rows(sink: Sink, types: TypeOptions) -> Callable[[TableSchema], TransformedRows | None]:
    """For a table, what rows of its target are like. None: as those of the source."""

    def describe(schema: TableSchema) -> TransformedRows | None:
        chain = sink.chain(schema) if isinstance(sink, TransformedSink) else None
        if chain is None:
            return None
        table, options = schema.to_json(), types.to_json()
        fields = chain.columns(arrow_schema(table, "latest", options))
        own = [fields.field(name) for name in source_columns(tuple(fields.names))]
        return TransformedRows(table, options, pa.schema(own), chain.key_after)

    return describe


def transformed_views(
    views: Callable[[], AbstractContextManager[ReadView]], sink: Sink
) -> Callable[[], AbstractContextManager[ReadView]]:
    """The source's views, whose sums and rows are those that its targets should have."""
    if not isinstance(sink, TransformedSink):
        return views

    @contextmanager
    def opened() -> Iterator[ReadView]:
        with views() as view:
            yield TransformedView(view, sink)

    return opened


class TransformedView:
    """A `ReadView`. Tables without rules are summed up by the source."""

    def __init__(self, view: ReadView, sink: TransformedSink) -> None:
        self._view = view
        self._sink = sink

    @property
    def window(self) -> Window:
        return self._view.window

    def extent(self, schema: TableSchema) -> KeyExtent:
        return self._view.extent(schema)

    def batches(self, schema: TableSchema, types: TypeOptions) -> Iterator[pa.RecordBatch]:
        """The rows that the target should have."""
        chain = self._sink.chain(schema)
        assert chain is not None, "only tables with rules are read"
        # The view's session is read to its end, so that a row that fails leaves it usable.
        failure: Exception | None = None
        for table in _together(self._view.batches(schema, types)):
            if failure is None:
                try:
                    yield from _live(chain, table)
                except Exception as error:
                    failure = error
        if failure is not None:
            raise failure

    def sums(self, schema: TableSchema, buckets: Buckets, types: TypeOptions) -> dict[int, BucketSum]:
        made = transformed_rows(self._sink, types)(schema)
        if made is None:
            return self._view.sums(schema, buckets, types)
        batches = self.batches(schema, types)
        found = sums_of(batches, schema.to_json(), share_of(buckets), types, made)
        return {
            number: BucketSum(rows, (high << LOW_BITS) + low) for number, (rows, high, low) in found.items()
        }

    def rows(
        self, schema: TableSchema, buckets: Buckets, numbers: Collection[int], types: TypeOptions
    ) -> dict[str, int]:
        made = transformed_rows(self._sink, types)(schema)
        if made is None:
            return self._view.rows(schema, buckets, numbers, types)
        found: dict[str, int] = {}
        batches = self.batches(schema, types)
        share = share_of(buckets)
        for batch in rows_of_buckets(batches, schema.to_json(), share, sorted(numbers), types, made):
            found.update(zip(*[column.to_pylist() for column in batch.columns], strict=True))
        return found


def _together(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= ROWS_AT_ONCE:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)


def _live(chain: Chain, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows as a pipeline would write them, without those that it would leave out."""
    count = batch.num_rows
    whole = pa.RecordBatch.from_arrays(
        [
            *batch.columns,
            pa.repeat(pa.scalar(False), count),
            pa.repeat(pa.scalar(0, pa.int64()), count),
        ],
        [*batch.schema.names, DELETED, free_name(SEQUENCE, batch.schema.names)],
    )
    made = sift(chain, [whole], chain.key, _ignore) if chain.lists_failures else chain.in_driver([whole])
    for one in made:
        yield one.filter(pc.invert(one.column(DELETED)))


def _ignore(letter: Letter) -> None:
    """A comparison lists no row: the pipeline has."""
