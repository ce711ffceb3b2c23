"""What happened in the relay log between the marks of a read view."""

from __future__ import annotations

from collections.abc import Collection

from penstock import _core
from penstock.model.chunk import Watermarks
from penstock.model.offset import LogRange, Offset
from penstock.model.schema import DEFAULT_TYPES, TableSchema
from penstock.relaylog.reader import RelayLog
from penstock.sources.mysql.omitted import omitted_values

_SPLIT_BYTES = 16 * 1024 * 1024


class RelayLogWindow:
    """`verify.check.LogWindow` over a relay log."""

    def __init__(self, log: RelayLog) -> None:
        self._log = log

    def keys_touched(
        self, schema: TableSchema, marks: Watermarks, end: Offset, limit: int
    ) -> Collection[str] | None:
        self._log.refresh()
        if marks.low_position is not None:
            seen = None
            start = max(self._log.start, self._log.offset_within(marks.low_position))
        else:
            seen = _core.GtidSet(marks.low)
            start = self._log.window_start(seen, not_after=end)
        table, keys = schema.to_json(), set[str]()
        defaults = omitted_values(schema, DEFAULT_TYPES)
        for split in self._log.splits(LogRange(start, end), schema.table, bytes_aim=_SPLIT_BYTES):
            decoder = _core.RangeDecoder(
                table,
                split.path,
                split.base,
                split.start,
                split.end,
                preamble=split.preamble,
                layout="changelog",
                columns=list(schema.key),
                exclude_gtids=seen,
                partial_images=True,
                defaults=defaults,
            )
            for batch in decoder:
                keys.update(_core.row_texts(table, batch, schema.key).to_pylist())
                if len(keys) > limit:
                    return None
        return keys
