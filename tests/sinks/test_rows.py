"""What a sink may rely on stays true when rows get other columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from penstock.sinks.rows import (
    AnyOrder,
    Incomplete,
    Newer,
    Projection,
    Rows,
    ShardOf,
    changed_kind,
    converted,
    pieces,
)

BATCH = pa.record_batch({"id": [1, 2], "name": ["a", "b"]})
PROJECTION = Projection(pa.schema([("key", pa.int64()), ("note", pa.string())]), ("id", None))
SOURCES = {"key": "id", "note": None}


def batches() -> Iterator[pa.RecordBatch]:
    return iter([BATCH])


def never() -> Any:
    raise AssertionError("no DataFrame is needed")


def test_the_driver_makes_rows_with_the_changed_columns() -> None:
    kind = changed_kind(Newer(batches), PROJECTION, SOURCES)
    assert isinstance(kind, Newer) and kind.driver_side is not None
    assert [batch.to_pydict() for batch in kind.driver_side()] == [{"key": [1, 2], "note": [None, None]}]


def test_rows_that_the_driver_cannot_make_stay_newer() -> None:
    assert changed_kind(Newer(), PROJECTION, SOURCES) == Newer()
    assert changed_kind(AnyOrder(), PROJECTION, SOURCES) == AnyOrder()


def test_the_columns_of_incomplete_rows_are_found_under_their_new_names() -> None:
    kind = Incomplete({"id": 0, "name": 1}, target_is_complete=True)
    assert changed_kind(kind, PROJECTION, SOURCES) == Incomplete({"key": 0}, target_is_complete=True)


def test_tasks_change_the_columns_before_the_sink_sees_the_rows() -> None:
    def run(consume: Any, schema: str) -> Any:
        return [batch.to_pydict() for batch in consume(batches())]

    shard = ShardOf("shard", "shop_1.orders")
    rows = Rows(never, Newer(batches), run).changed(PROJECTION, SOURCES, never, shard)
    assert rows.shard == shard and rows.incomplete is None

    def names(found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in found:
            yield batch.rename_columns([f"{name}!" for name in batch.schema.names])

    found: Any = rows.through(names, "")
    assert found == [{"key!": [1, 2], "note!": [None, None]}]


def test_values_that_mean_nothing_in_another_type_become_null() -> None:
    assert converted(pa.array(["1", "x", None, "-4"]), pa.int32()).to_pylist() == [1, None, None, -4]
    assert converted(pa.array([20240229]), pa.date32()).to_pylist() == [None]
    assert converted(pa.array([1.5, None]), pa.string()).to_pylist() == ["1.5", None]


def test_large_batches_are_cut() -> None:
    batch = pa.RecordBatch.from_pydict({"a": ["x" * 1000] * 20_000})
    sizes = [one.num_rows for one in pieces([batch])]
    assert sum(sizes) == 20_000 and len(sizes) > 1
