"""The segment format: its name, and what its index entries say in the source's own terms.

The core cuts the source's bytes into segments and writes the index entries (`core/src/segment_format.rs`).
Segments have the suffix of their format, by which the core chooses how they are read.

This module alone reads an entry's fields `file`, `position` and `gtids`. Everybody else gets opaque values: a
`SourcePosition` that can be compared, printed and stored, and a `TransactionSet`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock._core import GtidSet as TransactionSet
from penstock.model.offset import UNKNOWN_POSITION, SourcePosition

MYSQL_BINLOG = "mysql-binlog"
"""The segment format of MySQL and MariaDB: each segment is a valid binlog file."""
ROWS = "rows"
"""Penstock's own, for sources that have no binary log of their own (`core/src/typed_rows`)."""
SEGMENT_FORMATS = (MYSQL_BINLOG, ROWS)
"""The segment formats that the core can read."""
EARLIEST_FORMAT = MYSQL_BINLOG
"""The format of logs that name none: they were written before there were names."""
SUFFIXES = {MYSQL_BINLOG: "binlog", ROWS: "rows"}
"""The suffixes of segment files."""
EARLIEST_SUFFIX = SUFFIXES[EARLIEST_FORMAT]
_RECORDS = b"PNST"
"""What files of records begin with."""

Fields = Mapping[str, Any]
"""The fields of an index entry."""
BESIDE_EVENTS = ("file", "position")
"""The fields that do not follow from the events of the span."""

__all__ = ["BESIDE_EVENTS", "TransactionSet"]


def format_of(relay: Mapping[str, Any]) -> str:
    """The format of the segments of a log. `relay`: the content of its `relay.json`."""
    return str(relay.get("segment_format", EARLIEST_FORMAT))


def suffix_of(head: bytes) -> str:
    """The suffix of a segment that begins with these bytes."""
    return SUFFIXES[ROWS if head.startswith(_RECORDS) else MYSQL_BINLOG]


def suffix_of_log(relay: Mapping[str, Any]) -> str:
    """The suffix of the segments of a log. `relay`: see `format_of`."""
    return SUFFIXES.get(format_of(relay), EARLIEST_SUFFIX)


def position(file: str, place: int) -> SourcePosition:
    """A place in a file of the source's log. The number at the end of the file's name orders the files, since
    the names of one server's files differ only in that number. Without a name, the position is unknown."""
    if not file:
        return UNKNOWN_POSITION
    return SourcePosition((int(file.rsplit(".", 1)[1]), place), f"{file}:{place}")


def position_of(entry: Fields) -> SourcePosition:
    """The source's position at the entry's `committed`."""
    return position(entry["file"], entry["position"])


def transactions_of(entry: Fields) -> TransactionSet:
    """The transactions that ended in the span."""
    return TransactionSet(entry.get("gtids", ""))


def executed_before(head: Fields) -> TransactionSet:
    """The transactions that the source had executed before a segment."""
    return TransactionSet(head.get("gtids", ""))


def merged(left: Fields, right: Fields) -> dict[str, Any]:
    """The fields of this module for two adjacent spans, as far as they are not those of `right`."""
    if "gtids" not in left:
        return {}
    if "gtids" not in right:
        return {"gtids": left["gtids"]}
    return {"gtids": str(transactions_of(left).union(transactions_of(right)))}


def may_merge(left: Fields, right: Fields) -> bool:
    """Whether one entry may describe both spans. Events do not say which file of the source they came from,
    so all events of an entry come from one file."""
    return bool(left["file"] == right["file"])


def without(seen: str | None) -> dict[str, Any]:
    """Arguments of the core's decoders: whole transactions in `seen` are skipped. None: none are."""
    return {} if seen is None else {"exclude": seen}


def events_before(opened: Fields) -> list[int]:
    """Offsets of the events that a span which starts inside a transaction needs from before it, in log order:
    the event that began the transaction, then those that describe the tables of its rows. `opened`: the
    field `open` of its entry."""
    offsets = [opened.get("gtid_event"), *opened.get("table_maps", {}).values()]
    return sorted(offset for offset in offsets if offset is not None)


def scan_from(entry: Fields, before: Fields) -> dict[str, Any]:
    """Arguments of `_core.scan_span`: the source's position at the start of an entry's span. `before`: the
    entry before it. A span of another file may have begun anywhere in its file."""
    same = before["file"] == entry["file"]
    return {"file": entry["file"], "position": before["position"] if same else 0}
