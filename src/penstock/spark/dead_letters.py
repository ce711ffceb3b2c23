"""Lists rows that cannot be transformed: `transforms` with `on_error: dead_letter`.

After a write has failed because of a row, the rows are transformed once more, in the driver, some at a time.
What fails is halved until only the rows remain that fail by themselves. They are written to a file of the
commit before the others are written to the target. A commit that is repeated writes the same file again.

A target must not keep an earlier version of such a row, so the row counts as deleted there. In a change log,
an update is left out if the row after it fails. If only the row before it does, readers do not have it: the
row after it is an `insert`.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from penstock.disk import directory
from penstock.disk.replace import PRIVATE, replace_by
from penstock.model.change import CHANGE_TYPE, DELETED, SEQUENCE
from penstock.model.schema import TableId
from penstock.sinks.base import Commit
from penstock.sinks.names import directory_name
from penstock.spark.sql_stages import row_failure
from penstock.spark.transform_chain import Chain
from penstock.transforms.stages import AFTER, BEFORE, last_before

FOLDER = "dead_letters"
ROWS_AT_ONCE = 65_536
"""Rows that are tried together first. A failing row among them takes twice as many attempts as this number
has binary digits."""


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
        for start in _starts(batch, ROWS_AT_ONCE):
            yield from _sift(chain, batch.slice(*start), key, add)


def _sift(
    chain: Chain, batch: pa.RecordBatch, key: tuple[str, ...], add: Callable[[Letter], None]
) -> Iterator[pa.RecordBatch]:
    try:
        found = list(chain.in_driver([batch]))
    except Exception as error:
        failure = row_failure(chain.table, error)
        if failure is None:
            raise
    else:
        yield from found
        return
    parts = _starts(batch, max(1, batch.num_rows // 2))
    if len(parts) > 1:
        for part in parts:
            yield from _sift(chain, batch.slice(*part), key, add)
        return
    if batch.num_rows == 2:
        yield from _sift_update(chain, batch, key, add)
        return
    for row in batch.to_pylist():
        add(_letter(chain, row, key, failure.message))
    if DELETED in batch.schema.names:
        place = batch.schema.get_field_index(DELETED)
        gone = batch.set_column(place, DELETED, pa.repeat(True, batch.num_rows))
        yield from chain.in_driver([gone])


def _sift_update(
    chain: Chain, pair: pa.RecordBatch, key: tuple[str, ...], add: Callable[[Letter], None]
) -> Iterator[pa.RecordBatch]:
    """The rows that are left of an update of which at least one row fails."""
    list(_sift(chain, pair.slice(0, 1), key, add))  # without the row after it, it says nothing
    place = pair.schema.get_field_index(CHANGE_TYPE)
    after = pair.slice(1)
    entering = after.set_column(place, pair.schema.field(place), pa.array(["insert"], pa.string()))
    listed: list[Letter] = []
    yield from _sift(chain, entering, key, listed.append)
    for letter in listed:
        add({**letter, "change": AFTER})


def _letter(chain: Chain, row: dict[str, Any], key: tuple[str, ...], reason: str) -> Letter:
    return {
        "table": str(chain.table),
        "key": {name: row[name] for name in key if name in row},
        "reason": reason,
        "offset": row.get(SEQUENCE),
        **({"change": row[CHANGE_TYPE]} if CHANGE_TYPE in row else {}),
    }


def _starts(batch: pa.RecordBatch, rows: int) -> list[tuple[int, int]]:
    """Start and length of parts with about so many rows, which separate no update from the row before it."""
    kinds = batch.column(CHANGE_TYPE).to_pylist() if CHANGE_TYPE in batch.schema.names else []
    found, start = [], 0
    while start < batch.num_rows:
        end = min(start + rows, batch.num_rows)
        if kinds and kinds[end - 1] == BEFORE:
            end = min(end + 1, batch.num_rows)
        found.append((start, end - start))
        start = end
    return found


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
