"""Rows with the columns that a changed definition gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, DecimalType, DoubleType, FloatType, StructType

from penstock.sinks.documents import evolved_column, is_binary
from penstock.sinks.evolve import Change
from penstock.sinks.hbase import frames
from penstock.sinks.hbase.frames import Column, Frame
from penstock.sinks.hbase.rows import own_column
from penstock.sinks.hbase.times import NONE, revisions_of, sequences_of, times_of
from penstock.sinks.hbase.values import Form, is_native
from penstock.sinks.rows import converted
from penstock.sinks.spark_sql import holds


def widens(old: DataType, kind: DataType, form: Form) -> bool:
    """Whether the cells are the same in the wider type."""
    if form.native and (is_native(to_arrow_type(old)) or is_native(to_arrow_type(kind))):
        return False
    if isinstance(old, FloatType) and isinstance(kind, DoubleType):
        return False  # the fewest digits of a FLOAT are another DOUBLE
    if isinstance(kind, DecimalType) and kind.scale != (old.scale if isinstance(old, DecimalType) else 0):
        return False
    return holds(kind, old)


def evolved_frames(
    frame: Frame,
    changed: Sequence[Change],
    present: StructType,
    revision: int,
    key: Sequence[str],
    form: Form,
    spark: SparkSession,
) -> list[Frame]:
    """The rows with their new cells. Those that have them already get the marker that hides the old ones,
    which may not have been written. `key`: columns whose new texts are the row keys; empty: these stay. Rows
    with another row key are deleted under the old one by a second frame."""
    old = {
        field.name: form.values(one.values, to_arrow_type(field.dataType))
        for field, one in zip(present, frame.columns, strict=True)
    }
    made = {one.name: _made(one, old, present, len(frame), spark) for one in changed}
    sequences = sequences_of(frame.times)
    known = sequences != NONE
    done = known & (revisions_of(frame.times) == revision)
    acts = np.full(len(frame), frames.RENEW, np.uint8)
    acts[done], acts[~known] = frames.CLEAR, frames.SKIP
    renewed = acts == frames.RENEW
    columns = [Column(form.qualifier(name), form.cells(values)) for name, values in made.items()]
    columns.append(own_column(pa.array(sequences, pa.int64())))
    keys = _keys(frame, made, changed, key, renewed, form)
    found = [Frame(keys, times_of(sequences, revision), acts, columns)]
    moved = pc.not_equal(keys, frame.keys).to_numpy(zero_copy_only=False)
    if moved.any():
        gone = np.where(moved, frames.DELETE, frames.SKIP).astype(np.uint8)
        found.append(Frame(frame.keys, frame.times, gone))
    return found


def _made(
    change: Change, old: dict[str, pa.Array], present: StructType, count: int, spark: SparkSession
) -> pa.Array:
    if change.before is None:
        return evolved_column(change, None, present, spark, count)
    before = old[change.before]
    if change.how == "convert":
        known = before if is_binary(before.type) else before.cast(pa.string()).cast(pa.binary())
        return evolved_column(change, known.to_pylist(), present, spark, count)
    return before


def _keys(
    frame: Frame,
    made: Mapping[str, pa.Array],
    changed: Sequence[Change],
    key: Sequence[str],
    renewed: np.ndarray[Any, Any],
    form: Form,
) -> pa.Array:
    if not key:
        return frame.keys
    kinds = {one.name: to_arrow_type(one.kind) for one in changed}
    parts = [_typed(made[name], kinds[name]) for name in key]
    return pc.if_else(pa.array(renewed), form.row_keys(parts), frame.keys)


def _typed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The texts of cells as values of a type."""
    if pa.types.is_timestamp(kind) and pa.types.is_string(values.type):
        values = values.cast(pa.timestamp("us"))
    return converted(values, kind)
