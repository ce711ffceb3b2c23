"""What the sink `redis-streams` promises besides what all sinks of messages do
(`conformance/test_messages.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from pydantic import ValidationError
from tests.sinks.kafka.epoch_writer import schema

from penstock.errors import ConfigError, TableError
from penstock.model.schema import TableId
from penstock.sinks.base import Commit, LogMessage
from penstock.sinks.redis_streams import sink as sink_module
from penstock.sinks.redis_streams.options import RedisStreamsOptions
from penstock.sinks.redis_streams.sink import RedisStreamsSink
from penstock.testing import servers
from penstock.testing.servers import ValkeyServer

TABLE = schema("shop", "orders")


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with servers.valkey() as one:
        yield one


@pytest.fixture
def client(server: ValkeyServer) -> Iterator[Any]:
    with redis.Redis(host=server.host, port=server.port, password=server.password) as one:
        one.flushall()
        yield one


def section(server: ValkeyServer, **more: Any) -> dict[str, Any]:
    return {"type": "redis-streams", "url": server.url, "password": server.password, "format": "json", **more}


def opened(server: ValkeyServer, pipeline: str = "p", generation: int = 0, **more: Any) -> RedisStreamsSink:
    sink = RedisStreamsSink(RedisStreamsOptions.model_validate(section(server, **more)), pipeline)
    sink.check()
    sink.begin(generation)
    return sink


def messages(*values: str, table: TableId = TABLE.table) -> list[list[LogMessage]]:
    return [[(table, b"k", value.encode(), 1)] for value in values]


def entries(client: Any, stream: str = "shop.orders") -> list[str]:
    return [fields.get(b"value", b"(none)").decode() for _, fields in client.xrange(stream)]


def test_an_interrupted_epoch_continues_where_it_was(
    server: ValkeyServer, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_module, "MESSAGES_MAX", 2)

    def failing() -> Iterator[list[LogMessage]]:
        yield from messages("1", "2", "3", "4", "5")
        raise TableError("The rest cannot be encoded.", hint="", table="shop.other")

    sink, other = opened(server), schema("shop", "other")
    with pytest.raises(TableError):
        sink.write_epoch(Commit("p", 1), [TABLE, other], failing())
    assert entries(client) == ["1", "2", "3", "4"]
    sink.write_epoch(Commit("p", 1), [TABLE], messages(*"123456"))
    sink.write_epoch(Commit("p", 2), [TABLE], messages("7"))
    assert entries(client) == list("1234567")


def test_tables_that_share_a_stream_are_counted_apart(
    server: ValkeyServer, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_module, "MESSAGES_MAX", 3)
    sink, other = opened(server, stream="all"), TableId("shop.a", "b")
    mixed = [*messages("1", "2"), *messages("x", table=other), *messages("3"), *messages("y", table=other)]

    def failing() -> Iterator[list[LogMessage]]:
        yield from mixed[:4]
        raise TableError("It cannot be encoded.", hint="", table=str(other))

    with pytest.raises(TableError):
        sink.write_epoch(Commit("p", 1), [TABLE], failing())
    assert entries(client, "all") == ["1", "2", "x"]
    sink.write_epoch(Commit("p", 1), [TABLE], messages("1", "2", "3"))  # without the other table
    assert entries(client, "all") == ["1", "2", "x", "3"]


def test_a_server_that_lost_what_was_written_is_refused(server: ValkeyServer, client: Any) -> None:
    sink = opened(server)
    sink.write_epoch(Commit("p", 1), [TABLE], messages("a"))
    client.flushall()
    with pytest.raises(ConfigError, match="has lost"):
        sink.write_epoch(Commit("p", 2), [TABLE], messages("b"))
    assert entries(client) == []


def test_a_key_of_another_program_parks_its_table(server: ValkeyServer, client: Any) -> None:
    client.set("shop.orders", "x")
    sink = opened(server)
    with pytest.raises(TableError, match="is a string"):
        sink.write_epoch(Commit("p", 1), [TABLE], messages("a"))
    assert client.get("shop.orders") == b"x"


def test_a_stream_is_cut_to_its_length(server: ValkeyServer, client: Any) -> None:
    sink = opened(server, length_max=100)
    sink.write_epoch(Commit("p", 1), [TABLE], messages(*map(str, range(2000))))
    assert 100 <= client.xlen("shop.orders") < 400
    assert entries(client)[-1] == "1999"


def test_names_are_filled_in_once(server: ValkeyServer) -> None:
    options = RedisStreamsOptions.model_validate(
        section(server, stream="{source}/{database}.{table}/x", source="s")
    )
    assert options.place_of(TableId("{table}", "t")) == "s/{table}.t/x"
    for wrong in ("{other}", "", "a{b"):
        with pytest.raises(ValidationError):
            RedisStreamsOptions.model_validate(section(server, stream=wrong))
    with pytest.raises(ValidationError, match="registry"):
        RedisStreamsOptions.model_validate(section(server, format="avro"))
