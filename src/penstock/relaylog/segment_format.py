"""The segment format: its name, and what its index entries say in the source's own terms.

The core cuts the source's bytes into segments and writes the index entries (`core/src/segment_format.rs`).
Segments have the suffix of their format, by which the core chooses how they are read.

This module alone reads an entry's fields `file`, `position`, `lsn` and `executed`. Everybody else gets opaque
values: a `SourcePosition` that can be compared, printed and stored, and a `TransactionSet`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from penstock._core import GtidSet, SeriesSet, XidSet
from penstock.model.offset import UNKNOWN_POSITION, SourcePosition

if TYPE_CHECKING:
    from typing_extensions import Self

MYSQL_BINLOG = "mysql-binlog"
"""The segment format of MySQL and MariaDB: each segment is a valid binlog file."""
ROWS = "rows"
"""Penstock's own, for sources that have no binary log of their own (`core/src/typed_rows`)."""
PGOUTPUT = "pgoutput"
"""What PostgreSQL's output plugin sends (`core/src/pgoutput`)."""
EARLIEST_FORMAT = MYSQL_BINLOG
"""The format of logs that name none: they were written before there were names."""

Fields = Mapping[str, Any]
"""The fields of an index entry."""
BESIDE_EVENTS = ("file", "position", "lsn")
"""The fields that do not follow from the events of the span."""
_EARLIER = {"gtids": "executed", "gtid": "id"}


class TransactionSet(Protocol):
    """A set of the source's transactions. Its text is what is stored. Immutable."""

    def issubset(self, other: Self) -> bool: ...
    def union(self, other: Self) -> Self: ...
    def intersection(self, other: Self) -> Self: ...
    def __contains__(self, id: str, /) -> bool: ...
    def __bool__(self) -> bool: ...


@dataclass(frozen=True)
class SegmentFormat:
    """What the index of a log knows of its segments."""

    name: str
    suffix: str
    """That of segment files."""
    magic: bytes
    """What they begin with."""
    transaction_set: Callable[[str], TransactionSet]
    """Makes a set of its text. Raises `ValueError`."""

    def transactions_of(self, entry: Fields) -> TransactionSet:
        """The transactions that ended in the span."""
        return _set_of(self, entry.get("executed", ""))

    def executed_before(self, head: Fields) -> TransactionSet:
        """The transactions that the source had executed before a segment."""
        return _set_of(self, head.get("executed", ""))

    def merged(self, left: Fields, right: Fields) -> dict[str, Any]:
        """The fields of this module for two adjacent spans, as far as they are not those of `right`."""
        if "executed" not in left:
            return {}
        if "executed" not in right:
            return {"executed": left["executed"]}
        return {"executed": str(self.transactions_of(left).union(self.transactions_of(right)))}


_RECORDS = b"PNST"
"""What files of records begin with. Then they name their format."""

_FORMATS = (
    SegmentFormat(MYSQL_BINLOG, "binlog", b"\xfebin", GtidSet),
    SegmentFormat(ROWS, "rows", _RECORDS, SeriesSet),
    SegmentFormat(PGOUTPUT, "pgoutput", _RECORDS, XidSet),
)
_BY_NAME = {one.name: one for one in _FORMATS}
_BY_SUFFIX = {one.suffix: one for one in _FORMATS}
SEGMENT_FORMATS = tuple(_BY_NAME)
"""The segment formats that the core can read."""
SUFFIXES = tuple(_BY_SUFFIX)
"""The suffixes of segment files."""
EARLIEST_SUFFIX = _BY_NAME[EARLIEST_FORMAT].suffix


@lru_cache(maxsize=10_000)
def _set_of(segments: SegmentFormat, text: str) -> TransactionSet:
    return segments.transaction_set(text)


def format_of(relay: Mapping[str, Any]) -> str:
    """The format of the segments of a log. `relay`: the content of its `relay.json`."""
    return str(relay.get("segment_format", EARLIEST_FORMAT))


def of_log(relay: Mapping[str, Any]) -> SegmentFormat:
    """The same for a log whose format is known."""
    return _BY_NAME[format_of(relay)]


def set_of(relay: Mapping[str, Any], text: str) -> TransactionSet:
    """The set that a text stands for in a log. `relay`: see `format_of`."""
    return of_log(relay).transaction_set(text)


def of_suffix(suffix: str) -> SegmentFormat:
    return _BY_SUFFIX[suffix]


def of_file(path: str) -> SegmentFormat:
    """The format by which the core reads a file, which need not be one of a relay log."""
    return _BY_SUFFIX.get(path.rpartition(".")[2], _BY_NAME[EARLIEST_FORMAT])


def suffix_of(head: bytes) -> str:
    """The suffix of a segment that begins with these bytes."""
    found = (one.suffix for one in _FORMATS if head.startswith(one.magic)
             and (one.magic != _RECORDS or f'"{one.name}"'.encode() in head))  # fmt: skip
    return next(found, EARLIEST_SUFFIX)


def suffix_of_log(relay: Mapping[str, Any]) -> str:
    """The suffix of the segments of a log. `relay`: see `format_of`."""
    known = _BY_NAME.get(format_of(relay))
    return EARLIEST_SUFFIX if known is None else known.suffix


def position(file: str, place: int) -> SourcePosition:
    """A place in a file of the source's log. The number at the end of the file's name orders the files, since
    the names of one server's files differ only in that number. Without a name, the position is unknown."""
    if not file:
        return UNKNOWN_POSITION
    return SourcePosition((int(file.rsplit(".", 1)[1]), place), f"{file}:{place}")


def number_position(number: int) -> SourcePosition:
    """A place in a log whose places are numbers."""
    return SourcePosition((number,), str(number))


def position_of(entry: Fields) -> SourcePosition:
    """The source's position at the entry's `committed`."""
    if (lsn := entry.get("lsn")) is not None:
        return lsn_position(lsn)
    if (file := entry.get("file")) is not None:
        return position(file, entry["position"])
    return number_position(entry["position"])


def lsn_position(lsn: int) -> SourcePosition:
    """A place in PostgreSQL's log, which is one number, as the server prints it."""
    return SourcePosition((lsn,), f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}")


def may_merge(left: Fields, right: Fields) -> bool:
    """Whether one entry may describe both spans. Events do not say which file of the source they came from,
    so all events of an entry come from one file."""
    return bool(left.get("file") == right.get("file"))


def without(seen: str | None) -> dict[str, Any]:
    """Arguments of the core's decoders: whole transactions in `seen` are skipped. None: none are."""
    return {} if seen is None else {"exclude": seen}


def place_before(entry: Fields, before: Fields) -> dict[str, Any]:
    """Arguments of `_core.scan_span`: the source's position at the start of an entry's span. `before`: the
    entry before it. A span of another file may have begun anywhere in its file."""
    same = before.get("file") == entry.get("file")
    return {"file": entry.get("file", ""), "position": _number_of(before) if same else 0}


def _number_of(entry: Fields) -> int:
    return int(entry.get("lsn", entry.get("position", 0)))


def renamed(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of an entry by their present names. Logs of 0.1.0 have names of MySQL's."""
    for part in (fields, fields.get("head"), fields.get("last")):
        for earlier, name in _EARLIER.items():
            if part is not None and earlier in part:
                part[name] = part.pop(earlier)
    if isinstance(opened := fields.get("open"), dict):
        events = [opened.get("gtid_event"), *opened.get("table_maps", {}).values()]
        fields["open"] = sorted(offset for offset in events if offset is not None)
    return fields
