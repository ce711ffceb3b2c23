"""Lists rows that cannot be transformed: `transforms` with `on_error: dead_letter`.

After a write has failed because of a row, the rows are transformed once more, in the driver, some at a time.
Those that fail (`row_failures.py`) are written to a file of the commit before the others are written to the
target. A commit that is repeated writes the same file again.

A target must not keep an earlier version of such a row, so the row counts as deleted there. In a change log,
an update is left out if the row after it fails. If only the row before it does, readers do not have it: the
row after it is an `insert`.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from penstock.disk import directory
from penstock.disk.replace import PRIVATE, replace_by
from penstock.errors import TableError
from penstock.model.change import CHANGE_TYPE, DELETED, SEQUENCE, own_columns, own_name
from penstock.model.schema import TableId
from penstock.sinks.base import Commit
from penstock.sinks.names import directory_name
from penstock.spark.row_failures import Failures, failures
from penstock.spark.sql_stages import row_failure
from penstock.spark.transform_chain import Chain
from penstock.transforms.stages import AFTER, BEFORE, last_before, parts_of

FOLDER = "dead_letters"
ROWS_AT_ONCE = 65_536
"""Rows that are transformed together, so that the driver does not keep all of them in memory."""


Letter = dict[str, Any]
"""The entry of the list for one row."""


def sift(
    chain: Chain,
    batches: Iterable[pa.RecordBatch],
    key: tuple[str, ...],
    add: Callable[[Letter], None],
) -> Iterator[pa.RecordBatch]:
    """The rows after the chain, without those that fail. These are passed to `add`. `key`: the columns that
    say at the source which row it is."""
    for batch in _whole_pairs(batches):
        for start in parts_of(batch, ROWS_AT_ONCE):
            yield from _sift(chain, batch.slice(*start), key, add)


def _sift(
    chain: Chain, batch: pa.RecordBatch, key: tuple[str, ...], add: Callable[[Letter], None]
) -> Iterator[pa.RecordBatch]:
    left, letters = _Left.all_of(batch), dict[int, Letter]()
    while isinstance(found := _transformed(chain, left.rows), TableError):
        failing = left.not_deleted(failures(chain, left.rows))
        if not failing:
            raise found
        for place, error in failing.items():
            origin = left.places[place]
            letters[origin] = _letter(chain, batch, origin, key, error.message)
        left = left.without(failing)
    for _, letter in sorted(letters.items()):
        add(letter)
    yield from found


def _transformed(chain: Chain, rows: pa.RecordBatch) -> list[pa.RecordBatch] | TableError:
    """The error: a row fails."""
    try:
        return list(chain.in_driver([rows])) if rows.num_rows else []
    except Exception as error:
        failure = row_failure(chain.table, error)
        if failure is None:
            raise
        return failure


@dataclass(frozen=True)
class _Left:
    """What is left of a batch without the rows that fail. `places`: those of the rows in the batch."""

    rows: pa.RecordBatch
    places: Sequence[int]

    @classmethod
    def all_of(cls, batch: pa.RecordBatch) -> _Left:
        return cls(batch, range(batch.num_rows))

    def not_deleted(self, failing: Failures) -> Failures:
        """Those that can still be left out."""
        if DELETED not in self.rows.schema.names:
            return failing
        deleted = self.rows.column(DELETED)
        return {place: error for place, error in failing.items() if not deleted[place].as_py()}

    def without(self, failing: Collection[int]) -> _Left:
        rows = self.rows
        if DELETED in rows.schema.names:
            gone = [one or place in failing for place, one in enumerate(rows.column(DELETED).to_pylist())]
            return _Left(_replaced(rows, DELETED, pa.array(gone, pa.bool_())), self.places)
        kept = [place not in failing for place in range(rows.num_rows)]
        name = own_name(CHANGE_TYPE, rows.schema.names)
        if name in rows.schema.names:
            kinds = rows.column(name).to_pylist()
            for place in range(len(kinds) - 1):
                if (kinds[place], kinds[place + 1]) != (BEFORE, AFTER):
                    continue
                if place + 1 in failing:
                    kept[place] = False  # without the row after it, it says nothing
                elif place in failing:
                    kinds[place + 1] = "insert"
            rows = _replaced(rows, name, pa.array(kinds, pa.string()))
        return _Left(
            rows.filter(pa.array(kept, pa.bool_())),
            [origin for origin, one in zip(self.places, kept, strict=True) if one],
        )


def _replaced(batch: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    place = batch.schema.get_field_index(name)
    return batch.set_column(place, batch.schema.field(place), values)


def _letter(chain: Chain, batch: pa.RecordBatch, place: int, key: tuple[str, ...], reason: str) -> Letter:
    own = own_columns(batch.schema.names)
    names = [name for name in batch.schema.names if name in key or name in own]
    [row] = batch.select(names).slice(place, 1).to_pylist()
    kind = own_name(CHANGE_TYPE, names)
    return {
        "table": str(chain.table),
        "key": {name: row[name] for name in key if name in row},
        "reason": reason,
        "offset": row.get(own_name(SEQUENCE, names)),
        **({"change": row[kind]} if kind in own else {}),
    }


def _whole_pairs(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, none of which ends between the two rows of an update."""
    held: pa.RecordBatch | None = None
    for batch in batches:
        held, whole = last_before(batch if held is None else pa.concat_batches([held, batch]))
        if whole.num_rows:
            yield whole
    if held is not None:
        yield held


@contextlib.contextmanager
def listing(folder: Path, table: TableId, commit: Commit) -> Iterator[Callable[[Letter], None]]:
    """Takes the rows for the list of a commit, which is durable when the context ends. Lines of JSON. Without
    rows, there is no list."""
    target = folder / directory_name(str(table))
    path = target / f"e{commit.epoch:012d}s{commit.step:04d}.jsonl"
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with contextlib.ExitStack() as stack:
        file: IO[str] | None = None

        def add(letter: Letter) -> None:
            nonlocal file
            if file is None:
                directory.make(folder, "state")
                directory.make(target, "state")
                stack.callback(draft.unlink, missing_ok=True)
                file = stack.enter_context(open(draft, "w", encoding="utf-8", opener=_private))
            line = json.dumps({**letter, "epoch": commit.epoch}, default=str, ensure_ascii=False)
            file.write(f"{line}\n")

        yield add
        if file is not None:
            file.flush()
            replace_by(path, draft)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE)


def write(folder: Path, table: TableId, commit: Commit, letters: Iterable[Letter]) -> None:
    """Makes the list of a commit durable."""
    with listing(folder, table, commit) as add:
        for one in letters:
            add(one)
