"""Decides which notifications to send, by comparing two looks at the state of a pipeline. Pure.

They are Debezium's: of snapshots, with its names of types and its fields. Those of parked tables are ours.
A table may be read from its beginning to its end between two looks. Then its `start` has changed, and its
snapshot is still reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

INITIAL, INCREMENTAL, TABLE = "Initial Snapshot", "Incremental Snapshot", "Table"
Progress = Literal["none", "reading", "done", "parked"]


@dataclass(frozen=True)
class TableSeen:
    """The snapshot of one table. `start`: differs each time that the table is read. `rows`: how many were
    read. `reason`: why the table is parked."""

    progress: Progress
    start: int
    rows: int = 0
    reason: str = ""


@dataclass(frozen=True)
class PartSeen:
    """A partial snapshot. `ended`: how it ended; None: it still runs."""

    signal: str
    table: str
    ended: Literal["done", "stopped"] | None = None
    rows: int = 0


@dataclass(frozen=True)
class Seen:
    """The state of a pipeline at one look. `parts`: partial snapshots that have not ended, or were open at
    the last look, by their numbers."""

    tables: Mapping[str, TableSeen]
    parts: Mapping[int, PartSeen] = field(default_factory=dict)
    paused: bool = False


@dataclass(frozen=True)
class Told:
    """The state of snapshots that messages have described so far. `snapshot`: the id of the running snapshot;
    empty: none runs. `tables`: progress and start of each table. `parts`: the running partial snapshots.
    `succeeded`: whether a table of the running snapshot was read."""

    snapshot: str = ""
    kind: str = INITIAL
    tables: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    parts: Mapping[int, PartSeen] = field(default_factory=dict)
    paused: bool = False
    succeeded: bool = False

    def to_json(self) -> dict[str, Any]:
        parts = [[number, one.signal, one.table] for number, one in self.parts.items()]
        return {
            "snapshot": self.snapshot, "kind": self.kind, "paused": self.paused, "succeeded": self.succeeded,
            "tables": self.tables, "parts": parts,
        }  # fmt: skip

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Told:
        tables = {name: (progress, int(start)) for name, (progress, start) in fields["tables"].items()}
        parts = {int(number): PartSeen(signal, table) for number, signal, table in fields["parts"]}
        known = {name: fields[name] for name in ("snapshot", "kind", "paused", "succeeded")}
        return cls(**known, tables=tables, parts=parts)


@dataclass(frozen=True)
class Notification:
    """A message about a snapshot. `data`: Debezium's `additional_data`."""

    id: str
    aggregate: str
    type: str
    data: Mapping[str, str]

    def to_json(self, *, pipeline: str, at_ms: int) -> dict[str, Any]:
        """Debezium's form of the message."""
        return {
            "id": self.id, "aggregate_type": self.aggregate, "type": self.type,
            "additional_data": {"connector_name": pipeline, **self.data}, "timestamp": at_ms,
        }  # fmt: skip


def changes(told: Told, seen: Seen, new_id: str) -> tuple[list[Notification], Told]:
    """The new messages, and the state that messages have described then. `new_id`: the id of a snapshot that
    begins, or of a message that belongs to no snapshot."""
    found, after = _whole(told, seen, new_id)
    found += _parts(told, seen)
    found += _parked(told, seen, new_id)
    if seen.paused != told.paused:
        kind, id = (after.kind, after.snapshot) if after.snapshot else (INCREMENTAL, new_id)
        found.append(Notification(id, kind, "PAUSED" if seen.paused else "RESUMED", {}))
    tables = {name: (one.progress, one.start) for name, one in seen.tables.items()}
    parts = {number: one for number, one in seen.parts.items() if one.ended is None}
    return found, replace(after, tables=tables, parts=parts, paused=seen.paused)


def _whole(told: Told, seen: Seen, new_id: str) -> tuple[list[Notification], Told]:
    """Messages about tables that are read as a whole. Tables that are read at one time are one snapshot."""
    reading = [name for name, one in seen.tables.items() if one.progress == "reading"]
    begun = [name for name in reading if told.tables.get(name) != ("reading", seen.tables[name].start)]
    missed = [
        name
        for name, one in seen.tables.items()
        if one.progress == "done" and told.tables.get(name, ("", -1)) not in _before_end(one)
    ]
    running = [name for name, (progress, _) in told.tables.items() if progress == "reading"]
    ended = [name for name in running if name not in reading]
    found, after = [], told
    listed = ",".join(sorted({*reading, *running, *missed}))

    def tell(type: str, **data: str) -> None:
        found.append(Notification(after.snapshot, after.kind, type, data))

    if not after.snapshot and (begun or missed):
        after = replace(after, snapshot=new_id, succeeded=False)
        tell("STARTED", data_collections=listed)
    for name in sorted({*begun, *missed}):
        tell("IN_PROGRESS", data_collections=listed, current_collection_in_progress=name)
    for name in sorted({*ended, *missed}):
        progress = seen.tables[name].progress if name in seen.tables else "none"
        status = {"done": "SUCCEEDED", "parked": "SQL_EXCEPTION"}.get(progress, "STOPPED")
        rows = seen.tables[name].rows if name in seen.tables else 0
        tell(
            "TABLE_SCAN_COMPLETED", data_collections=listed, scanned_collection=name,
            total_rows_scanned=str(rows), status=status,
        )  # fmt: skip
        after = replace(after, succeeded=after.succeeded or status == "SUCCEEDED")
    if after.snapshot and not reading:
        tell("COMPLETED" if after.succeeded else "ABORTED")
        after = replace(after, snapshot="", kind=INCREMENTAL, succeeded=False)
    return found, after


def _before_end(one: TableSeen) -> Iterable[tuple[str, int]]:
    """The states of a table, as described by messages, in which its end needs no message of its own. A table
    that is unparked and has the same start continues, and is not read again."""
    return ("reading", one.start), ("done", one.start), ("parked", one.start)


def _parts(told: Told, seen: Seen) -> list[Notification]:
    """Messages about partial snapshots. All those of one signal are one snapshot, whose id is the
    signal's."""
    found = []
    for signal in dict.fromkeys(one.signal for one in seen.parts.values()):
        mine = {number: one for number, one in seen.parts.items() if one.signal == signal}
        listed = ",".join(dict.fromkeys(one.table for one in mine.values()))

        def tell(type: str, *, id: str = signal, **data: str) -> None:
            found.append(Notification(id, INCREMENTAL, type, data))

        if not any(one.signal == signal for one in told.parts.values()):
            tell("STARTED", data_collections=listed)
        for number, one in mine.items():
            if number not in told.parts:
                tell("IN_PROGRESS", data_collections=listed, current_collection_in_progress=one.table)
        for one in mine.values():
            if one.ended is not None:
                tell(
                    "TABLE_SCAN_COMPLETED", data_collections=listed, scanned_collection=one.table,
                    total_rows_scanned=str(one.rows),
                    status="SUCCEEDED" if one.ended == "done" else "STOPPED",
                )  # fmt: skip
        if all(one.ended is not None for one in mine.values()):
            tell("COMPLETED" if any(one.ended == "done" for one in mine.values()) else "STOPPED")
    return found


def _parked(told: Told, seen: Seen, new_id: str) -> list[Notification]:
    found = []
    for name, one in seen.tables.items():
        was = told.tables.get(name, ("", 0))[0] == "parked"
        if (one.progress == "parked") != was:
            reason = {"reason": one.reason} if one.reason else {}
            kind = "UNPARKED" if was else "PARKED"
            found.append(Notification(new_id, TABLE, kind, {"data_collection": name, **reason}))
    return found
