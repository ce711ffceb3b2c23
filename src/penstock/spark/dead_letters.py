"""Lists rows that cannot be transformed: `transforms` with `on_error: dead_letter`.

After a write has failed because of a row, the rows are transformed once more, in the driver. What fails is
halved until only the rows remain that fail by themselves. They are written to a file of the commit before
the others are written to the target. A commit that is repeated writes the same file again.

A target must not keep an earlier version of such a row, so the row counts as deleted there. In a change log,
both rows of an update are left out if one of them fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.disk import directory
from penstock.disk.replace import replace_file
from penstock.model.change import CHANGE_TYPE, DELETED, SEQUENCE
from penstock.model.schema import TableId
from penstock.sinks.base import Commit
from penstock.sinks.names import directory_name
from penstock.spark.sql_stages import row_failure
from penstock.spark.transform_chain import Chain
from penstock.transforms.stages import BEFORE, last_before

FOLDER = "dead_letters"
ROWS_AT_ONCE = 4096
"""Rows that are tried together first. A failing row among them takes twice as many attempts as this number
has binary digits."""


@dataclass
class Sifted:
    """Rows after the chain, and those that failed."""

    good: list[pa.RecordBatch] = field(default_factory=list)
    letters: list[dict[str, Any]] = field(default_factory=list)


def sift(chain: Chain, batches: Iterable[pa.RecordBatch], key: tuple[str, ...]) -> Sifted:
    """Transforms what can be transformed. `key`: the columns that say at the source which row it is."""
    found = Sifted()
    for batch in _whole_pairs(batches):
        for start in _starts(batch, ROWS_AT_ONCE):
            _sift(chain, batch.slice(*start), key, found)
    return found


def _sift(chain: Chain, batch: pa.RecordBatch, key: tuple[str, ...], found: Sifted) -> None:
    try:
        found.good += list(chain.in_driver([batch]))
        return
    except Exception as error:
        failure = row_failure(chain.table, error)
        if failure is None:
            raise
    parts = _starts(batch, max(1, batch.num_rows // 2))
    if len(parts) > 1:
        for part in parts:
            _sift(chain, batch.slice(*part), key, found)
        return
    found.letters += [_letter(chain, row, key, failure.message) for row in batch.to_pylist()]
    if DELETED in batch.schema.names:
        place = batch.schema.get_field_index(DELETED)
        gone = batch.set_column(place, DELETED, pa.repeat(True, batch.num_rows))
        found.good += list(chain.in_driver([gone]))


def _letter(chain: Chain, row: dict[str, Any], key: tuple[str, ...], reason: str) -> dict[str, Any]:
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


def write(folder: Path, table: TableId, commit: Commit, letters: list[dict[str, Any]]) -> None:
    """Makes the list of a commit durable, as JSON lines."""
    if not letters:
        return
    target = folder / directory_name(str(table))
    directory.make(folder, "state")
    directory.make(target, "state")
    lines = [json.dumps({**one, "epoch": commit.epoch}, default=str, ensure_ascii=False) for one in letters]
    name = f"e{commit.epoch:012d}s{commit.step:04d}.jsonl"
    replace_file(target / name, ("\n".join(lines) + "\n").encode(), durable=True)
