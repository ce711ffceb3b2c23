"""Finds the keys changed in the relay log between the watermarks of a read view."""

from __future__ import annotations

from collections.abc import Collection

from penstock import _core
from penstock.model.offset import LogRange, Offset
from penstock.model.schema import DEFAULT_TYPES, TableSchema, TypeOptions
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment_bytes import opened
from penstock.relaylog.segment_format import without
from penstock.snapshot.chunk_log import Places
from penstock.sources.row_images import RowImages
from penstock.sources.windows import Window

_SPLIT_BYTES = 16 * 1024 * 1024
"""Bytes of log that one decoder reads. Its rows are held in memory, which limits them to some hundred MB."""


class RelayLogWindow:
    """`verify.check.LogWindow` over a relay log."""

    def __init__(self, log: RelayLog, images: RowImages, types: TypeOptions = DEFAULT_TYPES) -> None:
        """`types`: those of the targets, since keys are compared by their text."""
        self._log = log
        self._images = images
        self._types = types

    def keys_touched(
        self, schema: TableSchema, window: Window, end: Offset, limit: int
    ) -> Collection[str] | None:
        self._log.refresh()
        start = max(self._log.start, window.visible_to(Places(self._log, not_after=end)))
        table, keys = schema.to_json(), set[str]()
        defaults, types = self._images.omitted(schema, self._types), self._types.to_json()
        for split in self._log.splits(LogRange(start, end), schema.table, bytes_aim=_SPLIT_BYTES):
            part = opened(split)
            decoder = _core.RangeDecoder(
                table,
                *part.place,
                preamble=part.preamble,
                layout="changelog",
                columns=list(schema.key),
                **without(window.seen),
                partial_images=True,
                defaults=defaults,
                types=types,
            )
            for batch in decoder:
                keys.update(_core.row_texts(table, batch, schema.key, types).to_pylist())
                if len(keys) > limit:
                    return None
        return keys
