"""Messages of statements have the fields that the documentation of Maxwell and Debezium shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.commands.encode import encode
from penstock.encode.schema_changes import TableChange, debezium_message
from penstock.model.schema import Column, TableId, TableSchema
from penstock.testing.servers import MySqlServer

TABLE = (
    "create table test.e ( id int(10) not null primary key auto_increment, m double, c timestamp(6), "
    "comment varchar(255) charset latin1, kind enum('a','b') )"
)
ALTER = "alter table test.e add column torvalds bigint unsigned after m"


@pytest.fixture
def messages(
    mysql_factory: Callable[..., MySqlServer], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> Callable[..., list[tuple[str, Any]]]:
    server = mysql_factory()
    server.execute("FLUSH BINARY LOGS")
    path = server.binlog_files()[-1]
    server.execute(
        "CREATE DATABASE test DEFAULT CHARSET utf8mb4", TABLE, ALTER, "INSERT INTO test.e (m) VALUES (1)",
        "DROP TABLE test.e", "DROP DATABASE test",
    )  # fmt: skip
    empty = tmp_path / "empty.sql"
    empty.write_text("")

    def run(format: str, *options: str) -> list[tuple[str, Any]]:
        code = encode(
            [str(path)], format=format, options=options, ddl=[empty], ddl_version="8.0", server=None,
            tables=[], keys=True, as_json=False,
        )  # fmt: skip
        captured = capfd.readouterr()
        assert code == 0, captured.err
        found = [line.partition("\t") for line in captured.out.splitlines()]
        return [(key, json.loads(value)) for key, _, value in found if value]

    return run


def test_maxwell_writes_definitions_before_and_after_statements(
    messages: Callable[..., list[tuple[str, Any]]],
) -> None:
    assert [value["type"] for _, value in messages("maxwell")] == ["insert"]
    values = [value for _, value in messages("maxwell", "output_ddl=true")]
    assert [value["type"] for value in values] == [
        "database-create", "table-create", "table-alter", "insert", "table-drop", "database-drop",
    ]  # fmt: skip
    create, alter, drop = values[1], values[2], values[4]
    assert create["def"] == {
        "database": "test",
        "charset": "utf8mb4",
        "table": "e",
        "columns": [
            {"type": "int", "name": "id", "signed": True},
            {"type": "double", "name": "m"},
            {"type": "timestamp", "name": "c", "column-length": 6},
            {"type": "varchar", "name": "comment", "charset": "latin1"},
            {"type": "enum", "name": "kind", "enum-values": ["a", "b"]},
        ],
        "primary-key": ["id"],
    }
    assert (create["sql"], create["ts"] % 1000) == (TABLE, 0)
    assert alter["old"] == create["def"]
    assert alter["def"]["columns"][2] == {"type": "bigint", "name": "torvalds", "signed": False}
    assert list(drop) == ["type", "database", "table", "ts", "sql", "position", "gtid"]


def test_a_table_that_a_statement_drops_and_creates_is_named_once() -> None:
    """As in Debezium, where the names are a set."""
    t = TableSchema(TableId("shop", "t"), (Column("id", "int", nullable=False),), ("id",))
    statement: dict[str, Any] = {
        "database": "shop", "sql": "RENAME TABLE t TO old, new TO t", "commit_us": 1, "timestamp": 1,
        "server_id": 1, "id": None, "segment_format": "mysql-binlog", "event_place": "binlog.000001:4",
    }  # fmt: skip
    changes = [TableChange(t.table, t, None), TableChange(t.table, None, t)]
    _, value = debezium_message(statement, changes, topic_prefix="p")
    found = json.loads(value)
    assert found["source"]["table"] == "t"
    assert [one["type"] for one in found["tableChanges"]] == ["DROP", "CREATE"]


def test_debezium_writes_what_a_statement_changed(messages: Callable[..., list[tuple[str, Any]]]) -> None:
    assert [value["op"] for _, value in messages("debezium")] == ["c"]
    found = messages("debezium", "include.schema.changes=true", "topic.prefix=shop")
    changes = [(json.loads(key), value) for key, value in found if "ddl" in value]
    assert [key for key, _ in changes] == [{"databaseName": "test"}] * 5
    assert [[change["type"] for change in value["tableChanges"]] for _, value in changes] == [
        [], ["CREATE"], ["ALTER"], ["DROP"], [],
    ]  # fmt: skip
    alter = changes[2][1]
    assert (alter["ddl"], alter["databaseName"], alter["source"]["table"]) == (ALTER, "test", "e")
    assert alter["source"]["name"] == "shop"
    [change] = alter["tableChanges"]
    assert (change["id"], change["table"]["primaryKeyColumnNames"]) == ('"test"."e"', ["id"])
    by_name = {column["name"]: column for column in change["table"]["columns"]}
    assert by_name["id"] == {
        "name": "id", "jdbcType": 4, "nativeType": None, "typeName": "INT", "typeExpression": "INT",
        "charsetName": None, "length": None, "scale": None, "position": 1, "optional": False,
        "autoIncremented": True, "generated": True, "comment": None, "hasDefaultValue": False,
        "defaultValueExpression": None, "enumValues": None,
    }  # fmt: skip
    assert (by_name["torvalds"]["typeName"], by_name["torvalds"]["position"]) == ("BIGINT UNSIGNED", 3)
    assert (by_name["comment"]["length"], by_name["comment"]["charsetName"]) == (255, "latin1")
