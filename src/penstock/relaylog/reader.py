"""Reads a relay log in any process, without a lease, while its writer appends to it.

All offsets are committed transaction ends: `end` is the last one, and so are the bounds of a range. The index
of a closed segment has one entry per few MiB, so planning costs O(entries), not O(events). A bound may lie
inside a span if it was planned while the segment was open and its index was finer. Then transactions,
positions and split bounds are still exact: the events of that part are scanned. Counts are upper bounds.

A segment ends where the next one begins. Bytes that a crashed or fenced writer left after that are ignored.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock._core import DecodeError, scan_span
from penstock.errors import ConfigError, InternalError, RelayLogCorrupt
from penstock.model.name import index_keys
from penstock.model.offset import LogRange, Offset, SourcePosition, Split
from penstock.model.schema import TableId
from penstock.relaylog import index, missing_log, segment_format
from penstock.relaylog.deleted_segments import over_all_segments
from penstock.relaylog.files import ArchivedIndex, LogPlace
from penstock.relaylog.index import Entry, Prepared, SegmentIndex
from penstock.relaylog.index import Statement as Statement
from penstock.relaylog.segment import DAMAGED_HINT, SegmentName
from penstock.relaylog.segment_format import TransactionSet
from penstock.store.errors import ObjectMissing
from penstock.store.opening import open_store

if TYPE_CHECKING:
    from penstock._core import File

_LOADED_MAX = 256  # closed segments whose entries are in memory: a log of a year does not fill it


def _place(place: LogPlace | str | Path) -> LogPlace:
    if isinstance(place, LogPlace):
        return place
    if isinstance(place, str) and "://" in place:
        return LogPlace(None, open_store(place))
    return LogPlace(Path(place))


class RelayLog:
    """A relay log as committed at the last `refresh`. Not thread-safe."""

    def __init__(self, place: LogPlace) -> None:
        self._files = place.files
        self._relay = self._files.relay()
        self.uuid = str(self._relay["uuid"])
        self._names: list[SegmentName] = []
        self._bases: list[Offset] = []
        self._open: SegmentIndex | ArchivedIndex | None = None
        self._closed: OrderedDict[Offset, list[Entry]] = OrderedDict()
        self.refresh()

    @classmethod
    def open(cls, place: LogPlace | str | Path) -> RelayLog:
        """`place`: a path means a folder whose log has no archive, and a URL means an archive."""
        return cls(_place(place))

    @classmethod
    def exists(cls, place: LogPlace | str | Path) -> bool:
        """Whether readers can open it: its receiver has connected once and written the first segment."""
        files = _place(place).files
        try:
            files.relay()
        except ConfigError:
            return False
        return bool(files.names())

    @property
    def place(self) -> LogPlace:
        return self._files.place

    @property
    def path(self) -> Path:
        """The folder on this machine, which has the log's consumers."""
        if self.place.folder is None:
            raise InternalError(f"The relay log {self.place} is an archive alone.")
        return self.place.folder

    def refresh(self) -> Offset:
        """Reads what was committed or deleted since the last call; returns the new end."""
        names = self._files.names()
        # The newest segment may not have committed anything yet: then it does not exist.
        while names:
            segment = self._open
            if segment is None or segment.name != names[-1]:
                segment = self._files.newest(names[-1])
            try:
                segment.read()
            except FileNotFoundError:
                names = self._files.names()
                continue
            if segment.entries:
                self._open = segment
                break
            names.pop()
        if self._names and not names:
            raise RelayLogCorrupt(
                f"The segments of the relay log {self.place} are gone.",
                hint=DAMAGED_HINT,
                path=str(self.place),
                offset=int(self.end),
            )
        self._take(names)
        return self.end

    def newest(self) -> tuple[Offset, int]:
        """Changes with each `refresh` that has found something, also a position without bytes."""
        return self.end, len(self._open.entries) if self._open is not None else 0

    def stamp(self) -> tuple[int, int]:
        """Changes when `refresh` would find more. A new segment may show with a delay."""
        return self._open.stamp() if self._open is not None else (0, 0)

    def _take(self, names: list[SegmentName]) -> None:
        if names == self._names:
            return
        self._names, self._bases = names, [name.base for name in names]
        kept = {name.base for name in names[:-1]}
        for base in [base for base in self._closed if base not in kept]:
            del self._closed[base]

    def forget_removed(self) -> bool:
        """Drops the oldest segments if retention has deleted them; False if it has deleted none."""
        self._files.look_again()
        first = min((name.base for name in self._files.names()), default=Offset(0))
        names = [name for name in self._names if name.base >= first]
        if not names or names == self._names:
            return False
        self._take(names)
        return True

    def segments(self) -> list[SegmentName]:
        """All segments. All but the last one are closed."""
        return list(self._names)

    def entries_of(self, name: SegmentName) -> list[Entry]:
        return self._entries(self._names.index(name))

    # places -------------------------------------------------------------------------------------------------

    @property
    @over_all_segments
    def start(self) -> Offset:
        """The lowest offset at which a range can begin."""
        return self._entries(0)[0].end if self._names else Offset(0)

    @property
    def end(self) -> Offset:
        return self._open.entries[-1].committed if self._open else Offset(0)

    @property
    def started_at(self) -> dict[str, object]:
        """The requested start of the log, as recorded when it was created."""
        return dict(self._relay.get("start") or {})

    @property
    def facts(self) -> dict[str, Any]:
        """The content of `relay.json`, which the receiver wrote when it created the log."""
        return dict(self._relay)

    @property
    def source_uuid(self) -> str:
        """The server followed at `end`."""
        return str(self._head(len(self._names) - 1)["server_uuid"]) if self._names else ""

    @property
    def prepared(self) -> list[Prepared]:
        """Transactions that are prepared (XA) at `end`. Their rows follow when they are committed."""
        return index.prepared_at_end(self._open.entries) if self._open else []

    def server_uuid_at(self, offset: Offset) -> str:
        """The server whose log is at a committed offset."""
        return self._head(self._locate(offset))["server_uuid"] if self._names else ""

    def position_at(self, offset: Offset) -> SourcePosition:
        """The source's position at a committed offset."""
        number = self._locate(offset)
        entries = self._entries(number)
        after = bisect_right(entries, offset, key=lambda entry: entry.committed)
        if after and entries[after - 1].committed == offset:
            return entries[after - 1].position
        at = bisect_left(entries, offset, key=lambda entry: entry.end)
        if at == len(entries) or at == 0:
            return entries[min(at, len(entries) - 1)].position
        found = self._scan(number, at, offset)
        return found.position

    def reached(self, position: SourcePosition) -> bool:
        """Whether everything that the source wrote up to `position` is in the log."""
        return self._open is not None and self._open.entries[-1].position.order >= position.order

    @over_all_segments
    def offset_reaching(self, position: SourcePosition) -> Offset | None:
        """The smallest known committed offset at which the log has reached `position`; None: not yet.

        The position is one of the server followed now. Segments received from another server are ignored.
        """
        if not self.reached(position):
            return None
        wanted = position.order
        number = len(self._names) - 1
        while number > 0 and self._entries(number)[0].position.order >= wanted:
            if self._head(number - 1)["server_uuid"] != self._head(number)["server_uuid"]:
                break
            number -= 1
        for candidate in range(number, len(self._names)):
            for entry in self._entries(candidate):
                if entry.position.order >= wanted:
                    return entry.committed
        return None

    @over_all_segments
    def offset_within(self, position: SourcePosition) -> Offset:
        """The greatest known committed offset up to which all of the log is at or before `position` of the
        server followed now; 0 if unknown.

        Positions before the first transaction received from this server mean nothing: the log before it came
        from another server.
        """
        wanted, found = position.order, None
        for number in reversed(range(len(self._names))):
            if self._head(number)["server_uuid"] != self.source_uuid:
                break
            for entry in reversed(self._entries(number)):
                if found is None and entry.position.order <= wanted:
                    found = entry.committed
                if found is not None and entry.transactions:
                    return found
        return Offset(0)

    def executed_at(self, offset: Offset) -> TransactionSet:
        """Exactly the transactions executed at the source up to a committed offset, including those before
        the log's start."""
        number = self._locate(offset)
        segments = self._names[number].format
        known = segments.executed_before(self._head(number))
        for position, entry in enumerate(self._entries(number)):
            if entry.start >= offset and entry.end > offset:
                break
            if not entry.transactions:
                continue
            whole = entry.end <= offset or entry.committed <= offset
            part = entry if whole else self._scan(number, position, offset)
            known = known.union(segments.transactions_of(part.fields))
        return known

    def segment_of(self, offset: Offset, *, start: Offset | None = None) -> tuple[File, Offset]:
        """The file and base of the segment that holds the byte before `offset`. The part from `start` to
        `offset` will be read."""
        name = self._names[self._locate(offset)]
        return self._files.file(name, offset if start is None else start, offset), name.base

    @over_all_segments
    def last_transaction(self) -> dict[str, Any] | None:
        """The last transaction in the log, if there is one, as its receiver describes it (`Entry.last`)."""
        for number in reversed(range(len(self._names))):
            for entry in reversed(self._entries(number)):
                if entry.last is not None:
                    return entry.last
        return None

    @over_all_segments
    def window_start(self, executed: TransactionSet, *, not_after: Offset) -> Offset:
        """Where a scan for transactions that are not in `executed` has to start: a committed offset, at most
        `not_after`, before all of them."""
        number, low, high = 0, 0, len(self._names)
        while low < high:
            middle = (low + high) // 2
            if self._names[middle].format.executed_before(self._head(middle)).issubset(executed):
                number, low = middle, middle + 1
            else:
                high = middle
        for at in range(number, len(self._names)):
            committed = Offset(max(self._names[at].base, self._entries(0)[0].end))
            segments = self._names[at].format
            for entry in self._entries(at):
                if committed >= not_after:
                    return not_after
                if entry.transactions and not segments.transactions_of(entry.fields).issubset(executed):
                    return committed
                committed = Offset(max(committed, entry.committed))
        return min(not_after, self.end)

    # what a range contains ----------------------------------------------------------------------------------

    def cut(self, after: Offset, bytes_max: int) -> Offset:
        """The last committed offset at most `bytes_max` after `after`, or the next one if that is farther
        away. `after` itself if there is none."""
        best = after
        for _, entry in self._spans(LogRange(min(after, self.end), self.end)):
            if entry.committed <= after:
                continue
            if best > after and entry.committed > after + bytes_max:
                break
            best = entry.committed
        return best

    def tables(self, range_: LogRange, *, exact: bool = False) -> dict[TableId, tuple[int, int]]:
        """Row events and their bytes per table. If a bound lies inside a span, these are upper bounds; with
        `exact`, that part of the span is scanned."""
        totals: dict[str, tuple[int, int]] = {}
        for number, entry in self._spans(range_):
            parts = [(1, entry.tables)]
            if exact and (entry.start < range_.start or range_.end < entry.end):
                at = bisect_left(self._entries(number), entry.end, key=lambda one: one.end)
                parts = [(1, self._scan(number, at, min(range_.end, entry.end)).tables)]
                if range_.start > entry.start:
                    parts.append((-1, self._scan(number, at, range_.start).tables))
            for sign, tables in parts:
                for name, (events, size) in tables.items():
                    known = totals.get(name, (0, 0))
                    totals[name] = (known[0] + sign * events, known[1] + sign * size)
        return index.by_table(totals)

    def statements(self, range_: LogRange) -> list[Statement]:
        """The statements in the range, in log order."""
        return [
            statement
            for _, entry in self._spans(range_)
            for statement in entry.statements
            if range_.start < statement.end <= range_.end
        ]

    def transactions_between(self, range_: LogRange) -> int:
        return sum(entry.transactions for _, entry in self._spans(range_))

    @over_all_segments
    def committed_before(self, offset: Offset) -> Offset:
        """The end of the last transaction that ends at or before an offset; the log's start if none does."""
        for number in reversed(range(self._locate(offset) + 1)):
            entries = self._entries(number)
            for at in reversed(range(bisect_left(entries, offset, key=lambda entry: entry.start))):
                entry = entries[at] if entries[at].committed <= offset else self._scan(number, at, offset)
                if entry.committed > self.start:
                    return entry.committed
        return self.start

    @over_all_segments
    def commit_time_us_at(self, offset: Offset) -> int | None:
        """Commit time of the last transaction that ends at or before a committed offset; None if there is
        none."""
        for number in reversed(range(self._locate(offset) + 1)):
            entries = self._entries(number)
            for at in reversed(range(bisect_left(entries, offset, key=lambda entry: entry.start))):
                entry = entries[at]
                if entry.last_commit_us is not None and entry.committed > offset:
                    entry = self._scan(number, at, offset)
                if entry.last_commit_us is not None:
                    return entry.last_commit_us
        return None

    def first_commit_us_after(self, offset: Offset) -> int | None:
        """Commit time of the first transaction that ends after a committed offset; None if there is none."""
        for number, entry in self._spans(LogRange(min(offset, self.end), self.end)):
            if entry.first_commit_us is None or entry.committed <= offset:
                continue
            if entry.start < offset:
                entry = self._scan_events(number, offset, entry.committed)
            return entry.first_commit_us
        return None

    def splits(self, range_: LogRange, table: TableId, *, bytes_aim: int) -> list[Split]:
        """Splits the range into even parts that hold the table's row events, each in one segment, in log
        order.

        A split never exceeds the range. One that starts inside a transaction lists the events to read first.
        The range starts at a transaction end, so a split that starts there needs none.
        """
        keys = index_keys(table.database, table.table)
        spans = [item for item in self._spans(range_) if item[1].has(keys)]
        total = sum(entry.bytes_of(keys) for _, entry in spans)
        share = total / max(1, -(-total // max(1, bytes_aim)))
        splits: list[Split] = []
        first: tuple[int, Entry] | None = None
        size, last = 0, None
        for number, entry in spans:
            far = last is not None and entry.start - last.end > bytes_aim // 2
            if first is not None and last is not None and (size >= share or number != first[0] or far):
                splits.append(self._split(range_, first, last))
                first, size = None, 0
            first = first or (number, entry)
            size += entry.bytes_of(keys)
            last = entry
        if first is not None and last is not None:
            splits.append(self._split(range_, first, last))
        return splits

    def _split(self, range_: LogRange, first: tuple[int, Entry], last: Entry) -> Split:
        number, entry = first
        segment = self._names[number]
        path = self._files.path(segment)
        # Maps of all tables: the split may begin with row events of other tables, which need their maps.
        preamble = entry.open_events if entry.start > range_.start else []
        return Split(
            path=path,
            base=segment.base,
            start=max(entry.start, range_.start),
            end=min(last.end, range_.end),
            preamble=tuple((path, segment.base, Offset(offset)) for offset in preamble),
            source=self._files.source(segment),
        )

    # entries ------------------------------------------------------------------------------------------------

    def _spans(self, range_: LogRange) -> Iterator[tuple[int, Entry]]:
        """Entries that share bytes with the range, each with its segment's number."""
        if not self._names or not range_:
            return
        if range_.start < self._bases[0]:
            raise missing_log.purged(self.place, self._bases[0], range_.start)
        for number in range(self._locate(Offset(range_.start + 1)), len(self._names)):
            if self._bases[number] >= range_.end:
                return
            entries = self._entries(number)
            for at in range(bisect_right(entries, range_.start, key=lambda entry: entry.end), len(entries)):
                if entries[at].start >= range_.end:
                    return
                yield number, entries[at]

    def _locate(self, offset: Offset) -> int:
        """The number of the segment that holds the byte before `offset`."""
        if not self._names:
            raise ConfigError(f"The relay log {self.place} is still empty.")
        if offset < self._bases[0]:
            raise missing_log.purged(self.place, self._bases[0], offset)
        return max(0, bisect_left(self._bases, offset) - 1)

    def _head(self, number: int) -> dict[str, Any]:
        return self._entries(number)[0].head or {"server_uuid": ""}

    def _entries(self, number: int) -> list[Entry]:
        if number == len(self._names) - 1 and self._open is not None:
            return self._open.entries
        base = self._bases[number]
        if base in self._closed:
            self._closed.move_to_end(base)
            return self._closed[base]
        try:
            found = self._files.entries(self._names[number])
        except FileNotFoundError:
            raise missing_log.gone(self._files, self._names[number]) from None
        entries = self._closed_at(number, found, self._bases[number + 1])
        self._closed[base] = entries
        if len(self._closed) > _LOADED_MAX:
            self._closed.popitem(last=False)
        return entries

    def _closed_at(self, number: int, entries: list[Entry], end: Offset) -> list[Entry]:
        """The entries of a segment that ends where the next one begins."""
        kept = index.cut_off(entries, end)
        if not kept or kept[-1].end != end:
            known = kept[-1].end if kept else self._bases[number]
            raise RelayLogCorrupt(
                f"The relay log {self.place} has a gap: index {self._names[number].index} ends at {known}, "
                f"and the next segment begins at {end}. The end of the index, or a segment, is missing.",
                hint=DAMAGED_HINT,
                path=self._files.path(self._names[number]),
                offset=int(known),
            )
        at = len(kept) - 1
        if entries[at].end > end:
            # A fenced writer appended more, so this entry also describes bytes after `end`.
            kept[at] = self._scan_entry(number, kept, at, end)
        return kept

    def _scan(self, number: int, at: int, offset: Offset) -> Entry:
        """The entry of the span's part up to `offset`, computed from its events."""
        return self._scan_entry(number, self._entries(number), at, offset)

    def _scan_entry(self, number: int, entries: list[Entry], at: int, offset: Offset) -> Entry:
        entry = entries[at]
        place = segment_format.place_before(entry.fields, entries[max(0, at - 1)].fields)
        part = self._scan_events(number, entry.start, offset, entry.open_events, **place)
        return entry.recounted(offset, part.fields)

    def _scan_events(
        self, number: int, start: Offset, end: Offset, open_events: Sequence[int] = (), **place: Any
    ) -> Entry:
        """The entry of a range, computed by `_core.scan_span`. `place`: the source's position at `start`
        (`segment_format.place_before`); none: the entry's position is unknown."""
        segment = self._names[number]
        try:
            file = self._files.file(segment, start, end)
            text = scan_span(file, segment.base, start, end, open=open_events, **place)
        except (ObjectMissing, FileNotFoundError) as error:
            raise missing_log.gone(self._files, segment) from error
        except DecodeError as error:
            if self._files.is_gone(segment):
                raise missing_log.gone(self._files, segment) from error
            raise
        return Entry(json.loads(text))
