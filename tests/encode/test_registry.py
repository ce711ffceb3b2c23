"""The client against a server that answers as Confluent's reference of the REST API says."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from tests.core.logs import log_of
from tests.encode.registry_server import FakeRegistry, fake_registry

from penstock import _core
from penstock.encode.registry import (
    Reference,
    Registry,
    RegistrySettings,
    RegistryUnreachable,
    Schema,
    SchemaIds,
    SchemaRefused,
    subject_of,
)
from penstock.errors import ConfigError
from penstock.model.schema import TableId
from penstock.secret import Secret
from penstock.testing.servers import MySqlServer

ONE, TWO = Schema('{"type":"int"}'), Schema('{"type":"string"}')


def client(registry: FakeRegistry, **settings: Any) -> Registry:
    return Registry(RegistrySettings(registry.url, **settings))


def test_a_schema_is_registered_once_after_the_registry_was_asked() -> None:
    with fake_registry() as server:
        registry = client(server)
        assert [registry.schema_id("s-value", one) for one in (ONE, ONE, TWO)] == [1, 1, 2]
        assert server.asked == [
            "POST /subjects/s-value",
            "POST /compatibility/subjects/s-value/versions/latest?verbose=true",
            "POST /subjects/s-value/versions",
        ] * 2  # fmt: skip
        server.asked.clear()
        assert client(server).schema_id("s-value", TWO) == 2
        assert server.asked == ["POST /subjects/s-value"]


def test_an_incompatible_schema_is_refused_before_it_is_registered() -> None:
    with fake_registry(reasons_against=lambda new, old: ["READER_FIELD_MISSING: name"]) as server:
        registry = client(server)
        registry.schema_id("shop.orders-value", ONE)
        with pytest.raises(SchemaRefused) as raised:
            registry.schema_id("shop.orders-value", TWO, table="shop.orders")
        assert "`shop.orders-value`: READER_FIELD_MISSING: name." in raised.value.message
        assert "compatibility of the subject" in raised.value.hint
        assert raised.value.details == {"table": "shop.orders", "subject": "shop.orders-value"}
        assert server.asked[-1].startswith("POST /compatibility")
        # Without the question, the registry refuses it itself.
        with pytest.raises(SchemaRefused, match="READER_FIELD_MISSING"):
            client(server, compatibility=False).schema_id("shop.orders-value", TWO)
        assert len(server.subjects["shop.orders-value"]) == 1


def test_an_invalid_schema_is_refused_with_the_registrys_reason() -> None:
    with fake_registry() as server, pytest.raises(SchemaRefused, match=r"\(HTTP 422\): Invalid schema"):
        client(server).schema_id("s", Schema(""))


def test_without_registration_an_unknown_schema_is_refused() -> None:
    with fake_registry() as server:
        with pytest.raises(SchemaRefused, match="not registered under the subject `s`"):
            client(server, register=False).schema_id("s", ONE)
        client(server).schema_id("s", ONE)
        assert client(server, register=False).schema_id("s", ONE) == 1


def test_a_registry_that_fails_for_a_moment_is_asked_again() -> None:
    with fake_registry(failures=[503, 500, 429]) as server:
        assert client(server).schema_id("s", ONE) == 1
    with fake_registry(failures=[503] * 9) as server:
        with pytest.raises(RegistryUnreachable, match="HTTP 503: Error in the backend"):
            client(server, attempts=2).schema_id("s", ONE)
        assert len(server.asked) == 2
    with pytest.raises(RegistryUnreachable, match="refuses connections"):
        Registry(RegistrySettings(server.url, attempts=1)).schema_id("s", ONE)


def test_the_account_is_sent_and_never_shown() -> None:
    with fake_registry(account="me:hush") as server:
        settings = RegistrySettings(server.url, user="me", password=Secret("hush"))
        assert Registry(settings).schema_id("s", ONE) == 1
        assert "hush" not in repr(settings)
        with pytest.raises(Exception, match="pickle"):
            pickle.dumps(settings)
        with pytest.raises(ConfigError, match="refuses the user `me`"):
            client(server, user="me", password=Secret("wrong")).schema_id("s", ONE)
    with pytest.raises(ConfigError) as raised:
        RegistrySettings("http://me:hush@localhost:8081")
    assert "hush" not in str(raised.value)


def test_types_and_references_are_sent_as_the_api_wants_them() -> None:
    with fake_registry() as server:
        schema = Schema("message M {}", "PROTOBUF", (Reference("a/b.proto", "b", 3),))
        client(server).schema_id("a/b c", schema)
        assert server.subjects["a/b c"] == [
            {
                "schema": "message M {}",
                "schemaType": "PROTOBUF",
                "references": [{"name": "a/b.proto", "subject": "b", "version": 3}],
            }
        ]
        assert client(server).subjects() == ["a/b c"]


def test_subjects_have_the_names_of_confluents_strategies() -> None:
    of: Any = {"topic": "t", "record": "a.B", "is_key": False}
    assert subject_of("topic", topic="t", record="a.B", is_key=True) == "t-key"
    assert subject_of("topic", **of) == "t-value"
    assert subject_of("record", **of) == "a.B"
    assert subject_of("topic-record", **of) == "t-a.B"


@pytest.mark.parametrize("format", ["avro", "protobuf"])
def test_a_changed_definition_gets_a_schema_of_its_own(format: str, mysql_factory: Any) -> None:
    server: MySqlServer = mysql_factory(binlog_row_metadata="FULL")
    server.execute(
        "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "FLUSH BINARY LOGS",
        "INSERT INTO d.t VALUES (1)", "ALTER TABLE d.t ADD COLUMN name VARCHAR(9)",
        "INSERT INTO d.t VALUES (2, 'x')",
    )  # fmt: skip
    with fake_registry() as registry:
        ids = SchemaIds(client(registry), lambda table: "tx" if table is None else f"cdc.{table}")
        parts: list[_core.LogPart] = [(log_of(server)[0], 0, 0, None, [])]
        encoder = _core.LogEncoder(parts, format, schema_ids=ids, options=json.dumps({}))
        found = []
        while (step := encoder.read()) is not None:
            if isinstance(step, _core.EncodedMessages):
                found += [int.from_bytes((value or b"")[1:5], "big") for _, _, value, _ in step.messages()]
        assert {name: len(versions) for name, versions in registry.subjects.items()} == {
            f"cdc.{TableId('d', 't')}-value": 2,
            f"cdc.{TableId('d', 't')}-key": 1,
        }
        values = registry.subjects["cdc.d.t-value"]
        assert [registry.ids[id - 1] for id in found] == values
        added = {"avro": '{"name":"name","type":["null"', "protobuf": "optional string name = 2;"}[format]
        assert [added in one["schema"] for one in values] == [False, True]
