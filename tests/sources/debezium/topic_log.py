"""A relay log that is written from messages by hand, and read as everybody reads it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.sources.debezium.messages import Consumed

from penstock._core import Framer, RangeDecoder, TopicTranslator, topic_records
from penstock.changes.reader import ChangeBatch, ChangeReader, Definitions
from penstock.config import RelayLogConfig, TablesConfig
from penstock.disk.replace import replace_file
from penstock.model.offset import LogRange, Offset, Split
from penstock.model.schema import DEFAULT_TYPES, TableId, TableSchema
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment import FORMAT, RELAY_FILE
from penstock.relaylog.segment_bytes import opened
from penstock.relaylog.segment_format import ROWS
from penstock.relaylog.writer import RelayLogWriter
from penstock.sources import statements_of
from penstock.sources.table_filter import TableFilter

Fault = tuple[str, int, int, str]


def translator(records: list[str] | None = None, **options: Any) -> TopicTranslator:
    chosen = {
        "zoned_timestamps": "instant", "cuts_nanoseconds": False,
        "unavailable": "__debezium_unavailable_value",
        "unavailable_uuid": "f5b8b0c1-0000-3000-8000-000000000000", "table": None, "skips": False, **options,
    }  # fmt: skip
    return TopicTranslator(records or [], **chosen)


class TopicLog:
    """A relay log in `folder`. A second one for the same folder continues it."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self._writer = RelayLogWriter(folder, RelayLogConfig(disk_free_min=0))
        known = RelayLog.open(folder) if RelayLog.exists(folder) else None
        records: list[str] = []
        if known is None:
            relay = {
                "format": FORMAT, "segment_format": ROWS, "uuid": str(uuid.uuid4()), "created": 0.0,
                "start": {}, "source": {"type": "debezium"},
            }  # fmt: skip
            replace_file(folder / RELAY_FILE, json.dumps(relay).encode(), durable=True)
        else:
            file, base = known.segment_of(known.end)
            records = topic_records(file, base, known.end)
        self.translator = translator(records, **options)
        self._framer = Framer(
            offset=self._writer.end, segment_size=1 << 28, span_size=1 << 20, server_uuid="cluster",
            executed=str(known.executed_at(known.end)) if known is not None else "",
            spool=str(self._writer.spool.folder), generation=self._writer.lease.generation,
            segment_format=ROWS,
        )  # fmt: skip
        self._put(self.translator.moved(1))
        self._put(self.translator.checkpoint(0))
        self._commit()

    def _put(self, packets: bytes) -> None:
        self._writer.put(self._framer.feed(packets))

    def _commit(self) -> None:
        self._writer.flush(self._framer.cut())
        self._writer.wait()

    def take(self, messages: Iterable[Consumed]) -> list[Fault]:
        packets, faults = self.translator.translate(list(messages))
        self._put(packets)
        self._commit()
        return faults

    def close(self) -> None:
        self._writer.close()

    @property
    def log(self) -> RelayLog:
        return RelayLog.open(self.folder)

    @property
    def statements(self) -> list[str]:
        log = self.log
        return [one.sql for one in log.statements(LogRange(Offset(0), log.end))]

    def changes(self, table: str, kind: str = "") -> list[dict[str, Any]]:
        found = changes_of(self.folder, table)
        return [one for one in found if kind in ("", one["_change_type"])]

    def written(self, table: str) -> list[tuple[str, dict[str, Any]]]:
        """The kind of each change, and what it says of the row. It need not have all columns."""
        name, log = TableId.parse(table), self.log
        at, schema = definitions_of(self.folder)[name]
        found = []
        for split in log.splits(LogRange(at, log.end), name, bytes_aim=1 << 20):
            decoder = RangeDecoder(
                schema.to_json(), *opened(split).place, layout="changelog", before_images=False,
                partial_images=True, types=DEFAULT_TYPES.to_json(),
            )  # fmt: skip
            for row in (row for batch in decoder for row in batch.to_pylist()):
                present = row["_penstock_present"] or "1" * len(schema.columns)
                names = [one.name for one, has in zip(schema.columns, present, strict=True) if has == "1"]
                found.append((row["_change_type"], {one: row[one] for one in names}))
        return found

    def rows(self, table: str, key: str = "id") -> list[dict[str, Any]]:
        """What the changes leave of a table that was empty, by its key."""
        rows: dict[Any, dict[str, Any]] = {}
        for change in self.changes(table):
            values = {name: value for name, value in change.items() if not name.startswith("_")}
            if change["_change_type"] in ("delete", "update_preimage"):
                rows.pop(values[key], None)
            else:
                rows[values[key]] = values
        return [rows[one] for one in sorted(rows)]


def definitions_of(folder: Path) -> dict[TableId, tuple[Offset, TableSchema]]:
    """Each table as it was created, with the end of the statement that did that."""
    log = RelayLog.open(folder)
    found: dict[TableId, tuple[Offset, TableSchema]] = {}
    statements = statements_of(log, TableFilter(TablesConfig(include=["*.*"])), types=DEFAULT_TYPES)
    live: dict[TableId, TableSchema] = {}
    for statement in log.statements(LogRange(Offset(0), log.end)):
        for effect in statements.effects(statement, live):
            after = effect.definition_after(live.get(effect.table))
            assert after is not None and effect.rereads is None, effect
            live[effect.table] = after
            found.setdefault(effect.table, (statement.end, after))
    return found


def decoder_of(folder: Path, table: str, split: Split) -> RangeDecoder:
    """The changes of a table in a split, by its first definition."""
    _, schema = definitions_of(folder)[TableId.parse(table)]
    place = opened(split).place
    return RangeDecoder(schema.to_json(), *place, layout="changelog", types=DEFAULT_TYPES.to_json())


def changes_of(folder: Path, table: str) -> list[dict[str, Any]]:
    """All changes of a table in a relay log, decoded with the definitions that its statements make."""
    name = TableId.parse(table)
    at, schema = definitions_of(folder)[name]
    end = RelayLog.open(folder).end
    with ChangeReader(folder, Definitions(at, {name: schema}), start=at, until=end) as reader:
        return [row for item in reader if isinstance(item, ChangeBatch) for row in item.batch.to_pylist()]


Logs = Callable[..., TopicLog]
