"""What messages tell of changed definitions of tables with `transforms`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from penstock.encode.statements import definition_messages
from penstock.epochs.log_definitions import messages, shown
from penstock.model.plan import DefinitionChange
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.transforms import TransformRule
from penstock.secret import Secret
from penstock.spark.message_rules import MessageRules

BEFORE = TableSchema(
    TableId("d", "people"),
    (
        Column("id", "int", nullable=False),
        Column("card", "varchar", length=20, charset="latin1", default="CANARY7391"),
        Column("note", "varchar", length=20, charset="latin1", default="CANARY7391"),
    ),
    ("id",),
)
AFTER = replace(BEFORE, columns=(*BEFORE.columns, Column("v", "int")))
PLAIN = replace(BEFORE, table=TableId("d", "plain"))
STATEMENT = {
    "event": None, "timestamp": 1, "sql": "ALTER TABLE people ADD v INT, ALTER card SET DEFAULT 'CANARY7391'",
    "database": "d", "segment_format": "mysql-binlog", "event_place": "f:4", "id": "g", "end": 9,
    "commit_us": 1, "server_id": 1,
}  # fmt: skip


def rules_of(schema: TableSchema) -> MessageRules | None:
    rule = TransformRule(tables="d.people", mask=("card",), exclude=("note",), rename={"id": "person"})
    no_spark: Any = None
    made = (rule,) if schema.table in rule else ()
    return MessageRules(no_spark, schema, TableId("x", "clients"), made, Secret()) if made else None


@pytest.mark.parametrize(
    ("format", "options"), [("maxwell", {"output_ddl": True}), ("debezium", {"include_schema_changes": True})]
)
def test_they_show_the_columns_of_messages_and_no_statement(format: str, options: dict[str, Any]) -> None:
    changes = shown([DefinitionChange(BEFORE, AFTER)], rules_of)
    assert [(one.table, one.ruled, one.shown.table) for one in changes] == [
        (BEFORE.table, True, TableId("x", "clients"))
    ]
    statement = {**STATEMENT, "sql": None}
    found = definition_messages(format, json.dumps(options), statement, [one.change for one in changes])
    [(table, _, value)] = found
    assert table == TableId("x", "clients")
    assert b"CANARY" not in value and b"note" not in value and b"people" not in value
    assert b'"person"' in value and b'"v"' in value and b'"card"' in value


def test_a_table_without_rules_is_told_as_it_is() -> None:
    change = DefinitionChange(None, PLAIN)
    assert [(one.change, one.ruled) for one in shown([change], rules_of)] == [(change, False)]


def test_canals_messages_have_nothing_but_the_statement_so_there_are_none() -> None:
    class Sink:
        format = "canal"

    nothing: Any = None
    sink: Any = Sink()
    changes = shown([DefinitionChange(BEFORE, AFTER)], rules_of)
    assert list(messages(changes, sink, nothing, nothing)) == []


def test_a_definition_that_rules_do_not_fit_is_not_told() -> None:
    gone = replace(AFTER, columns=(BEFORE.columns[0],))
    assert shown([DefinitionChange(BEFORE, gone)], rules_of) == []


@pytest.mark.parametrize("sql", ["RENAME TABLE people TO old", "ALTER TABLE people RENAME TO old"])
def test_canals_message_of_a_table_that_is_renamed_away_is_among_those_of_the_table(sql: str) -> None:
    statement = {**STATEMENT, "sql": sql, "sql_mode": None, "server_charset": None}
    [(table, _, value)] = definition_messages("canal", "{}", statement, [DefinitionChange(BEFORE, None)])
    assert table == BEFORE.table
    assert (json.loads(value)["type"], json.loads(value)["table"]) == ("RENAME", "old")
