"""Positions in the server's log (LSN), and what they say of what is visible."""

from __future__ import annotations

from typing import Any, NamedTuple

import psycopg

from penstock._core import XidSet

_PAGE_HEADER, _SEGMENT_HEADER = 24, 40
"""Bytes at the beginning of a page of the log, and of its first page in a file
(`access/xlog_internal.h`)."""

_NOW = """
SELECT pg_current_snapshot()::text, pg_catalog.pg_current_wal_insert_lsn()::text,
       pg_catalog.current_setting('wal_block_size')::int,
       pg_catalog.pg_size_bytes(pg_catalog.current_setting('wal_segment_size'))
"""


class Moment(NamedTuple):
    """What a snapshot shows, and a position that is behind the commits of all of that. `next`: no transaction
    has this id yet, or a later one."""

    seen: XidSet
    end: int
    next: int


def server_name(system: str, timeline: int) -> str:
    """A server in whose log positions are. After a promotion or a restore the same positions may hold other
    transactions, on another timeline. So that is another server."""
    return f"{system}/{timeline}"


def system_of(server: str) -> str:
    """The identifier of its cluster, which a promotion does not change."""
    return server.partition("/")[0]


def lsn_of(text: str) -> int:
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def moment(connection: psycopg.Connection[Any]) -> Moment:
    """The present one. In a transaction that is REPEATABLE READ, it is the view of the whole transaction."""
    row = connection.execute(_NOW).fetchone()
    assert row is not None
    end = last_byte(lsn_of(row[1]), row[2], row[3])
    return Moment(seen_by(row[0]), end, int(row[0].split(":")[1]))


def seen_by(snapshot: str) -> XidSet:
    """`snapshot`: the text of `pg_current_snapshot()`."""
    _, after, running = snapshot.split(":")
    return XidSet.of_snapshot(int(after), [int(one) for one in running.split(",") if one])


def last_byte(inserted: int, block: int, segment: int) -> int:
    """Where the last record ends. A position for the next record may be behind the header of a page that has
    no record yet. The log that is sent does not reach it until there is one."""
    if inserted % segment == _SEGMENT_HEADER:
        return inserted - _SEGMENT_HEADER
    return inserted - _PAGE_HEADER if inserted % block == _PAGE_HEADER else inserted
