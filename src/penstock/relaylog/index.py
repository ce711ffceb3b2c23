"""Index entries: one JSON object per line, followed by the CRC32 of its bytes.

The newline commits a line. The writer appends the line without it, makes that durable, and only then appends
the newline. So everything that readers see is already durable, and a visible offset survives a power cut: the
next writer finds the last line complete except for its newline, and adds it. Readers ignore a line without
newline or with a wrong CRC."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from penstock.errors import RelayLogCorrupt
from penstock.model.name import index_keys, index_names
from penstock.model.offset import Offset, SourcePosition
from penstock.model.schema import TableId
from penstock.relaylog import segment_format
from penstock.relaylog.segment import DAMAGED_HINT, SegmentName, list_segments
from penstock.relaylog.segment_format import SegmentFormat


@dataclass(frozen=True)
class Statement:
    """A statement in the log that is not transaction control. It defines tables, or changes rows.

    Only the source reads what it says (`sources.statements.Statements`). `event`: the type code of an event
    that is no statement, but may have changed rows without row events. `tables`: such an event has changed no
    definition, and only rows of these, by their keys (`model.name.index_keys`); None: nothing is known.
    `truncated`: `sql` is cut; the event at `offset` has all of it (`relaylog/full_statements.py`).
    `sql_mode`: settings of the session that change how the text reads. `server_charset`: the character set of
    databases that the session creates without naming one.

    `updates`: databases that the statement wrote to, as its event lists them; None: unknown. `unsaid`: the
    event was read and lists no databases. `alone`: it changes rows outside of an explicit transaction."""

    offset: Offset
    end: Offset
    database: str
    sql: str
    timestamp: int
    event: int | None = None
    truncated: bool = False
    sql_mode: int | None = None
    server_charset: str | None = None
    updates: Sequence[str] | None = None
    unsaid: bool = False
    alone: bool = False
    tables: Sequence[str] | None = None

    def may_concern(self, table: TableId) -> bool:
        """Whether an event that is no statement may have changed rows of the table."""
        return self.tables is None or not {*index_keys(table.database, table.table)}.isdisjoint(self.tables)


@dataclass(frozen=True)
class Prepared:
    """A two-phase (XA) transaction that is neither committed nor rolled back. Its events are the bytes
    `(start, start + length]` of a spool file (`relaylog/spool.py`)."""

    xid: str
    file: str
    start: int
    length: int


@dataclass(frozen=True)
class Entry:
    """One span `(start, end]`. See ARCHITECTURE.md for the fields."""

    fields: dict[str, Any]

    @cached_property
    def start(self) -> Offset:
        return Offset(self.fields["start"])

    @cached_property
    def end(self) -> Offset:
        return Offset(self.fields["end"])

    @cached_property
    def committed(self) -> Offset:
        return Offset(self.fields["committed"])

    @property
    def position(self) -> SourcePosition:
        """The source's position at `committed`."""
        return segment_format.position_of(self.fields)

    @property
    def transactions(self) -> int:
        return int(self.fields.get("transactions", 0))

    @property
    def first_commit_us(self) -> int | None:
        return self.fields.get("first_commit_us")

    @property
    def last_commit_us(self) -> int | None:
        return self.fields.get("last_commit_us")

    @property
    def tables(self) -> dict[str, list[int]]:
        """`[row events, bytes]` by key; see `model.name.index_keys` for the keys."""
        return self.fields.get("tables") or {}

    def has(self, keys: tuple[str, ...]) -> bool:
        """Whether the span has row events under one of the keys."""
        return not self.tables.keys().isdisjoint(keys)

    def bytes_of(self, keys: tuple[str, ...]) -> int:
        tables = self.tables
        return sum(tables[key][1] for key in keys if key in tables)

    @cached_property
    def statements(self) -> list[Statement]:
        return [Statement(**statement) for statement in self.fields.get("statements", ())]

    @property
    def prepared(self) -> list[dict[str, Any]]:
        """XA transactions prepared here (fields of `Prepared`) or ended here (`xid` alone), in log order."""
        return self.fields.get("prepared") or []

    @property
    def open_events(self) -> list[int]:
        """If `start` is inside a transaction: offsets of the events that a reader of the span needs from
        before it, in log order."""
        return self.fields.get("open") or []

    @property
    def last(self) -> dict[str, Any] | None:
        """The last transaction that ended in the span, as its receiver describes it: `start` and `end` in the
        relay log, and what the receiver needs to ask for it again."""
        return self.fields.get("last")

    @property
    def head(self) -> dict[str, Any] | None:
        """Only in a segment's first entry: the source's `server_uuid`, what it had executed before the
        segment (`SegmentFormat.executed_before`), and the transactions `prepared` at that point."""
        return self.fields.get("head")

    def trimmed(self, end: Offset) -> Entry:
        """The entry for the span cut at `end`, a transaction end at or before `committed`. If it is before,
        counts are upper bounds, and which of the `prepared` transactions are left is not known."""
        kept = {
            name: value for name, value in self.fields.items() if name != "prepared" or end == self.committed
        }
        statements = [item for item in self.fields.get("statements", ()) if item["end"] <= end]
        return Entry({**kept, "end": end, "committed": end, "statements": statements})

    def recounted(self, end: Offset, counted: Mapping[str, Any]) -> Entry:
        """The entry for the span cut at `end`, with what `_core.scan_span` has counted there. What statements
        mean may depend on events before the span (savepoints), so those of the entry stay."""
        kept = {key: value for key, value in self.fields.items() if key in ("open", "head")}
        return Entry({**counted, **kept, "statements": self.trimmed(end).fields["statements"]})


def format_line(entry: str) -> bytes:
    """The line of an entry, without its newline."""
    data = entry.encode()
    return data + b" %08x" % zlib.crc32(data)


def parse_line(line: bytes) -> Entry | None:
    """The entry of a line without its newline; None if the line is damaged."""
    data, _, crc = line.rpartition(b" ")
    if len(crc) != 8 or not data or b"%08x" % zlib.crc32(data) != crc:
        return None
    return Entry(segment_format.renamed(json.loads(data)))


def parse_lines(data: bytes, path: Path | str) -> list[Entry]:
    """Entries of whole lines. A torn line that is not the last one is damage, not a crash."""
    entries = []
    position = 0
    for line in data.split(b"\n")[:-1]:
        entry = parse_line(line)
        if entry is None:
            raise RelayLogCorrupt(
                f"The index {path} is damaged at byte {position}.",
                hint=DAMAGED_HINT,
                path=str(path),
                offset=position,
            )
        entries.append(entry)
        position += len(line) + 1
    return entries


def last_line(data: bytes) -> Entry | None:
    """The entry after the last newline of an index, which readers do not see yet. None: there is none, or it
    is damaged."""
    return parse_line(data[data.rfind(b"\n") + 1 :])


def recovered_end(folder: Path) -> Offset:
    """The end of a relay log after its next writer has recovered it: `RelayLog.end`, or the end of a last
    line whose newline was lost in a power cut. 0 for an empty log."""
    for name in reversed(list_segments(folder) if folder.is_dir() else []):
        path = folder / name.index
        data = path.read_bytes()
        if (last := last_line(data)) is not None:
            return last.committed
        if entries := parse_lines(data[: data.rfind(b"\n") + 1], path):
            return entries[-1].committed
    return Offset(0)


class SegmentIndex:
    """One segment's index file, read as far as it has been written."""

    def __init__(self, folder: Path, name: SegmentName) -> None:
        self.name = name
        self.path = str(folder / name.file)
        self.index_path = folder / name.index
        self.entries: list[Entry] = []
        self._inode = 0
        self._position = 0

    def stamp(self) -> tuple[int, int]:
        """Inode and size of the file. They change when lines are added."""
        try:
            status = self.index_path.stat()
        except FileNotFoundError:
            return 0, 0
        return status.st_ino, status.st_size

    def read(self) -> None:
        """Reads the lines added since the last call, or all lines if the file was replaced."""
        with open(self.index_path, "rb") as file:
            status = os.fstat(file.fileno())
            known = self.entries
            if status.st_ino != self._inode or status.st_size < self._position:
                self._inode, self._position, known = status.st_ino, 0, []
            file.seek(self._position)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        if whole or known is not self.entries:
            self.entries = known + parse_lines(whole, self.index_path)
        self._position += len(whole)


def merge(left: Entry, right: Entry, segments: SegmentFormat) -> Entry:
    """One entry for two adjacent spans."""
    a, b = left.fields, right.fields
    merged: dict[str, Any] = {**b, "start": a["start"]}
    merged.pop("open", None)
    if "open" in a:
        merged["open"] = a["open"]
    merged |= segments.merged(a, b)
    if "first_commit_us" in a:
        merged["first_commit_us"] = a["first_commit_us"]
        merged.setdefault("last_commit_us", a["last_commit_us"])
    if "transactions" in a:
        merged["transactions"] = a["transactions"] + b.get("transactions", 0)
    if "last" in a:
        merged.setdefault("last", a["last"])
    if "tables" in a:
        tables = {name: list(counts) for name, counts in a["tables"].items()}
        for name, (events, size) in b.get("tables", {}).items():
            before = tables.setdefault(name, [0, 0])
            before[0] += events
            before[1] += size
        merged["tables"] = tables
    if "statements" in a:
        merged["statements"] = a["statements"] + b.get("statements", [])
    if "prepared" in a:
        merged["prepared"] = _joined(a["prepared"], b.get("prepared", []))
    return Entry(merged)


def by_table(totals: Mapping[str, tuple[int, int]]) -> dict[TableId, tuple[int, int]]:
    """Row events and bytes per table. A key of an earlier version with several dots is ambiguous and counts
    for each table that it may mean. That is safe: a reader then looks for events and finds none."""
    found: dict[TableId, tuple[int, int]] = {}
    for key, (events, size) in totals.items():
        for table in _meant(key) if events else ():
            known = found.get(table, (0, 0))
            found[table] = (known[0] + events, known[1] + size)
    return found


@lru_cache(maxsize=100_000)
def _meant(key: str) -> tuple[TableId, ...]:
    return tuple(TableId(database, table) for database, table in index_names(key))


def _joined(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The prepared lists joined. A transaction that was prepared and ended within the span is dropped."""
    joined = list(before)
    for change in after:
        xid = change["xid"]
        at = next((i for i in reversed(range(len(joined))) if joined[i]["xid"] == xid), None)
        if at is not None and "file" in joined[at] and "file" not in change:
            del joined[at]
        else:
            joined.append(change)
    return joined


def prepared_at_end(entries: Iterable[Entry]) -> list[Prepared]:
    """The XA transactions that are still prepared at the end of a segment."""
    known: dict[str, Prepared] = {}
    for entry in entries:
        for change in (entry.head or {}).get("prepared", []) + entry.prepared:
            known.pop(change["xid"], None)
            if "file" in change:
                known[change["xid"]] = Prepared(**change)
    return list(known.values())


def cut_off(entries: Iterable[Entry], end: Offset) -> list[Entry]:
    """The entries of a segment cut at `end`, a transaction end."""
    kept = [entry for entry in entries if entry.end <= end or entry.start < end]
    return [entry if entry.end <= end else entry.trimmed(end) for entry in kept]


def compact(entries: Iterable[Entry], span_size: int, segments: SegmentFormat) -> list[Entry]:
    """Joins adjacent entries up to `span_size` bytes. A segment's head stays an entry of its own. Entries of
    different files of the source's log are not joined (`segment_format.may_merge`).
    Every joined entry is true for its range.

    If possible, a joined entry ends with a transaction, so that an epoch that ends there is planned without
    reading events. A span that ends inside a transaction is never joined with one whose transactions ended,
    unless the sum still ends at `committed`: the joined entry keeps the later `committed` and claims nothing
    beyond it."""
    joined: list[Entry] = []
    group: list[Entry] = []
    for entry in entries:
        while group and not _joins(group, entry, span_size):
            whole = [at for at, one in enumerate(group) if one.end == one.committed]
            size = whole[-1] + 1 if whole else len(group)
            joined.append(_merged(group[:size], segments))
            group = group[size:]
        group.append(entry)
    return [*joined, _merged(group, segments)] if group else joined


def _merged(group: list[Entry], segments: SegmentFormat) -> Entry:
    """Merges pairwise: each merge copies its input, and a segment may have thousands of tables."""
    while len(group) > 1:
        neighbours = zip(group[::2], group[1::2], strict=False)
        pairs = [merge(left, right, segments) for left, right in neighbours]
        group = [*pairs, *group[len(pairs) * 2 :]]
    return group[0]


def _joins(group: list[Entry], entry: Entry, span_size: int) -> bool:
    return (
        group[0].head is None
        and segment_format.may_merge(group[-1].fields, entry.fields)
        and entry.end - group[0].start <= span_size
    )


def encode(entries: Iterable[Entry]) -> bytes:
    return b"".join(
        format_line(json.dumps(entry.fields, ensure_ascii=False, separators=(",", ":"))) + b"\n"
        for entry in entries
    )
