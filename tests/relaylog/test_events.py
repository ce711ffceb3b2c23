"""Events that are no rows and no statements: what the index says of them. They are made by hand, behind the
head of a real log: no server can be made to write them."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.relaylog import xa
from tests.relaylog.conftest import Received

from penstock._core import DecodeError, Framer, whole_statement

INCIDENT, FUTURE, IGNORABLE_FLAG = 26, 99, 0x80


def event(kind: int, body: bytes, flags: int = 0) -> bytes:
    made = struct.pack("<IBIIIH", 1_700_000_000, kind, 1, 19 + len(body) + 4, 0, flags) + body
    return made + struct.pack("<I", zlib.crc32(made))


def query(sql: str, variables: bytes = b"") -> bytes:
    head = bytes(11) + struct.pack("<H", len(variables)) + variables
    return event(xa.QUERY, head + b"\0" + sql.encode())


def statements(received: Received, *events: bytes) -> list[dict[str, Any]]:
    """Statements of the index after a stream that begins with the head of a real log."""
    format_description = next(xa.whole_file(min(received.folder.glob("*.binlog"))))
    framer = Framer(
        offset=0, segment_size=1 << 30, span_size=1 << 20, server_uuid="u", executed="",
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


LISTED = b"\x00\0\0\0\0\x01" + bytes(8) + b"\x06\x03std\x04\xff\0\xff\0\xff\0\x0c\x02b\0a\0\x0d\1\2\3"
"""Flags, sql_mode, catalog, charsets, the databases `b` and `a`, microseconds."""
UNLISTED = [
    b"", b"\x0c\xfe", b"\x0c\0", b"\x0c\1", b"\x0c\1a", b"\x0c\xfda\0", b"\x0c\1\0", b"\x0c\1\xff\0",
    b"\x0c\1a\0\x0c\1b\0", b"\xee\x0c\1a\0", b"\x0c\1a\0\x04\1", b"\x06\xffstd", b"\x0b\xff",
]  # fmt: skip


def test_the_databases_that_a_statement_wrote_to_are_told_as_its_event_lists_them(received: Received) -> None:
    dml = ("UPDATE t SET a = 1", "SELECT f()", "WITH x AS (SELECT 1) DELETE FROM t", "/* x */ DROP TABLE t")
    for sql in dml:
        [statement] = statements(received, query("BEGIN"), query(sql, LISTED), query("COMMIT"))
        assert statement["updates"] == ["b", "a"] and statement["sql_mode"] == 0
    for sql in (
        "CREATE TABLE t (a INT)",
        "alter table t add b int",
        "GRANT ALL ON *.* TO u",
        "ANALYZE TABLE t",
    ):
        [statement] = statements(received, query(sql, LISTED))
        assert "updates" not in statement  # the names in them say it


@pytest.mark.parametrize("variables", UNLISTED)
def test_what_cannot_be_read_as_a_list_of_databases_is_not_told(received: Received, variables: bytes) -> None:
    [statement] = statements(received, query("BEGIN"), query("SELECT f()", variables), query("COMMIT"))
    assert "updates" not in statement and statement["sql"] == "SELECT f()"


def test_dml_outside_of_a_transaction_is_told(received: Received) -> None:
    sql = "DELETE FROM `a`.`t`"
    [alone] = statements(received, query(sql))
    [within] = statements(received, query("BEGIN"), query(sql), query("COMMIT"))
    assert alone["alone"] is True and "alone" not in within


def test_a_statement_is_read_in_full_from_its_event(received: Received, tmp_path: Path) -> None:
    head = next(xa.whole_file(min(received.folder.glob("*.binlog"))))
    sql = "UPDATE t SET a = '" + "x" * 100_000 + "'"
    begin, long, load = query("BEGIN"), query(sql, LISTED), event(18, bytes(26) + b"\0LOAD DATA INFILE ''")
    segment = tmp_path / "segment"
    segment.write_bytes(b"\xfebin" + head + begin + long + load + query("x", b"\x0c\xfe"))
    base, at = 1000, 1000 + 4 + len(head)
    assert whole_statement(str(segment), base, at, 1 << 20) == '{"database":"","sql":"BEGIN"}'
    at += len(begin)
    found = json.loads(whole_statement(str(segment), base, at, 1 << 20) or "")
    charset = {"server_charset": "utf8mb4"}
    assert found == {"database": "", "sql": sql, "sql_mode": 0, **charset, "updates": ["b", "a"]}
    assert whole_statement(str(segment), base, at, len(long)) and not whole_statement(
        str(segment), base, at, 1000
    )
    at += len(long)
    assert json.loads(whole_statement(str(segment), base, at, 1 << 20) or "")["sql"] == "LOAD DATA INFILE ''"
    at += len(load)
    assert json.loads(whole_statement(str(segment), base, at, 1 << 20) or "")["updates"] is None
    assert whole_statement(str(segment), base, base + 4, 1 << 20) is None  # no statement
    for wrong in (at + 1, at + 1000, base + 1):
        with pytest.raises(DecodeError):
            whole_statement(str(segment), base, wrong, 1 << 40)
