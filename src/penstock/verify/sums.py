"""Sums of hashes of a target's rows by bucket, of rows that are Arrow batches. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.buckets import Buckets, BucketSum, bucket_sums_of, share_of, sums_of_hashes
from penstock.model.schema import TableSchema, TypeOptions
from penstock.transforms.comparison import TransformedRows

LOSSY = "_penstock_lossy "
"""A column beside those of a target: whether a value of the row does not fit the source's type, so that the
row differs, whatever the source has. No column of MySQL has a name that ends with a space."""


def sums_of(
    batches: Iterable[pa.RecordBatch],
    table: str,
    share: dict[str, Any],
    types: TypeOptions,
    made: TransformedRows | None,
) -> dict[int, list[int]]:
    """Rows, and sums of the halves of their hashes, by bucket. `made`: the rows are transformed."""
    return sums_of_hashes(
        (bucket, hashes) for _, bucket, hashes in _hashed(batches, table, share, types, made)
    )


def bucket_sums(
    batches: Iterable[pa.RecordBatch],
    schema: TableSchema,
    buckets: Buckets,
    types: TypeOptions,
    made: TransformedRows | None,
) -> dict[int, BucketSum]:
    """The rows of each bucket, with the sum of their hashes."""
    hashed = _hashed(batches, schema.to_json(), share_of(buckets), types, made)
    return bucket_sums_of((bucket, hashes) for _, bucket, hashes in hashed)


def rows_of_buckets(
    batches: Iterable[pa.RecordBatch],
    table: str,
    share: dict[str, Any],
    wanted: list[int],
    types: TypeOptions,
    made: TransformedRows | None,
) -> Iterator[pa.RecordBatch]:
    """Texts of keys and hashes of the rows in some buckets."""
    from penstock import _core

    key = TableSchema.from_json(table).key
    for batch, bucket, hashes in _hashed(batches, table, share, types, made):
        chosen = pc.is_in(bucket, value_set=pa.array(wanted, pa.int64()))
        texts = _core.row_texts(table, batch, key, types.to_json())
        rows = pa.RecordBatch.from_arrays([texts, hashes.cast(pa.int64())], ["key", "hash"])
        yield rows.filter(chosen)


def _hashed(
    batches: Iterable[pa.RecordBatch],
    table: str,
    share: dict[str, Any],
    types: TypeOptions,
    made: TransformedRows | None,
) -> Iterator[tuple[pa.RecordBatch, pa.Array, pa.Array]]:
    """Each batch, or at least its keys, with the buckets and the hashes of its rows. The hash of a row that
    is `LOSSY` is none of any row of the source."""
    from penstock import _core  # in the task: the module must not be pickled with the function

    schema = TableSchema.from_json(table)
    names = [column.name for column in schema.columns]
    for whole in batches:
        batch, lossy = whole, None
        if whole.schema.names[-1] == LOSSY:
            batch, lossy = whole.select(whole.schema.names[:-1]), whole.column(LOSSY)
        keys = batch if made is None else made.keys(batch)
        bucket = _core.row_buckets(table, keys, schema.key, **share, types=types.to_json())
        if made is None:
            hashes = _core.row_hashes(table, batch, names, types.to_json())
        else:
            hashes = made.hashes(batch)
        if lossy is not None:
            hashes = pc.bit_wise_xor(hashes, lossy.cast(pa.uint8()).cast(pa.uint64()))
        yield keys, bucket, hashes
