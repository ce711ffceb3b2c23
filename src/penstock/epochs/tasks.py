"""What runs in Spark's Python workers: decoding splits, placing chunks, staging chunks.

Each function takes values that can be pickled, and yields Arrow batches. Nothing in this module knows
plans, sinks or the state. The native module is imported inside the functions, so a worker that never
decodes does not load it. Errors of the core become `TableError`s in a form that survives the way through
the JVM, which carries only text: see `penstock.failures.crossing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from penstock.cascades.parent_changes import Watched, change_schema, changes_of
from penstock.errors import InternalError, TableError
from penstock.failures.crossing import crossing
from penstock.model.change import PRESENT, SEQUENCE, own_name
from penstock.model.chunk import StagedChunk
from penstock.model.offset import Offset, Split
from penstock.model.plan import Scan
from penstock.model.schema import TableSchema, TypeOptions
from penstock.printable import argument

if TYPE_CHECKING:
    from penstock._core import KeySet
    from penstock.snapshot.staging import Staging
    from penstock.sources.row_images import Computation

Batches = Iterator[pa.RecordBatch]

NUMBER = "_penstock_task"
"""The column with the number of a task."""


@dataclass(frozen=True)
class DecodeTask:
    """A share of a table's events.

    Layout `latest`: `splits` in the order of the log, reduced to the last change of each key in the share
    `bucket`. With `partial_images` the rows may still lack columns, as `_present` says. Layout `changelog`:
    every row image of `splits`.
    """

    table: str
    splits: tuple[Split, ...]
    layout: str
    types: TypeOptions
    bucket: tuple[int, int] | None = None
    before_images: bool = True
    identity_images: bool = False
    """Layout `changelog`: see `_core.RangeDecoder`."""
    partial_images: bool = False
    """Row images may lack columns. `defaults`: the values of columns that inserts leave out."""
    defaults: pa.RecordBatch | None = None
    moved: Literal["refused", "taken", "only"] = "refused"
    """See `_core.RangeDecoder`. `completion`: completes moved rows."""
    completion: pa.RecordBatch | None = None
    computation: Computation | None = None
    """Row images may lack generated columns. This is how the source computes them."""
    columns: tuple[str, ...] | None = None
    """The columns to decode; None: all."""
    positions: tuple[bytes | None, ...] = ()
    """For each split, the positions of the table's events (`relaylog/outline.py`). Empty: unknown."""

    @property
    def parts(self) -> list[tuple[Split, bytes | None]]:
        """Each split with its positions."""
        return list(zip(self.splits, self.positions or (None,) * len(self.splits), strict=True))


@dataclass(frozen=True)
class ChangesTask:
    """The deletes and updates in one split that foreign keys pass on to other tables."""

    table: str
    split: Split
    watched: Watched
    types: TypeOptions


@dataclass(frozen=True)
class PlaceTask:
    """Staged chunks of one table, to be placed at `sequence` without the keys that the `scans` find."""

    table: str
    staging: Staging
    chunks: tuple[StagedChunk, ...]
    scans: tuple[Scan, ...]
    sequence: Offset
    layout: Literal["latest", "changelog"]
    types: TypeOptions
    defaults: pa.RecordBatch | None = None
    """The values of columns that inserts leave out."""


def decode(task: DecodeTask) -> Batches:
    """The rows of a table's events."""
    with ExitStack() as stack:
        batches = _images(task)
        if task.computation is not None:
            computer = stack.enter_context(task.computation.computer(task.types))
            batches = computer.fill(batches)
        yield from _put_together(task, batches) if task.partial_images else batches


def _images(task: DecodeTask) -> Batches:
    from penstock._core import KeySet

    if task.layout == "latest":
        seen = KeySet(task.table, types=task.types.to_json())
        for split, positions in reversed(task.parts):
            yield from _decoder(task, split, positions, seen)
        return
    for split, positions in task.parts:
        yield from _decoder(task, split, positions)


def _put_together(task: DecodeTask, batches: Batches) -> Batches:
    """One row per key. The log is read backwards, so the first complete row of a key is its final one. As
    long as no row lacks columns, no row has to stay in memory."""
    from penstock._core import LatestReducer

    reducer: LatestReducer | None = None
    for batch in batches:
        if reducer is None:
            if batch.column(PRESENT).null_count == batch.num_rows:
                yield batch
                continue
            reducer = LatestReducer(task.table, types=task.types.to_json())
        reducer.push(batch)
    if reducer is not None:
        if task.completion is not None:
            reducer.complete(task.completion)
        yield from reducer.finish()


def moved_rows(task: DecodeTask) -> list[pa.RecordBatch]:
    """The moved rows of a table's events."""
    only = replace(task, partial_images=True, moved="only")
    return [batch for batch in _images(only) if batch.num_rows]


def _decoder(task: DecodeTask, split: Split, positions: bytes | None, seen: KeySet | None = None) -> Batches:
    from penstock._core import RangeDecoder
    from penstock.relaylog.segment_bytes import opened

    part = opened(split)
    return iter(
        RangeDecoder(
            task.table,
            *part.place,
            preamble=part.preamble,
            positions=positions,
            layout=task.layout,
            columns=task.columns,
            before_images=task.before_images,
            identity_images=task.identity_images,
            bucket=task.bucket,
            seen=seen,
            types=task.types.to_json(),
            partial_images=task.partial_images,
            moved=task.moved,
            defaults=task.defaults,
            base_columns=None if task.computation is None else task.computation.base,
        )
    )


def changes(task: ChangesTask) -> Batches:
    """The changes of a parent table that matter for foreign keys."""
    from penstock._core import RangeDecoder
    from penstock.relaylog.segment_bytes import opened

    schema, part = TableSchema.from_json(task.table), opened(task.split)
    names = [schema.columns[place].name for place in task.watched.places]
    decoder = RangeDecoder(
        task.table,
        *part.place,
        preamble=part.preamble,
        columns=names,
        foreign_key_checks=True,
        types=task.types.to_json(),
    )
    yield from changes_of(decoder, names, task.watched, change_schema(schema, task.watched, task.types))


def layout(schema: TableSchema, name: str, types: TypeOptions) -> pa.Schema:
    """See `penstock._core.arrow_schema`."""
    from penstock._core import arrow_schema

    return arrow_schema(schema.to_json(), name, types.to_json())


def reduce_latest(table: str, types: TypeOptions, batches: Iterable[pa.RecordBatch]) -> Batches:
    """The last change of each key, from rows that were shuffled by key."""
    from penstock._core import LatestReducer

    reducer = LatestReducer(table, types=types.to_json())
    for batch in batches:
        reducer.push(batch)
    yield from reducer.finish()


def place(task: PlaceTask) -> Batches:
    """The rows of staged chunks, without those that are newer in the log."""
    from penstock._core import KeySet
    from penstock.errors import ChunkCorrupt
    from penstock.relaylog.segment_bytes import opened
    from penstock.relaylog.segment_format import without
    from penstock.snapshot.placement import place_named, place_rows

    schema = TableSchema.from_json(task.table)
    keys = None
    if schema.key:
        # Even if the source logs whole rows, because a session may have another setting.
        merges = task.layout == "latest"
        keys = KeySet(task.table, types=task.types.to_json(), partial_images=merges, defaults=task.defaults)
    for scan in task.scans:
        for split in scan.splits:
            assert keys is not None, "a table without a key has nothing to scan for"
            part = opened(split)
            keys.add_split(*part.place, preamble=part.preamble, **without(scan.seen))
    for staged in task.chunks:
        try:
            rows, named = task.staging.open_chunk(staged), staged.chunk.keys
            if named:
                assert keys is not None, "a table without a key has no keys to be named"
                yield from place_named(
                    rows, named, keys, task.sequence, schema, layout=task.layout, types=task.types
                )
            else:
                yield from place_rows(rows, keys, task.sequence, schema, layout=task.layout, types=task.types)
        except ChunkCorrupt as error:
            # The plan names this attempt, so no other attempt can replace it.
            raise TableError(
                error.message,
                hint="Check the disk or store, then run "
                f"`penstock resnapshot FILE {argument(schema.table)}`.",
                table=str(schema.table),
            ) from error


def run_tasks(
    run: Callable[[Any], Batches],
    tasks: tuple[Any, ...],
    table: str,
    consume: Callable[[Iterable[pa.RecordBatch]], Batches] | None = None,
) -> Callable[[Iterable[pa.RecordBatch]], Batches]:
    """A function for `spark.range(n).mapInArrow`, in which row i of the range runs task i. `consume` gets
    all their batches in the same process, and what it returns is the result."""

    crosses = crossing(table)

    def made(indexes: Iterable[pa.RecordBatch]) -> Batches:
        for batch in indexes:
            for index in batch.column(0).to_pylist():
                yield from run(tasks[index])

    def body(indexes: Iterable[pa.RecordBatch]) -> Batches:
        with crosses.guard():
            batches = made(indexes)
            yield from batches if consume is None else consume(batches)

    return body


def needed_columns(
    run: Callable[[Any], Batches],
    tasks: tuple[Any, ...],
    table: str,
    change: Callable[[Iterable[pa.RecordBatch]], Batches],
    names: list[str],
) -> Callable[[Iterable[pa.RecordBatch]], Batches]:
    """The first half of `Rows.compute`, for `spark.range(n).mapInArrow`: these columns, and the number of the
    task."""
    crosses = crossing(table)

    def body(indexes: Iterable[pa.RecordBatch]) -> Batches:
        with crosses.guard():
            for index in _numbers(indexes):
                for batch in change(run(tasks[index])):
                    number = pa.repeat(pa.scalar(index, pa.int32()), batch.num_rows)
                    columns = [number, *[batch.column(name) for name in names]]
                    yield pa.RecordBatch.from_arrays(columns, [NUMBER, *names])

    return body


def with_columns(
    run: Callable[[Any], Batches],
    tasks: tuple[Any, ...],
    table: str,
    change: Callable[[Iterable[pa.RecordBatch]], Batches],
    consume: Callable[[Iterable[pa.RecordBatch]], Batches],
) -> Callable[[Iterable[pa.RecordBatch]], Batches]:
    """The second half. It gets what Spark has made of the first half's rows, in their order, and makes the
    whole rows again: decoding a range twice gives equal batches."""
    crosses = crossing(table)

    def body(computed: Iterable[pa.RecordBatch]) -> Batches:
        with crosses.guard():
            results = Together(computed)
            number = results.number()
            if number is None:
                return  # there are no rows
            yield from consume(results.beside(change(run(tasks[number]))))
            results.refuse_more()

    return body


def _numbers(indexes: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in indexes:
        yield from batch.column(0).to_pylist()


class Together:
    """Puts computed columns beside the rows that they were computed from. Raises `InternalError` if these are
    not the same rows."""

    def __init__(self, computed: Iterable[pa.RecordBatch]) -> None:
        self._computed = iter(computed)
        self._waiting: pa.RecordBatch | None = None
        """Computed rows that are not put beside the rows of a batch yet."""

    def number(self) -> int | None:
        """The number of the task. None: no rows came."""
        self._fetch()
        if self._waiting is None:
            return None
        found: int = self._waiting.column(NUMBER)[0].as_py()
        return found

    def _fetch(self) -> None:
        while self._waiting is None or not self._waiting.num_rows:
            self._waiting = next(self._computed, None)
            if self._waiting is None:
                return

    def beside(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        for batch in batches:
            place = 0
            while place < batch.num_rows:
                self._fetch()
                if self._waiting is None:
                    raise _other_rows()
                rows = min(batch.num_rows - place, self._waiting.num_rows)
                yield _joined(batch.slice(place, rows), self._waiting.slice(0, rows))
                self._waiting = self._waiting.slice(rows)
                place += rows

    def refuse_more(self) -> None:
        self._fetch()
        if self._waiting is not None:
            raise _other_rows()


def _joined(batch: pa.RecordBatch, computed: pa.RecordBatch) -> pa.RecordBatch:
    sequence = own_name(SEQUENCE, computed.schema.names)
    if sequence in computed.schema.names and not computed.column(sequence).equals(batch.column(sequence)):
        raise _other_rows()
    names = [name for name in computed.schema.names if name not in (NUMBER, sequence)]
    columns = [*batch.columns, *[computed.column(name) for name in names]]
    return pa.RecordBatch.from_arrays(columns, [*batch.schema.names, *names])


def _other_rows() -> InternalError:
    return InternalError("Rows that were made twice are not the same.")


def first_imports(batches: Iterable[pa.RecordBatch]) -> Batches:
    """Makes a worker import the modules that its first real task needs."""
    import penstock._core
    import penstock.sinks.files
    import penstock.snapshot.staging  # noqa: F401

    yield from batches
