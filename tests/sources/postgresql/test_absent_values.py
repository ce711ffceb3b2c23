"""Values that the log of a real server lacks: long ones that an update left alone, and what a row had before
a change beside its key. Messages have what Debezium's have in their place."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.sources.postgresql.pg_log import PgLog, Segment

from penstock._core import LogEncoder
from penstock.testing.servers.postgresql import PostgreSqlServer

UNAVAILABLE = "__debezium_unavailable_value"
LONG = """body text, raw bytea NOT NULL, doc jsonb, many text[]"""
FULL = """repeat('x', 5000), decode(repeat('00ff', 2000), 'hex'),
    jsonb_build_object('b', repeat('y', 5000)), ARRAY[repeat('z', 5000)]"""


def _segment(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], folder: Path, *statements: str
) -> Segment:
    log = PgLog(server, connection, "absent")
    try:
        for statement in statements:
            connection.execute(statement.encode())
        return log.segment(folder / "0.pgoutput")
    finally:
        log.close()


@pytest.fixture
def moved(server: PostgreSqlServer, connection: psycopg.Connection[Any], tmp_path: Path) -> Segment:
    """An update that leaves long values alone, and one that changes the key, too."""
    columns = ("body", "raw", "doc", "many")
    return _segment(
        server, connection, tmp_path, "DROP TABLE IF EXISTS far",
        f"CREATE TABLE far (id int PRIMARY KEY, n int NOT NULL, {LONG})",
        *(f"ALTER TABLE far ALTER {one} SET STORAGE EXTERNAL" for one in columns),
        f"INSERT INTO far VALUES (1, 5, {FULL})",
        "UPDATE far SET n = 6",
        "UPDATE far SET id = 11",
    )  # fmt: skip


def test_debeziums_messages_have_its_placeholder(moved: Segment) -> None:
    _, updated, deleted, created = (one for one in moved.messages("debezium") if one)
    absent = {
        "body": UNAVAILABLE, "raw": base64.b64encode(UNAVAILABLE.encode()).decode(), "doc": UNAVAILABLE,
        "many": [UNAVAILABLE],
    }  # fmt: skip
    assert (updated["op"], updated["before"], updated["after"]) == ("u", None, {"id": 1, "n": 6, **absent})
    assert (created["op"], created["after"]) == ("c", {"id": 11, "n": 6, **absent})
    gone = {"id": 1, "n": 0, "body": None, "raw": "", "doc": None, "many": None}
    assert (deleted["op"], deleted["before"]) == ("d", gone)


def test_the_placeholder_is_that_of_debeziums_option(moved: Segment) -> None:
    found = moved.messages("debezium", unavailable_value_placeholder="?")
    assert found[1]["after"]["body"] == "?"


@pytest.mark.parametrize(("format", "row"), [("json", "after"), ("maxwell", "data"), ("canal", "data")])
def test_other_formats_leave_the_columns_out(moved: Segment, format: str, row: str) -> None:
    updates = moved.messages(format)[1:3]
    for one, id in zip(updates, (1, 11), strict=True):
        [found] = one[row] if isinstance(one[row], list) else [one[row]]
        assert {name: str(value) for name, value in found.items()} == {"id": str(id), "n": "6"}


def _avro(segment: Segment) -> list[Any]:
    from tests.core.test_encode_binary import avro_reader

    encoder = LogEncoder([(str(segment.path), 0, 0, segment.size, [])], "avro", options="{}")
    messages = list[Any]()
    while (step := encoder.read(1 << 20)) is not None:
        messages += step if isinstance(step, list) else step.messages()
    read = avro_reader(encoder.message_schemas)
    return [read(message[2]) for message in messages if not isinstance(message, dict)]


def test_avro_has_the_placeholder_and_zeros_in_columns_that_are_not_null(moved: Segment) -> None:
    _, updated, deleted, *_, created = (one for one in _avro(moved) if one is not None)
    assert updated["after"]["body"] == UNAVAILABLE and updated["after"]["raw"] == UNAVAILABLE.encode()
    assert updated["before"] is None
    assert (deleted["op"], deleted["before"]["n"], deleted["before"]["raw"]) == ("d", 0, b"")
    assert created["after"]["many"] == [UNAVAILABLE]


REQUIRED = """CREATE TABLE required (
    id int PRIMARY KEY, a text NOT NULL, b bigint NOT NULL, c boolean NOT NULL, d date NOT NULL,
    e timestamp NOT NULL, f timestamptz NOT NULL, g numeric(10,2) NOT NULL, h float8 NOT NULL,
    i jsonb NOT NULL, j int[] NOT NULL, k time NOT NULL, l bytea NOT NULL,
    m uuid NOT NULL, n interval NOT NULL, o numeric NOT NULL, p happy NOT NULL)"""


@pytest.fixture
def deleted(server: PostgreSqlServer, connection: psycopg.Connection[Any], tmp_path: Path) -> Segment:
    return _segment(
        server, connection, tmp_path, "DROP TABLE IF EXISTS required", REQUIRED,
        "INSERT INTO required VALUES (1, 'a', 2, true, '2024-01-01', '2024-01-01', '2024-01-01', 1.25, 2.5, "
        "'[1]', '{1}', '12:00', '\\x00', gen_random_uuid(), '1 day', 0.5, 'fine')",
        "DELETE FROM required",
    )  # fmt: skip


def test_a_deletion_has_the_key_and_zeros_in_columns_that_are_not_null(deleted: Segment) -> None:
    [_, message, *_] = deleted.messages("debezium", schemas=True)
    before = message["payload"]["before"]
    assert before.pop("f") == "1970-01-01T00:00:00.000000Z"
    assert before == {
        "id": 1, "a": "", "b": 0, "c": False, "d": 0, "e": 0, "g": "AA==", "h": 0.0, "i": "{}", "j": [],
        "k": 0, "l": "", "m": "00000000-0000-0000-0000-000000000000", "n": "PT0S",
        "o": {"scale": 0, "value": "AA=="}, "p": "",
    }  # fmt: skip
    fields = next(one for one in message["schema"]["fields"] if one["field"] == "before")["fields"]
    assert not any(one["optional"] for one in fields), "so none of them may be null"
    [*_, avro] = (one for one in _avro(deleted) if one is not None)
    assert avro["op"] == "d" and avro["before"]["a"] == "" and avro["before"]["j"] == []


@pytest.mark.parametrize(("format", "row"), [("json", "before"), ("maxwell", "data"), ("canal", "data")])
def test_other_formats_have_the_key_of_a_deleted_row_alone(deleted: Segment, format: str, row: str) -> None:
    [_, one] = deleted.messages(format)
    [found] = one[row] if isinstance(one[row], list) else [one[row]]
    assert {name: str(value) for name, value in found.items()} == {"id": "1"}
