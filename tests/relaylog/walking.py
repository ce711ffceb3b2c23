"""The judge: a walk over all events of binlog files, by the format's definition, without our code."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

QUERY, XID, TABLE_MAP, GTID = 2, 16, 19, 33
ROWS = frozenset({23, 24, 25, 30, 31, 32})
_OF_A_FILE = frozenset({3, 4, 15, 35})  # STOP, ROTATE, FORMAT_DESCRIPTION, PREVIOUS_GTIDS
_NAME = re.compile(r"^(\d{20})-(\d{6})\.binlog$")


@dataclass(frozen=True)
class Event:
    start: int
    end: int
    kind: int
    table: str | None
    """Of row events: `database.table`."""
    rows: int = 0


@dataclass(frozen=True)
class Query:
    offset: int
    end: int
    database: str
    sql: str


@dataclass(frozen=True)
class Transaction:
    start: int
    end: int
    number: int
    """Of its GTID."""
    commit_us: int
    source_end: int
    """`end_log_pos` of its last event."""


class Walk:
    """Events, transactions and statements of one binlog file; offsets count from `base` at its first byte."""

    def __init__(self, data: bytes, base: int) -> None:
        assert data[:4] == b"\xfebin"
        self.events: list[Event] = []
        self.transactions: list[Transaction] = []
        self.statements: list[Query] = []
        self.base, self.head_end, self.end = base, 0, base + len(data)
        names: dict[int, str] = {}
        gtid: tuple[int, int, int] | None = None
        begun = False
        at = 4
        while at < len(data):
            kind, length, log_pos = data[at + 4], *struct.unpack_from("<II", data, at + 9)
            body = data[at + 19 : at + length - 4]
            start, end, at = base + at, base + at + length, at + length
            assert at <= len(data), f"cut off at {start}"
            if kind in _OF_A_FILE:
                self.head_end = self.head_end if self.transactions else end
                continue
            table = None
            if kind == GTID:
                gtid, begun = (start, *_gtid(body)), False
            elif kind == TABLE_MAP:
                names[_table_id(body)] = _table_name(body)
            elif kind in ROWS:
                table = names[_table_id(body)]
            self.events.append(Event(start, end, kind, table))
            ends = kind == XID
            if kind == QUERY:
                database, sql = _query(body)
                ends = sql == "COMMIT" or (sql != "BEGIN" and not begun)
                begun = begun or sql == "BEGIN"
                if sql not in ("BEGIN", "COMMIT"):
                    self.statements.append(Query(start, end, database, sql))
            if ends:
                assert gtid is not None
                self.transactions.append(Transaction(gtid[0], end, gtid[1], gtid[2], log_pos))
                gtid = None
        assert gtid is None, "the file ends inside a transaction"


def _table_id(body: bytes) -> int:
    return int.from_bytes(body[:6], "little")


def _table_name(body: bytes) -> str:
    length = body[8]
    database, rest = body[9 : 9 + length], body[10 + length :]
    return f"{database.decode()}.{rest[1 : 1 + rest[0]].decode()}"


def _gtid(body: bytes) -> tuple[int, int]:
    """Number and original commit time (they are one on the server where it was committed)."""
    number = int.from_bytes(body[17:25], "little")
    commit_us = int.from_bytes(body[42:49], "little")
    assert commit_us < 1 << 55
    return number, commit_us


def _query(body: bytes) -> tuple[str, str]:
    database, variables = body[8], int.from_bytes(body[11:13], "little")
    at = 13 + variables
    return body[at : at + database].decode(), body[at + database + 1 :].decode()


class LogWalk:
    """All segments of a relay log: of each base the latest generation, cut at the next base."""

    def __init__(self, folder: Path, end: int) -> None:
        found = sorted(path.name for path in folder.iterdir() if _NAME.match(path.name))
        names = list({name[:20]: name for name in found}.values())
        bases = [int(name[:20]) for name in names]
        self.segments: list[tuple[Path, Walk]] = []
        for name, base, bound in zip(names, bases, [*bases[1:], end], strict=True):
            data = (folder / name).read_bytes()
            assert len(data) >= bound - base
            self.segments.append((folder / name, Walk(data[: bound - base], base)))

    @property
    def walks(self) -> list[Walk]:
        return [walk for _, walk in self.segments]

    @cached_property
    def transactions(self) -> list[Transaction]:
        return [transaction for walk in self.walks for transaction in walk.transactions]

    @cached_property
    def statements(self) -> list[Query]:
        return [query for walk in self.walks for query in walk.statements]

    @cached_property
    def row_events(self) -> list[Event]:
        return [event for walk in self.walks for event in walk.events if event.table is not None]

    @cached_property
    def ends(self) -> list[int]:
        """Where a range may begin or end: behind each segment's head and each transaction."""
        return sorted(
            {walk.head_end for walk in self.walks} | {transaction.end for transaction in self.transactions}
        )

    @cached_property
    def largest(self) -> int:
        """Bytes of the largest event or segment head: how far a span may pass its size."""
        heads = [walk.head_end - walk.base for walk in self.walks]
        return max([event.end - event.start for walk in self.walks for event in walk.events] + heads)

    def rows_in(self, table: str, start: int, end: int) -> list[Event]:
        return [event for event in self.row_events if event.table == table and start < event.end <= end]

    def tables(self, start: int, end: int) -> dict[str, tuple[int, int]]:
        totals: dict[str, tuple[int, int]] = {}
        for event in self.row_events:
            if start < event.end <= end and event.table is not None:
                count, size = totals.get(event.table, (0, 0))
                totals[event.table] = (count + 1, size + event.end - event.start)
        return totals


def index_entries(folder: Path) -> Iterator[dict[str, Any]]:
    """Entries of all index files as they stand, in order."""
    for path in sorted(folder.glob("*.index")):
        for line in path.read_bytes().splitlines():
            yield json.loads(line[:-9])


def source_ends(files: list[Path]) -> dict[int, tuple[int, int]]:
    """Of each GTID number: the file's number and the position where its transaction ends at the source."""
    found = {}
    for path in files:
        for transaction in Walk(path.read_bytes(), 0).transactions:
            found[transaction.number] = (int(path.suffix[1:]), transaction.end)
            assert transaction.source_end == transaction.end
    return found
