"""`KeyIndex` finds what Arrow's own join finds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._core import KeyIndex

TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int32": (pa.int32(), st.integers(-3, 3)),
    "int64": (pa.int64(), st.integers(-(2**63), -(2**63) + 3) | st.integers(-3, 3)),
    "decimal": (pa.decimal128(20, 0), st.integers(-3, 3).map(Decimal) | st.just(Decimal(2**64 - 1))),
    "date": (pa.date32(), st.dates(date(2020, 1, 1), date(2020, 1, 4))),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        st.integers(0, 3).map(lambda second: datetime(2020, 1, 1, 0, 0, second, tzinfo=timezone.utc)),
    ),
    "string": (pa.string(), st.sampled_from(["", "a", "a ", "A", "ä", "a" * 300])),
    "binary": (pa.binary(), st.sampled_from([b"", b"\0", b"\0\0", b"a" * 16])),
    "bool": (pa.bool_(), st.booleans()),
}

types = st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=3)


@st.composite
def cases(draw: st.DrawFn) -> tuple[pa.RecordBatch, list[int], pa.RecordBatch, int]:
    chosen = [TYPES[name] for name in draw(types)]
    names = [f"c{number}" for number in range(len(chosen))]
    row = st.tuples(*[st.none() | values for _, values in chosen])

    def batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
        arrays = [pa.array([one[at] for one in rows], kind) for at, (kind, _) in enumerate(chosen)]
        return pa.RecordBatch.from_arrays(arrays, names)

    keys = draw(st.lists(row, max_size=12))
    sequences = draw(st.lists(st.integers(0, 5), min_size=len(keys), max_size=len(keys)))
    return batch(keys), sequences, batch(draw(st.lists(row, max_size=12))), draw(st.integers(0, 5))


@given(cases())
def test_it_finds_the_rows_that_a_join_finds(
    case: tuple[pa.RecordBatch, list[int], pa.RecordBatch, int],
) -> None:
    keys, sequences, rows, sequence = case
    index = KeyIndex()
    index.add(keys, pa.array(sequences, pa.int64()))
    left = pa.table([*rows.columns, pa.array(range(len(rows)), pa.int64())], [*rows.schema.names, "row"])
    right = pa.table([*keys.columns, pa.array(sequences, pa.int64())], [*keys.schema.names, "sequence"])
    joined = left.join(right, rows.schema.names, join_type="inner")
    newer = joined.filter(pc.greater(joined["sequence"], sequence))
    assert index.find(rows, sequence).to_pylist() == sorted(set(newer["row"].to_pylist()))


def test_threads_may_search_at_once() -> None:
    index = KeyIndex()
    index.add(pa.record_batch({"id": pa.array(range(0, 100_000, 2))}), pa.array([7] * 50_000))
    rows = pa.record_batch({"id": pa.array(range(100_000))})
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: len(index.find(rows, 6)), range(20)))
    assert found == [50_000] * 20 and len(index) == 50_000


def test_a_type_that_no_key_has_is_refused() -> None:
    index = KeyIndex()
    with pytest.raises(ValueError, match="Struct"):
        index.add(pa.record_batch({"s": pa.array([{"a": 1}])}), pa.array([1]))
    with pytest.raises(ValueError, match="int64"):
        index.add(pa.record_batch({"id": pa.array([1])}), pa.array(["x"]))
