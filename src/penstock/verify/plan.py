"""Chooses the buckets of keys to compare, and finds the keys that differ. Pure."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from penstock.model.buckets import Buckets, BucketSum, HashBuckets, KeyExtent, RangeBuckets, integer_key
from penstock.model.row_text import Shape, shape
from penstock.model.schema import Column, TableId, TableSchema

BUCKET_ROWS = 2_000
"""Intended rows per bucket. If a bucket differs, all of its rows are listed, so small buckets keep that
cheap."""
BUCKETS_MAX = 16_384
"""Largest number of buckets: of groups in the server's aggregation, and of rows that Spark sends to the
driver."""
WIDTH_MAX = 2**62
"""Maximum width of a bucket: a signed 64-bit number, unlike the distance of two BIGINT UNSIGNED."""
SMALL_ROWS_MAX = 100_000
"""A table with more rows is compared alone, so that the read view of others is not kept open for it."""
BATCH_TABLES_MAX = 64
"""Tables that are compared together. Each adds a part to the plan of one Spark job."""
BATCH_ROWS_MAX = 1_000_000
"""Rows of tables that are compared together, so that one read view is not open for long."""


def batches(tables: Iterable[tuple[TableId, int]]) -> Iterator[tuple[TableId, ...]]:
    """Groups tables, given with their estimated rows: small ones together, each large one alone."""
    batch: list[TableId] = []
    rows, large = 0, list[TableId]()
    for name, guess in tables:
        if guess > SMALL_ROWS_MAX:
            large.append(name)
            continue
        if len(batch) == BATCH_TABLES_MAX or (batch and rows + guess > BATCH_ROWS_MAX):
            yield tuple(batch)
            batch, rows = [], 0
        batch.append(name)
        rows += guess
    if batch:
        yield tuple(batch)
    yield from ((name,) for name in large)


def choose_buckets(schema: TableSchema, extent: KeyExtent) -> Buckets:
    """Chooses the buckets of a table. `extent.lowest` and `highest` are used only for an integer key."""
    count = max(1, min(BUCKETS_MAX, extent.rows // BUCKET_ROWS))
    name = integer_key(schema)
    if name is None:
        return HashBuckets(schema.key_columns, count)
    # Width 1 would be an error at the server: -9223372036854775808 DIV 1 is out of its range.
    width = (extent.highest - extent.lowest) // count + 1
    return RangeBuckets(name, min(max(2, width), WIDTH_MAX))


def different_buckets(source: Mapping[int, BucketSum], target: Mapping[int, BucketSum]) -> list[int]:
    return sorted(
        number for number in source.keys() | target.keys() if source.get(number) != target.get(number)
    )


class Kind(str, enum.Enum):
    """The kind of difference of a key at the target."""

    MISSING = "missing"
    EXTRA = "extra"
    DIFFERENT = "different"
    DUPLICATE = "duplicate"
    """The target has more than one row of this key."""


@dataclass(frozen=True)
class KeyDifference:
    key: str
    """Canonical text of the key."""
    kind: Kind


def different_keys(source: Mapping[str, int], target: Mapping[str, int]) -> list[KeyDifference]:
    """Returns the keys that differ. Both arguments map the text of a key to the hash of its row."""
    found = []
    for key in sorted(source.keys() | target.keys()):
        if key not in target:
            found.append(KeyDifference(key, Kind.MISSING))
        elif key not in source:
            found.append(KeyDifference(key, Kind.EXTRA))
        elif source[key] != target[key]:
            found.append(KeyDifference(key, Kind.DIFFERENT))
    return found


def settle(
    differences: Iterable[KeyDifference], uncertain: Collection[str]
) -> tuple[list[KeyDifference], list[KeyDifference]]:
    """Splits differences into real ones and uncertain ones, which a concurrent transaction may explain."""
    real: list[KeyDifference] = []
    unsettled: list[KeyDifference] = []
    for difference in differences:
        (unsettled if difference.key in uncertain else real).append(difference)
    return real, unsettled


def split_key(columns: Iterable[Column], text: str) -> list[str | None]:
    """The values in a key's canonical text, one per column, for people."""
    values: list[str | None] = []
    data = text.encode()
    for column in columns:
        if data[:1] == b"~":
            values.append(None)
            data = data[2:]
        elif shape(column) is Shape.TEXT:
            length, _, rest = data.partition(b":")
            values.append(rest[: int(length)].decode("utf-8", "replace"))
            data = rest[int(length) + 1 :]
        else:
            value, _, data = data.partition(b"|")
            values.append(value.decode())
    return values
