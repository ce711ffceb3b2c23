"""Which rows have a key, where hashes may deceive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap64

from penstock.sinks.lake.index.matching import live_rows
from penstock.sinks.lake.index.table_index import Matches

FILES = {"a": [10, 11, 12, 13], "b": [20, 21, 10]}


class BadHash:
    """An index that takes keys as equal whose last digits are."""

    def find(self, keys: Sequence[pa.RecordBatch], live: Any) -> dict[str, Matches]:
        wanted = [key for batch in keys for key in batch.column(0).to_pylist()]
        found = {}
        for location in live:
            pairs = [
                (number, row)
                for row, value in enumerate(FILES[location])
                for number, key in enumerate(wanted)
                if value % 10 == key % 10
            ]
            if pairs:
                found[location] = Matches(*(np.array(one) for one in zip(*pairs, strict=True)))
        return found


def batch(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], ["id"])


def read(location: str) -> list[pa.RecordBatch]:
    return [batch(*FILES[location][:2]), batch(*FILES[location][2:])]


@pytest.mark.parametrize(
    ("keys", "deleted", "expected"),
    [
        ([12], {}, {"a": [2]}),
        ([10], {"a": [0]}, {"b": [2]}),
        ([20], {}, {"b": [0]}),
        ([30], {}, {}),
        ([11, 13], {"b": [0, 1, 2]}, {"a": [1, 3]}),
        ([21, 13, 10], {"a": [0]}, {"a": [3], "b": [1, 2]}),
        ([99], {}, {}),
    ],
    ids=["one row", "one live row", "several with the hash", "none of them", "one each", "mixed", "no row"],
)
def test_only_rows_with_the_key_itself_are_taken(
    keys: list[int], deleted: dict[str, list[int]], expected: dict[str, list[int]]
) -> None:
    index: Any = BadHash()
    batches = [batch(*keys[:1]), batch(*keys[1:])]
    found = live_rows(index, batches, FILES, lambda one: BitMap64(deleted.get(one, [])), read)
    assert {location: sorted(one.rows) for location, one in found.items()} == expected


def test_of_equal_keys_in_several_rows_all_are_taken() -> None:
    """Somebody else may have added a row twice."""
    index: Any = BadHash()
    assert len(live_rows(index, [batch(10)], FILES, lambda one: BitMap64(), read)) == 2
