"""The target's part of a verification, for sinks whose targets can be read only as they are now.

The pipeline ends an epoch at the watermark and waits there. A scan of the targets begins. If no epoch was
planned until then, the targets are those of this place of the log: plans are durable before anything of them
is written. Where a scan is isolated, the pipeline may go on at once. Elsewhere it waits until the comparison
has ended. If it did not (it was started again, or another `penstock verify` let it go on), the comparison
begins anew: what was read proves nothing.

The driver reads the rows, so no Spark job is needed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import pyarrow as pa

from penstock._core import arrow_schema
from penstock.errors import PenstockError, TableError
from penstock.model.buckets import Buckets, BucketSum, share_of
from penstock.model.offset import Offset, SourcePosition
from penstock.model.schema import TableId, TableSchema, TypeOptions
from penstock.sinks.base import Scan, Scannable
from penstock.transforms.comparison import TransformedRows
from penstock.verify.check import Compared, TargetMoved
from penstock.verify.subject import NotCompared, Subject
from penstock.verify.sums import bucket_sums, rows_of_buckets
from penstock.verify.target_versions import PipelineVersions

STAY_SECONDS = 4.0
"""Seconds between two requests to the pipeline to wait longer. It continues by itself if some are missing."""


class PresentTargets:
    """The targets as they are now: both the `Target` and the `VersionsAt` of a verification. Close it at the
    end."""

    def __init__(
        self,
        sink: Scannable,
        versions: PipelineVersions,
        transformed: Callable[[TableSchema], TransformedRows | None] = lambda schema: None,
    ) -> None:
        """`transformed`: see `SparkTarget`."""
        self._sink = sink
        self._versions = versions
        self._transformed = transformed
        self._waiting = contextlib.ExitStack()
        """Open while the pipeline waits; closing it lets the pipeline continue."""
        self._reading = contextlib.ExitStack()
        self._scan: Scan | None = None
        self._epoch = 0

    def close(self) -> None:
        """Ends reading, and lets the pipeline go on."""
        self._scan = None
        with self._waiting:
            self._reading.close()

    # VersionsAt ---------------------------------------------------------------------------------------------

    def hold(self, tables: Collection[TableId]) -> Mapping[TableId, TableSchema | NotCompared]:
        self.close()
        return self._versions.hold(tables)

    def versions_at(
        self, tables: Collection[TableId], position: SourcePosition
    ) -> tuple[Offset, Mapping[TableId, Subject]]:
        self.close()
        offset, found, self._epoch = self._versions.cut(tables, position, stay=True)
        self._waiting.callback(self._versions.release)
        self._waiting.enter_context(self._staying())
        self._scan = self._reading.enter_context(self._sink.scan())
        self._refuse_moved()
        if self._scan.isolated:
            self._waiting.close()
        return offset, found

    @contextlib.contextmanager
    def _staying(self) -> Iterator[None]:
        ended = threading.Event()

        def stay() -> None:
            while not ended.wait(STAY_SECONDS):
                self._versions.stay()

        thread = threading.Thread(target=stay, name="verify-stay", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _refuse_moved(self) -> None:
        if not self._versions.is_unchanged(self._epoch):
            raise TargetMoved(
                "The pipeline wrote to the targets while they were compared.",
                hint="Run `penstock verify` once more, and not twice at a time.",
            )

    # Target -------------------------------------------------------------------------------------------------

    def sums(
        self, tables: Sequence[Compared], types: TypeOptions
    ) -> dict[TableId, dict[int, BucketSum] | PenstockError]:
        found: dict[TableId, dict[int, BucketSum] | PenstockError] = {}
        for one in tables:
            schema = one.schema
            try:
                found[schema.table] = bucket_sums(
                    self._batches(schema, types), schema, one.buckets, types, self._transformed(schema)
                )
            except TableError as error:
                found[schema.table] = error
        return found

    def rows(
        self,
        schema: TableSchema,
        buckets: Buckets,
        numbers: Collection[int],
        version: str | None,
        types: TypeOptions,
    ) -> list[tuple[str, int]]:
        made, found = self._transformed(schema), list[tuple[str, int]]()
        batches, share = self._batches(schema, types), share_of(buckets)
        for batch in rows_of_buckets(batches, schema.to_json(), share, sorted(numbers), types, made):
            found += zip(*[column.to_pylist() for column in batch.columns], strict=True)
        return found

    def _batches(self, schema: TableSchema, types: TypeOptions) -> Iterator[pa.RecordBatch]:
        scan, made = self._scan, self._transformed(schema)
        assert scan is not None, "it is read between `versions_at` and the next `hold`"
        fields = arrow_schema(schema.to_json(), "rows", types.to_json()) if made is None else made.fields
        yield from scan.batches(schema.table, fields)
        if not scan.isolated:
            self._refuse_moved()
