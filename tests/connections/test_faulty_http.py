"""Clients that speak HTTP, against a peer that answers anything."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from tests.connections.faulty import outage, recovers, subject
from tests.encode.registry_server import fake_registry
from tests.sinks.calls.test_calls import Web

from penstock.encode.registry import Registry, RegistrySettings, Schema
from penstock.model.schema import Column, TableId, TableSchema
from penstock.sinks import registry
from penstock.sinks.base import Commit
from penstock.sinks.calls.options import HttpOptions
from penstock.sinks.clickhouse.options import ClickHouseOptions
from penstock.sinks.opensearch.options import OpenSearchOptions
from penstock.sinks.rows import Newer, Rows
from penstock.testing import servers
from penstock.testing.faulty_peer import ANY_PROTOCOL, HTTP, Fault, FaultyPeer, Moment

_serial = itertools.count()


@dataclass
class Client:
    """`attempt`: asks the server for something that it was not asked for before. `understood`: faults that
    are answers to this client."""

    peer: FaultyPeer
    attempt: Callable[[], object]
    understood: tuple[str, ...] = ()


def rows(number: int, **own: Any) -> Rows:
    batch = pa.RecordBatch.from_pydict({
        "id": [number], "_sequence": pa.array([number], pa.int64()), **own,
    })  # fmt: skip
    return Rows(lambda: pytest.fail("no Spark"), Newer(lambda: iter([batch])))


def writer(options: Any) -> Callable[[], object]:
    """Writes one more epoch each time, to a table of its own."""
    table = TableId("shop", f"orders{next(_serial)}")
    patient = options.model_copy(update={"timeout": 60_000})  # to create a table may take long
    maker: Any = registry.open_sink(patient, None, "p")  # type: ignore[arg-type]
    maker.check()
    maker.create(TableSchema(table, (Column("id", "int"),), ("id",)), pa.schema([("id", pa.int64())]))
    sink: Any = registry.open_sink(options, None, "p")  # type: ignore[arg-type]
    epochs = itertools.count(1)

    def attempt() -> None:
        epoch, at = next(epochs), {"_commit_timestamp": pa.array([0], pa.timestamp("us", "UTC"))}
        if hasattr(sink, "write_changes"):
            assert sink.write_changes(table, rows(epoch, _change_type=["insert"], **at), Commit("p", epoch))
        else:
            assert sink.merge(table, rows(epoch, _penstock_deleted=[False]), ("id",), Commit("p", epoch))

    return attempt


def http_sink() -> Iterator[Client]:
    web = Web()
    with FaultyPeer("127.0.0.1", web.server.server_port) as peer:
        url = f"http://127.0.0.1:{peer.port}/{{database}}/{{table}}"
        done = tuple(one.name for one in HTTP if one.name.startswith("200 with"))
        own = tuple(name for name in done if name != "200 with a page")
        yield Client(peer, writer(HttpOptions(type="http", url=url, timeout=300)), (*own, "404 with a page"))
    web.server.shutdown()


def schema_registry() -> Iterator[Client]:
    with fake_registry() as server, FaultyPeer("127.0.0.1", int(server.url.rpartition(":")[2])) as peer:
        settings = RegistrySettings(f"http://127.0.0.1:{peer.port}", timeout_s=0.3, attempts=1)
        client, subjects = Registry(settings), itertools.count()
        schema = Schema('{"type":"int"}')
        yield Client(peer, lambda: client.schema_id(f"s{next(subjects)}", schema))


def schema_by_id() -> Iterator[Client]:
    with fake_registry() as server, FaultyPeer("127.0.0.1", int(server.url.rpartition(":")[2])) as peer:
        Registry(RegistrySettings(server.url)).schema_id("s", Schema('{"type":"int"}'))
        client = Registry(RegistrySettings(f"http://127.0.0.1:{peer.port}", timeout_s=0.3, attempts=1))
        yield Client(peer, lambda: client.schema(1))


def clickhouse() -> Iterator[Client]:
    with servers.clickhouse() as server, FaultyPeer(server.host, server.port) as peer:
        url = f"http://127.0.0.1:{peer.port}"
        yield Client(peer, writer(ClickHouseOptions.model_validate({
            "type": "clickhouse", "url": url, "user": server.user, "password": server.password,
            "timeout": 1000,
        })))  # fmt: skip


def opensearch() -> Iterator[Client]:
    with servers.opensearch() as server, FaultyPeer(server.host, server.port) as peer:
        url = f"http://127.0.0.1:{peer.port}"
        yield Client(peer, writer(OpenSearchOptions(type="opensearch", url=url, timeout=2000)))


CLIENTS = {
    "http": http_sink,
    "registry": schema_registry,
    "schema": schema_by_id,
    "clickhouse": clickhouse,
    "opensearch": opensearch,
}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(one, marks=pytest.mark.slow_for("schema", "clickhouse", "opensearch")) for one in CLIENTS
    ],
)
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    yield from CLIENTS[request.param]()


MOMENTS: list[tuple[Fault, Moment]] = [
    *((fault, "answer") for fault in (*ANY_PROTOCOL, *HTTP)),
    *((fault, "connect") for fault in ANY_PROTOCOL),
    *((fault, "middle") for fault in ANY_PROTOCOL if fault.name != "endless lines"),
]


def test_whatever_is_answered_at_whatever_moment_is_waited_for(client: Client) -> None:
    client.attempt()
    for fault, at in MOMENTS:
        if fault.name in client.understood:
            continue
        with subject(f"{fault}, at {at}"):
            outage(client.peer, fault, at, client.attempt)
            recovers(client.attempt)
