"""Buckets of keys, by which a table at the source and its target are compared.

A bucket is a function of the key that both sides can compute. A single integer key is divided by a width, so
a bucket is a range of keys that the source reads by its index. The bucket of any other key is the CRC32 of
its text (`row_text.py`): keys of text cannot be ordered, nor compared, outside the server that knows their
collation.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.model.column_type import INTEGERS
from penstock.model.schema import Column, TableSchema

if TYPE_CHECKING:
    import pyarrow as pa

LOW_BITS = 30
"""Bits of the lower half of a 60-bit hash. Halves can be summed up without overflow."""


@dataclass(frozen=True)
class KeyExtent:
    """Least and greatest value of an integer key, and about how many rows there are."""

    lowest: int
    highest: int
    rows: int


@dataclass(frozen=True)
class RangeBuckets:
    """Bucket of an integer key: the key divided by `width`, rounded towards zero."""

    column: str
    width: int

    def numbers(self, keys: Iterable[str]) -> set[int]:
        """The buckets of keys given by their canonical text."""
        return {abs(int(key)) // self.width * (1 if int(key) >= 0 else -1) for key in keys}

    def describe(self, number: int) -> str:
        first, last = self.bounds(number)
        return f"{self.column} {first} to {last}"

    def bounds(self, number: int) -> tuple[int, int]:
        """The least and the greatest key of a bucket."""
        first = number * self.width - (self.width - 1 if number <= 0 else 0)
        last = number * self.width + (self.width - 1 if number >= 0 else 0)
        return first, last


@dataclass(frozen=True)
class HashBuckets:
    """Bucket of any key: CRC32 of its canonical text modulo `count`."""

    columns: tuple[Column, ...]
    count: int

    def numbers(self, keys: Iterable[str]) -> set[int]:
        """The buckets of keys given by their canonical text."""
        return {zlib.crc32(key.encode()) % self.count for key in keys}

    def describe(self, number: int) -> str:
        return f"share {number} of {self.count} by hash of the key"


Buckets = RangeBuckets | HashBuckets


@dataclass(frozen=True)
class BucketSum:
    """Number of rows, and the exact sum of their 60-bit hashes, which does not depend on their order."""

    rows: int
    hash: int


def share_of(buckets: Buckets) -> dict[str, Any]:
    """How a task computes the bucket of a row: arguments of `_core.row_buckets`."""
    match buckets:
        case RangeBuckets(width=width):
            return {"width": width}
        case HashBuckets(count=count):
            return {"count": count}


def sums_of_hashes(parts: Iterable[tuple[pa.Array, pa.Array]]) -> dict[int, list[int]]:
    """Rows, and sums of the upper and the lower halves of their hashes, by bucket. `parts`: the buckets
    (int64) and hashes (uint64) of some rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sums: dict[int, list[int]] = {}
    for numbers, hashes in parts:
        high = pc.shift_right(hashes, pa.scalar(LOW_BITS, pa.uint64()))
        low = pc.bit_wise_and(hashes, pa.scalar((1 << LOW_BITS) - 1, pa.uint64()))
        part = pa.table({"bucket": numbers, "high": high, "low": low})
        grouped = part.group_by("bucket").aggregate([("high", "count"), ("high", "sum"), ("low", "sum")])
        columns = [
            grouped.column(name).to_pylist() for name in ("bucket", "high_count", "high_sum", "low_sum")
        ]
        for number, *counts in zip(*columns, strict=True):
            known = sums.get(number, [0, 0, 0])
            sums[number] = [one + more for one, more in zip(known, counts, strict=True)]
    return sums


def bucket_sums_of(parts: Iterable[tuple[pa.Array, pa.Array]]) -> dict[int, BucketSum]:
    """The rows of each bucket, with the sum of their hashes. `parts`: see `sums_of_hashes`."""
    found = sums_of_hashes(parts)
    return {number: BucketSum(rows, (high << LOW_BITS) + low) for number, (rows, high, low) in found.items()}


def integer_key(schema: TableSchema) -> str | None:
    """The name of the key column if the key is one integer."""
    if len(schema.key) == 1 and schema.column(schema.key[0]).type in INTEGERS:
        return schema.key[0]
    return None
