"""The source's part of `penstock verify`: sums over the rows of one moment, which the source computes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Protocol

from penstock.model.buckets import Buckets, BucketSum, KeyExtent
from penstock.model.schema import TableSchema, TypeOptions
from penstock.sources.windows import Window

if TYPE_CHECKING:
    import pyarrow as pa


class ReadView(Protocol):
    """The rows of the source at one moment. It shows everything in the low watermark, and nothing beyond the
    high one.

    It takes no locks, and only one thread uses it. Texts and hashes are those of `model/row_text.py`. Raises
    `TableError` for a table that the source cannot sum up, and `SourceUnreachable` if the connection is lost.
    """

    @property
    def window(self) -> Window:
        """The window of the watermarks that were taken right before and after the view was opened."""

    def extent(self, schema: TableSchema) -> KeyExtent:
        """The number of rows, and the least and greatest value of an integer key."""

    def sums(self, schema: TableSchema, buckets: Buckets, types: TypeOptions) -> dict[int, BucketSum]:
        """The number of rows and the sum of their hashes, for each bucket that has rows."""

    def batches(self, schema: TableSchema, types: TypeOptions) -> Iterator[pa.RecordBatch]:
        """All rows, with the columns of the schema, as a snapshot would read them. For rows that cannot be
        compared by what the source computes. The caller reads them to their end."""

    def rows(
        self, schema: TableSchema, buckets: Buckets, numbers: Collection[int], types: TypeOptions
    ) -> dict[str, int]:
        """The hash of every row in these buckets, by the text of its key."""
