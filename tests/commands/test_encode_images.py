"""`penstock encode` where row images lack columns: every format against every `binlog_row_image`. The judge
is the server's SELECT before and after each statement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pymysql
import pytest

from penstock.commands.encode import encode
from penstock.encode.options import BINARY_FORMATS, FORMATS
from penstock.testing import servers
from penstock.testing.servers import DatabaseServer

IMAGES = ("FULL", "MINIMAL", "NOBLOB", "FULL_NODUP")
TABLES = {
    "one": "id INT PRIMARY KEY, v VARCHAR(20), w INT DEFAULT 5, b TEXT",
    "pair": "v VARCHAR(20), id INT, w INT DEFAULT 5, b BLOB, PRIMARY KEY (w, id)",
    "bare": "id INT, v VARCHAR(20), w INT DEFAULT 5, UNIQUE (id)",
}
STATEMENTS = (
    "INSERT INTO {} SET id = 1, v = 'a', w = 9",
    "INSERT INTO {} SET id = 2, v = 'b'",
    "UPDATE {} SET v = 'c' WHERE id = 1",
    "UPDATE {} SET w = w + 1 WHERE id = 2",
    "UPDATE {} SET id = 7 WHERE id = 2",
    "UPDATE {} SET v = NULL",
    "REPLACE INTO {} SET id = 1, v = 'd'",
    "DELETE FROM {} WHERE id = 7",
)
KEYS = {"one": ["id"], "pair": ["w", "id"], "bare": []}
CANAL = ("canal", "canal-entry")

Row = dict[str, Any]


class Step(NamedTuple):
    """A statement: its log, and the rows of its table before and after it."""

    statement: str
    table: str
    log: Path
    before: list[Row]
    after: list[Row]


def rows(server: DatabaseServer, table: str) -> list[Row]:
    with server.connect(cursorclass=pymysql.cursors.DictCursor) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM d.{table}")
        return [dict(row) for row in cursor.fetchall()]


def steps(server: DatabaseServer, image: str) -> list[Step]:
    found = []
    server.execute("DROP DATABASE IF EXISTS d", "CREATE DATABASE d")
    server.execute(*(f"CREATE TABLE d.{name} ({columns})" for name, columns in TABLES.items()))
    for table in TABLES:
        for statement in STATEMENTS:
            sql = statement.format(f"d.{table}")
            before = rows(server, table)
            server.execute("FLUSH BINARY LOGS", f"SET SESSION binlog_row_image = '{image}'", sql)
            found.append(Step(sql, table, server.binlog_files()[-1], before, rows(server, table)))
    return found


def encoded(step: Step, format: str, capture: pytest.CaptureFixture[str]) -> tuple[int, list[str], str]:
    code = encode(
        [str(step.log)], format=format, options=(), ddl=[], ddl_version="8.0", server=None, tables=[],
        keys=False, as_json=False,
    )  # fmt: skip
    captured = capture.readouterr()
    return code, [line for line in captured.out.splitlines() if line], captured.err


@pytest.mark.slow_for("mysql57", "mysql97", "mariadb1011")
@pytest.mark.parametrize("flavor", sorted(servers.FLAVORS))
def test_messages_of_partial_images_are_right_or_refused(
    flavor: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with servers.FLAVORS[flavor]() as server:
        try:
            server.execute("SET GLOBAL binlog_row_metadata = 'FULL'")
        except pymysql.err.MySQLError:
            return  # MySQL 5.7: no names, and nothing to refuse
        refused = set()
        for image in IMAGES:
            try:
                server.execute(f"SET SESSION binlog_row_image = '{image}'")
            except pymysql.err.MySQLError:
                assert image == "FULL_NODUP"
                continue
            for step in steps(server, image):
                codes = {}
                for format in FORMATS:
                    codes[format], lines, errors = encoded(step, format, capfd)
                    what = f"{image} {format}: {step.statement}"
                    if codes[format]:
                        assert lines == [] and "binlog_row_image = FULL" in errors, what
                        assert image != "FULL", what
                        refused.add((image, format))
                        continue
                    assert lines, what
                    if format in BINARY_FORMATS:
                        continue
                    for line in lines:
                        check(format, json.loads(line), step, what)
                assert codes["canal"] == codes["canal-entry"], step.statement
                assert codes["debezium"] == codes["avro"] == codes["protobuf"] == codes["cloudevents"]
        assert ("MINIMAL", "debezium") in refused
        assert ("MINIMAL", "canal") in refused or not flavor.startswith("mariadb")


def check(format: str, message: Row, step: Step, what: str) -> None:
    match format:
        case "canal":
            before = message["old"] or [None] * len(message["data"])
            for new, old in zip(message["data"], before, strict=True):
                deleted = message["type"] == "DELETE"
                has_key(new, step, what)
                row = fitting(new, step.before if deleted else step.after, what)
                if old is not None:
                    changed(old, new, row, step, what)
        case "maxwell":
            has_key(message["data"], step, what)
            row = fitting(message["data"], step.before if message["type"] == "delete" else step.after, what)
            if "old" in message:
                changed(message["old"], message["data"], row, step, what)
        case "json":
            newest = message["after"] if message["after"] is not None else message["before"]
            has_key(newest, step, what)
            for image, known in (("before", step.before), ("after", step.after)):
                if message[image] is not None:
                    fitting(message[image], known, what)
        case "debezium":
            for image, known in (("before", step.before), ("after", step.after)):
                if message and message[image] is not None:
                    assert message[image].keys() == known[0].keys(), what
                    fitting(message[image], known, what)


def has_key(image: Row, step: Step, what: str) -> None:
    assert image.keys() >= set(KEYS[step.table]), what


def text(value: Any) -> str | None:
    return None if value is None else str(value)


def fitting(image: Row, known: list[Row], what: str) -> Row:
    """The row of the table that has all values of an image."""
    for row in known:
        if all(text(row[name]) == text(value) for name, value in image.items()):
            return row
    raise AssertionError(f"{what}: {image} is no row of {known}")


def changed(old: Row, new: Row, row: Row, step: Step, what: str) -> None:
    """`old` has columns that changed, with the values that they had."""
    assert old.keys() <= new.keys(), what
    fitting(old, step.before, what)
    for name, value in old.items():
        known = {text(one[name]) for one in step.before}
        assert text(value) != text(row[name]) or known != {text(value)}, f"{what}: {name} did not change"
