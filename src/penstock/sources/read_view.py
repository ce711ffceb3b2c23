"""The source's side of a comparison (`penstock verify`): one moment of it, summed up by the source itself."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from penstock.model.buckets import Buckets, BucketSum, KeyExtent
from penstock.model.schema import TableSchema, TypeOptions
from penstock.sources.windows import Window


class ReadView(Protocol):
    """What the source held at one moment: all that the low watermark claims, nothing beyond the high one.

    Takes no locks. Serves one thread. Texts and hashes are those of `model/row_text.py`. Raises `TableError`
    for a table that the source cannot sum up, `SourceUnreachable` when the connection is lost.
    """

    @property
    def window(self) -> Window:
        """Of watermarks that were taken right around the opening of the view."""

    def extent(self, schema: TableSchema) -> KeyExtent:
        """How many rows there are, and between which values an integer key lies."""

    def sums(self, schema: TableSchema, buckets: Buckets, types: TypeOptions) -> dict[int, BucketSum]:
        """Rows and the sum of their hashes, for each bucket that has rows."""

    def rows(
        self, schema: TableSchema, buckets: Buckets, numbers: Collection[int], types: TypeOptions
    ) -> dict[str, int]:
        """The key's text and the hash of every row in these buckets."""
