"""What the server's own plugin `test_decoding` shows of a log, beside our messages of the same log. The
statements are of the kinds that wal2json's tests have, in our own words."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
from tests.sources.postgresql.pg_log import PgLog

from penstock.testing.servers.postgresql import PostgreSqlServer

TABLES = (
    "DROP SCHEMA IF EXISTS beside CASCADE", "CREATE SCHEMA beside", "SET search_path = beside",
    "CREATE TYPE pair AS (a int, b text)",
    """CREATE TABLE every (
        id serial PRIMARY KEY, small smallint, big bigint, n numeric(12,4), free numeric, f float8,
        fixed char(6),
        v varchar(20), t text, bits bit(3), flag boolean, p pair, e public.happy, u uuid, many text[])""",
    "CREATE TABLE two (a int, b int, v text, PRIMARY KEY (b, a))",
    "CREATE TABLE by_index (id int NOT NULL, code text NOT NULL, v int)",
    "CREATE UNIQUE INDEX of_code ON by_index (code)",
    "ALTER TABLE by_index REPLICA IDENTITY USING INDEX of_code",
    "CREATE TABLE whole (id int, v text)", "ALTER TABLE whole REPLICA IDENTITY FULL",
    "CREATE TABLE far (id int PRIMARY KEY, n int, body text)",
    "ALTER TABLE far ALTER body SET STORAGE EXTERNAL",
    "CREATE TABLE made (id int PRIMARY KEY, a int, twice int GENERATED ALWAYS AS (a * 2) STORED)",
    "CREATE TABLE parts (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (10) TO (20)",
)  # fmt: skip
EVERY = """INSERT INTO every VALUES (
    DEFAULT, -32768, 9223372036854775807, -1234.5, 1e-20, 0.1, 'ab', 'ü''"',
    E'a\\n\\tb\\\\', B'101', true, ROW(1, 'x y'), 'so so',
    '6ecd8c99-4036-403d-bf84-cf8400f67836', '{a,NULL}')"""
TRANSACTIONS = (
    (EVERY,
     "INSERT INTO every (small, f) VALUES (NULL, 'NaN'), (1, 'Infinity'), (2, '-Infinity')"),
    ("UPDATE every SET n = n * 2, t = NULL WHERE id = 1", "UPDATE every SET id = 50 WHERE id = 2",
     "DELETE FROM every WHERE id = 3"),
    ("INSERT INTO two VALUES (1, 2, 'x'), (2, 1, 'y')", "SAVEPOINT one", "UPDATE two SET v = 'lost'",
     "SAVEPOINT two", "DELETE FROM two", "ROLLBACK TO one", "UPDATE two SET a = 9 WHERE b = 1",
     "RELEASE one"),
    ("INSERT INTO two VALUES (5, 5, 'never')", "ROLLBACK"),
    ("INSERT INTO by_index VALUES (1, 'a', 1), (2, 'b', 2)",
     "UPDATE by_index SET v = 5, id = 3 WHERE code = 'a'",
     "UPDATE by_index SET code = 'c' WHERE code = 'b'", "DELETE FROM by_index WHERE code = 'a'"),
    ("INSERT INTO whole VALUES (1, 'x'), (1, 'x'), (NULL, NULL)", "UPDATE whole SET v = 'y' WHERE id = 1",
     "DELETE FROM whole WHERE id IS NULL"),
    ("INSERT INTO far VALUES (1, 1, repeat('z', 9000))", "UPDATE far SET n = 2", "DELETE FROM far"),
    ("INSERT INTO made VALUES (1, 2)", "UPDATE made SET a = 3"),
    ("INSERT INTO parts VALUES (1, 'a'), (11, 'b')", "UPDATE parts SET id = 12 WHERE id = 1",
     "DELETE FROM parts"),
    ("UPDATE every SET v = 'nobody' WHERE false", "SELECT pg_logical_emit_message(true, 'x', 'y')"),
)  # fmt: skip
LINE = re.compile(r"table beside\.(\w+): (INSERT|UPDATE|DELETE):(.*)", re.DOTALL)
COLUMN = re.compile(r"(\w+)\[[^\]]+(?:\[\])?\]:('(?:[^']|'')*'|B'[01]*'|[^ ]+)")
OPERATIONS = {"INSERT": "c", "UPDATE": "u", "DELETE": "d"}

Row = dict[str, Any]
Change = tuple[str, str, Row, Row]
"""Table, operation, what identifies the row before, and what it has after the change."""


def columns(text: str) -> Row:
    return {name: value_of(shown) for name, shown in COLUMN.findall(text) if shown != "unchanged-toast-datum"}


def value_of(shown: str) -> Any:
    if shown == "null":
        return None
    if shown[0] == "'":
        return shown[1:-1].replace("''", "'")
    return in_one_form(shown.removeprefix("B").strip("'"))


def in_one_form(value: Any) -> Any:
    """Numbers without zeros at their ends, and truth as PostgreSQL prints it."""
    if value is None or isinstance(value, bool):
        return None if value is None else str(value).lower()
    try:
        number = Decimal(str(value))
    except ArithmeticError:
        return value
    return str(value) if not number.is_finite() else f"{number.normalize():f}"


def change_of(line: str) -> Change | None:
    found = LINE.fullmatch(line)
    if found is None:
        return None
    table, kind, said = found[1], found[2], found[3].strip(" ")
    table = "parts" if table.startswith("parts_") else table
    old, new = {}, columns(said)
    if said.startswith("old-key: "):
        before, _, after = said.removeprefix("old-key: ").partition(" new-tuple: ")
        old, new = columns(before), columns(after)
    if kind == "DELETE":
        old, new = new, {}
    return table, OPERATIONS[kind], old, new


def test_every_change_is_the_one_that_the_server_shows(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    for statement in TABLES:
        connection.execute(statement.encode())
    connection.execute("SELECT pg_create_logical_replication_slot('beside', 'test_decoding')")
    log = PgLog(server, connection, "beside_ours")
    try:
        for statements in TRANSACTIONS:
            for statement in ("BEGIN", *statements, *(["COMMIT"] if statements[-1] != "ROLLBACK" else [])):
                connection.execute(statement.encode())
        lines = connection.execute("SELECT data FROM pg_logical_slot_get_changes('beside', NULL, NULL)")
        wanted = [one for (line,) in lines.fetchall() if (one := change_of(line)) is not None]
        segment = log.segment(tmp_path / "0.pgoutput")
    finally:
        log.close()
        connection.execute("SELECT pg_drop_replication_slot('beside')")
    ours = [one for one in segment.messages("json") if one.get("database") == "beside"]
    shown = [(one["table"], one["op"]) for one in ours]
    assert shown == [(table, operation) for table, operation, *_ in wanted] and len(shown) > 30
    for message, (table, operation, old, new) in zip(ours, wanted, strict=True):
        assert (message["table"], message["op"]) == (table, operation)
        before, after = (
            {name: plain(value) for name, value in (message[image] or {}).items()}
            for image in ("before", "after")
        )
        new.pop("twice", None)  # generated columns are not sent
        if operation != "c" and old:
            assert {name: before[name] for name in old} == {name: plain(value) for name, value in old.items()}
        assert after == {name: plain(value) for name, value in new.items()}, (table, operation)


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return "{" + ",".join("NULL" if one is None else str(one) for one in value) + "}"
    return in_one_form(value)
