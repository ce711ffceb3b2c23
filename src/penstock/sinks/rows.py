"""Rows on their way into a sink, and what is known of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from typing_extensions import assert_never

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PIECE_BYTES = 8 * 1024**2
"""Bytes of Arrow in a batch of `pieces`, about: its text is in memory beside it."""

Batches = Iterator[pa.RecordBatch]

Consume = Callable[[Iterable[pa.RecordBatch]], Batches]


@dataclass(frozen=True)
class Computed:
    """Columns that Spark computes from others. `change`: is applied to the batches first. `needed`: the
    columns that Spark gets of the result. `select`: adds the columns `made` to a DataFrame of these."""

    change: Consume
    needed: pa.Schema
    select: Callable[[DataFrame], DataFrame]
    made: tuple[str, ...]


Compute = Callable[[Computed, Consume, Any], "DataFrame"]


@dataclass(frozen=True)
class AnyOrder:
    """The target may already hold later changes of these rows: compare `_sequence`."""


@dataclass(frozen=True)
class Newer:
    """All rows of the target that have one of these keys are older, so they can be replaced without a look at
    their `_sequence`."""

    driver_side: Callable[[], Batches] | None = None
    """Makes the same rows in this process, without a Spark job. None: they are too many for that."""


@dataclass(frozen=True)
class Incomplete:
    """Rows may lack columns, because the source logs only parts of rows. The column `PRESENT` of such a row
    has one character for each column of the source, `1` if the row has a value for it. It is NULL in a
    complete row.
    """

    places: Mapping[str, int]
    """For each column of the rows, its place in `_penstock_present`."""
    target_is_complete: bool
    """False: a snapshot is still running, so a row that the target does not have yet is left out. True: that
    is an error."""

    def renamed(self, sources: Mapping[str, str | None]) -> Incomplete:
        """These places for columns that are filled from others, by name. None: from no column."""
        places = {
            name: self.places[source]
            for name, source in sources.items()
            if source is not None and source in self.places
        }
        return Incomplete(places, self.target_is_complete)


RowKind = AnyOrder | Newer | Incomplete


@dataclass(frozen=True)
class ShardOf:
    """The one value that all rows have in a column of a target which several source tables share. Rows of the
    target with another value belong to other tables."""

    column: str
    value: str


@dataclass(frozen=True)
class Rows:
    """Rows in the layout `latest` or `changelog`. Nothing is decoded before a sink asks for it.

    `source`: the rows as a DataFrame, or a function that makes it. `run`: runs a function over the batches,
    inside the tasks that make them, and returns its results as a DataFrame with the schema that is the second
    argument. Without `run`, the function runs over the batches of the DataFrame. `compute`: the same for the
    batches with columns that Spark computes. They are made twice for it, which costs less than to pass all
    their columns through the JVM. None: that is not possible.
    """

    source: DataFrame | Callable[[], DataFrame]
    kind: RowKind = AnyOrder()
    run: Callable[[Consume, str], DataFrame] | None = None
    shard: ShardOf | None = None
    compute: Compute | None = None

    @cached_property
    def frame(self) -> DataFrame:
        return self.source() if callable(self.source) else self.source

    @property
    def incomplete(self) -> Incomplete | None:
        return self.kind if isinstance(self.kind, Incomplete) else None

    @property
    def driver_side(self) -> Callable[[], Batches] | None:
        """See `Newer.driver_side`."""
        return self.kind.driver_side if isinstance(self.kind, Newer) else None

    def through(self, consume: Consume, schema: str) -> DataFrame:
        """What a function returns for the batches, of which each task passes its own. It is pickled."""
        if self.run is not None:
            return self.run(consume, schema)
        return map_batches(self.frame, consume, schema)

    def changed(
        self,
        change: Consume,
        sources: Mapping[str, str | None],
        frame: Callable[[], DataFrame],
        shard: ShardOf | None = None,
    ) -> Rows:
        """The same rows with other columns: `change` makes their batches, and `frame` their DataFrame.
        `sources`: for each column of the result, the one that fills it (None: NULL)."""

        def run(consume: Consume, result: str) -> DataFrame:
            return self.through(lambda batches: consume(change(batches)), result)

        return Rows(frame, changed_kind(self.kind, change, sources), run, shard)


def changed_kind(kind: RowKind, change: Consume, sources: Mapping[str, str | None]) -> RowKind:
    """What is known of rows, after their columns were changed as `Rows.changed` says."""
    match kind:
        case AnyOrder():
            return kind
        case Newer(driver_side=make):
            return kind if make is None else Newer(lambda: change(make()))
        case Incomplete():
            return kind.renamed(sources)
        case _:
            assert_never(kind)


@dataclass(frozen=True)
class Projection:
    """Batches with the columns `fields`, each filled from the column in `sources` (None: NULL). A value that
    does not fit the type becomes NULL. Pickles."""

    fields: pa.Schema
    sources: tuple[str | None, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        for batch in batches:
            arrays = [
                pa.nulls(batch.num_rows, field.type)
                if source is None
                else converted(batch.column(source), field.type)
                for field, source in zip(self.fields, self.sources, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.fields)


def map_batches(frame: DataFrame, consume: Consume, schema: Any) -> DataFrame:
    """`mapInArrow` for columns of any name: PySpark's own treats dots and backticks in them as syntax."""
    names = frame.columns

    def body(batches: Iterable[pa.RecordBatch]) -> Batches:
        return consume(pa.RecordBatch.from_arrays(batch.columns, names) for batch in batches)

    return frame.toDF(*[f"c{number}" for number in range(len(names))]).mapInArrow(body, schema)


def pieces(batches: Iterable[pa.RecordBatch]) -> Batches:
    """The rows in batches of about `PIECE_BYTES`, for sinks that turn each batch into text."""
    for batch in batches:
        rows = max(1, batch.num_rows * PIECE_BYTES // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def converted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values in another type. A value that does not fit becomes NULL."""
    if array.type == kind:
        return array
    try:
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if not pa.types.is_string(array.type) and not pa.types.is_string(kind):
            return converted(converted(array, pa.string()), kind)
        if len(array) <= 1:
            return pa.nulls(len(array), kind)
        half = len(array) // 2
        return pa.concat_arrays([converted(array[:half], kind), converted(array[half:], kind)])
