"""Messages in Avro give the rows that the same messages in JSON give."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.encode.registry_server import FakeRegistry, fake_registry
from tests.sources.debezium import documented
from tests.sources.debezium.avro import InAvro
from tests.sources.debezium.messages import ID, NOTE, Table, column, consumed, mysql
from tests.sources.debezium.test_translator import VALUES
from tests.sources.debezium.topic_log import TopicLog

from penstock.errors import ConfigError
from penstock.sources.debezium.options import SourceRegistry
from penstock.sources.debezium.topic_schemas import TopicSchemas

LIVES = documented.relational()


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry() as one:
        yield one


def take(log: TopicLog, registry: FakeRegistry, messages: list[Any]) -> list[Any]:
    """As the receiver does it."""
    schemas = TopicSchemas(SourceRegistry(url=registry.url))
    for number in log.translator.unknown_schemas(messages):
        schemas.teach(log.translator, number)
    return log.take(messages)


@pytest.mark.parametrize("form", ["json", "avro"])
@pytest.mark.parametrize("connector", LIVES)
def test_documented_events_of_a_connector_leave_the_row_of_its_table(
    registry: FakeRegistry, tmp_path: Path, connector: str, form: str
) -> None:
    life, log = LIVES[connector], TopicLog(tmp_path / "relay")
    sent = [*life.messages(), *life.messages(streamed=True)]  # the second time after a crash of Debezium
    messages = [consumed(life.table, at, pair) for at, pair in enumerate(sent)]
    if form == "avro":
        messages = [InAvro(registry).message(one) for one in messages]
    assert take(log, registry, messages) == []
    assert log.rows(life.name, life.key) == list(life.left)
    log.close()


@pytest.mark.parametrize("form", ["json", "avro"])
def test_documented_events_of_mongodb_leave_its_documents(
    registry: FakeRegistry, tmp_path: Path, form: str
) -> None:
    pairs, left = documented.mongodb()
    table, log = Table(topic="fulfillment.inventory.customers"), TopicLog(tmp_path / "relay")
    messages = [consumed(table, at, pair) for at, pair in enumerate(pairs)]
    if form == "avro":
        messages = [InAvro(registry).message(one) for one in messages]
    assert take(log, registry, messages) == []
    assert log.rows("inventory.customers") == left
    log.close()


def test_values_of_every_type_are_those_of_the_messages_in_json(
    registry: FakeRegistry, tmp_path: Path
) -> None:
    columns = [ID, *[{**described, "field": f"v{at}"} for at, (described, _, _) in enumerate(VALUES)]]
    full = {"id": 1, **{f"v{at}": sent for at, (_, sent, _) in enumerate(VALUES)}}
    empty: dict[str, Any] = {"id": 2, **{f"v{at}": None for at in range(len(VALUES))}}
    table = Table(columns=columns)
    messages = [
        consumed(table, at, table.change("c", None, row, **mysql(pos=4 + at)))
        for at, row in enumerate((full, empty))
    ]
    plain, binary = TopicLog(tmp_path / "json"), TopicLog(tmp_path / "avro")
    assert take(plain, registry, messages) == []
    assert take(binary, registry, [InAvro(registry).message(one) for one in messages]) == []
    expected = plain.rows("shop.orders")
    assert binary.rows("shop.orders") == expected
    assert len(expected) == 2
    plain.close()
    binary.close()


def test_a_new_schema_changes_the_table_before_its_rows(registry: FakeRegistry, tmp_path: Path) -> None:
    log, one = TopicLog(tmp_path / "relay"), Table()
    other = Table(columns=[ID, NOTE, column("added", "int16", default=7, optional=False)])
    messages = [
        consumed(one, 0, one.change("c", None, {"id": 1, "note": "a"}, **mysql(pos=4))),
        consumed(other, 1, other.change("c", None, {"id": 2, "note": "b", "added": 5}, **mysql(pos=9))),
    ]
    assert take(log, registry, [InAvro(registry).message(message) for message in messages]) == []
    assert ["created" in one for one in log.statements] == [True, False] and "altered" in log.statements[1]
    assert log.rows("shop.orders")[1] == {"id": 2, "note": "b", "added": 5}
    log.close()


def test_a_schema_that_the_registry_does_not_have_is_named(registry: FakeRegistry, tmp_path: Path) -> None:
    log, table = TopicLog(tmp_path / "relay"), Table()
    [(_, _, _, reason)] = take(log, registry, [consumed(table, 0, (None, b"\0\0\0\0\x09abc"))])
    assert "schema 9 is not known" in reason
    assert registry.asked == ["GET /schemas/ids/9"]
    log.close()


def test_a_schema_of_another_kind_is_refused(registry: FakeRegistry, tmp_path: Path) -> None:
    registry.ids.append({"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"})
    log, table = TopicLog(tmp_path / "relay"), Table()
    with pytest.raises(ConfigError, match="of type PROTOBUF"):
        take(log, registry, [consumed(table, 0, (None, b"\0\0\0\0\x01abc"))])
    log.close()
