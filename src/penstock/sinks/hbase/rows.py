"""Rows of a step as frames, and what is done with each of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import TableError
from penstock.model.change import DELETED, PRESENT, SEQUENCE
from penstock.model.schema import TableId
from penstock.sinks.hbase import frames
from penstock.sinks.hbase.frames import Column, Frame
from penstock.sinks.hbase.times import NONE, SEQUENCE_MAX, sequences_of, time_of, times_of
from penstock.sinks.hbase.values import Form
from penstock.sinks.names import source_columns
from penstock.sinks.refusals import missing_row
from penstock.sinks.rows import Incomplete

OWN = SEQUENCE.encode()
"""The cell that every row has."""


def frame_of(
    table: TableId,
    batch: pa.RecordBatch,
    key: Sequence[str],
    revision: int,
    incomplete: Incomplete | None,
    form: Form,
) -> Frame:
    """The rows as a frame. Each replaces or deletes the target's row, or changes it if it lacks columns."""
    sequences = _plain(batch.column(SEQUENCE), np.int64)
    if len(sequences) and int(sequences.max()) > SEQUENCE_MAX:
        raise _too_far(table)
    acts = np.full(batch.num_rows, frames.REPLACE, np.uint8)
    present = None
    if incomplete is not None:
        present = batch.column(PRESENT)
        acts[_plain(present.is_valid(), bool)] = frames.CHANGE
    if DELETED in batch.schema.names:
        acts[_plain(pc.fill_null(batch.column(DELETED), False), bool)] = frames.DELETE
    columns = [
        _column(name, batch.column(name), present, incomplete, form)
        for name in source_columns(batch.schema.names)
    ]
    columns.append(own_column(batch.column(SEQUENCE)))
    keys = form.row_keys([batch.column(name) for name in key])
    return Frame(keys, times_of(sequences, revision), acts, columns)


def own_column(sequences: pa.Array) -> Column:
    """The cell that every row has: a text, whatever the others are."""
    return Column(OWN, sequences.cast(pa.string()).cast(pa.binary()))


def _column(
    name: str, values: pa.Array, present: pa.Array | None, incomplete: Incomplete | None, form: Form
) -> Column:
    called, found = form.qualifier(name), form.cells(values)
    if present is None or incomplete is None:
        return Column(called, found)
    place = incomplete.places[name]
    has = pc.fill_null(pc.equal(pc.utf8_slice_codeunits(present, place, place + 1), "1"), True)
    known = _plain(found.is_valid(), bool)
    states = np.where(known, frames.VALUE, frames.NULL).astype(np.uint8)
    states[~_plain(has, bool)] = frames.ABSENT
    return Column(called, found, states)


def without_deleted(frame: Frame) -> Frame:
    """The rows that an append writes. Deleted rows are skipped, because there is nothing that they could
    hide."""
    acts = np.where(frame.acts == frames.DELETE, frames.SKIP, frames.ADD).astype(np.uint8)
    return Frame(frame.keys, frame.times, acts, frame.columns)


def compared(
    table: TableId, frame: Frame, there: np.ndarray[Any, Any], incomplete: Incomplete | None
) -> Frame:
    """The rows that count, given the times of those that are there.

    A row that is there with the same `_sequence` is this one. But a write that was interrupted may have
    left out the marker that hides the cells of its NULLs, so it is written again.
    """
    known, own = sequences_of(there), sequences_of(frame.times)
    acts, times = frame.acts.copy(), frame.times.copy()
    lacking = (acts == frames.CHANGE) & (known == NONE)
    if incomplete is not None and incomplete.target_is_complete and lacking.any():
        raise missing_row(table, int(own[lacking][0]))
    acts[lacking] = frames.SKIP  # it comes with the snapshot
    same = known == own
    times[same] = there[same]
    acts[same & (acts == frames.REPLACE)] = frames.CLEAR
    acts[same & (acts == frames.DELETE)] = frames.SKIP
    acts[known > own] = frames.SKIP
    return Frame(frame.keys, times, acts, frame.columns)


def deletions(frame: Frame, below: int) -> Frame | None:
    """The deletions of rows with a smaller `_sequence`, also of rows that others have written. None: there
    are no such rows."""
    old = sequences_of(frame.times) < below
    if not old.any():
        return None
    acts = np.where(old, frames.DELETE, frames.SKIP).astype(np.uint8)
    return Frame(frame.keys, np.full(len(frame), time_of(below, 0) - 1, np.int64), acts)


def _plain(array: Any, kind: Any) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = np.asarray(array.to_numpy(zero_copy_only=False), kind)
    return found


def _too_far(table: TableId) -> TableError:
    return TableError(
        f"The relay log is too long for the time stamps of cells of {table}.",
        hint="Start a new pipeline with a new relay log.",
        table=str(table),
    )
