"""Events that are no rows and no statements: what the index says of them. They are made by hand, behind the
head of a real log: no server can be made to write them."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import pytest
from tests.relaylog import xa
from tests.relaylog.conftest import Received

from penstock._core import Framer, GtidSet

INCIDENT, FUTURE, IGNORABLE_FLAG = 26, 99, 0x80


def event(kind: int, body: bytes, flags: int = 0) -> bytes:
    made = struct.pack("<IBIIIH", 1_700_000_000, kind, 1, 19 + len(body) + 4, 0, flags) + body
    return made + struct.pack("<I", zlib.crc32(made))


def query(sql: str) -> bytes:
    return event(xa.QUERY, bytes(13) + b"\0" + sql.encode())


def statements(received: Received, *events: bytes) -> list[dict[str, Any]]:
    """Statements of the index after a stream that begins with the head of a real log."""
    format_description = next(xa.whole_file(min(received.folder.glob("*.binlog"))))
    framer = Framer(
        offset=0, segment_size=1 << 30, span_size=1 << 20, server_uuid="u", executed=GtidSet(),
    )  # fmt: skip
    framer.feed(xa.packets([format_description, *events]))
    return [one for text in framer.cut() for one in json.loads(text).get("statements", [])]


@pytest.mark.parametrize("kind", [INCIDENT, FUTURE])
@pytest.mark.parametrize("inside", [False, True])
def test_an_event_that_may_have_changed_rows_is_told_with_its_type_and_place(
    received: Received, kind: int, inside: bool
) -> None:
    found = event(kind, b"\x01\0\0")
    events = [query("BEGIN"), found, event(xa.XID, bytes(8))] if inside else [found]
    [statement] = statements(received, *events)
    assert statement["event"] == kind and statement["end"] - statement["offset"] == len(found)


@pytest.mark.parametrize("kind", [FUTURE, 28, 29, 36, 37])
def test_an_event_that_may_be_ignored_is(received: Received, kind: int) -> None:
    ignored = event(kind, b"abc", IGNORABLE_FLAG)
    assert statements(received, ignored, query("BEGIN"), ignored, event(xa.XID, bytes(8))) == []


@pytest.mark.parametrize("kind", [5, 13, 14])
def test_variables_of_a_statement_are_not_statements(received: Received, kind: int) -> None:
    [statement] = statements(
        received, query("BEGIN"), event(kind, bytes(9)), query("INSERT INTO t VALUES (1)"), query("COMMIT")
    )
    assert statement["sql"] == "INSERT INTO t VALUES (1)"
