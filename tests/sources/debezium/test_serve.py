"""A subscription server over topics: real clients read a log that has no places of a database server."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.serve.listeners.test_websocket import Socket
from tests.serve.serving import kinds_of, rows_of
from tests.sources.debezium.messages import Table, consumed, mysql
from tests.sources.debezium.receiving import Topics
from tests.sources.debezium.topic_log import Logs

from penstock.client import connect
from penstock.errors import ConfigError, LogPurged, PenstockError
from penstock.model.offset import Offset
from penstock.serve.batches import Place
from penstock.serve.source_places import NotReached, of_place, to_place
from penstock.sources.debezium.options import DebeziumOptions
from penstock.sources.mysql.options import MySqlOptions, StartAt
from penstock.testing import servers
from penstock.testing.canal.client import JavaClient
from penstock.testing.canal.server import RunningServer

EVENTS = "/destinations/shop/events"


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with servers.kafka() as cluster:
        yield Topics(cluster.bootstrap)


@pytest.fixture
def table(topics: Topics) -> Table:
    found = Table(topic=f"t{uuid.uuid4().hex[:8]}.shop.orders")
    topics.create(found.topic)
    return found


def served(topics: Topics, table: Table, folder: Path, **more: Any) -> RunningServer:
    file = folder / "server.yaml"
    document = {
        "listen": {"canal": "127.0.0.1:0", "grpc": "127.0.0.1:0"},
        "http": {"listen": "127.0.0.1:0"},
        "source": {"type": "debezium", "bootstrap": topics.bootstrap, "topics": table.topic},
        "relay_log": {"path": str(folder / "relay"), "disk_free_min": 0},
        "positions": {"type": "file", "path": str(folder / "positions")},
        "destinations": {"shop": {"start": "earliest"}},
        **more,
    }
    file.write_text(yaml.safe_dump(document))
    return RunningServer(file, folder / "stderr")


def changes_of(stream: Any, count: int) -> list[tuple[str, int | None]]:
    """The kinds of changes and the ids of their rows, which are acknowledged."""
    found: list[tuple[str, int | None]] = []
    while len(found) < count:
        batch = next(stream)
        columns = (batch.rows.column(name).to_pylist() for name in ("_change_type", "id"))
        found += list(zip(*columns, strict=True))
        batch.acknowledge()
    return found


@pytest.mark.slow
def test_each_client_gets_what_is_in_the_topic_and_goes_on_where_it_was(
    topics: Topics, table: Table, tmp_path: Path
) -> None:
    first, second = {"id": 1, "note": "a"}, {"id": 2, "note": "b"}
    topics.send(
        table.topic,
        [table.change("c", None, first, **mysql(pos=10)), table.change("d", first, None, **mysql(pos=20))],
    )
    server = served(topics, table, tmp_path)
    server.start()
    try:
        with connect(server.listening["grpc"]) as flight:
            with flight.subscribe_table("shop", "typed", "shop.orders") as stream:
                assert changes_of(stream, 2) == [("insert", 1), ("delete", 1)]
            with flight.read("shop", start="earliest") as batches:
                change = next(one for batch in batches for one in batch.changes if one["op"] == "c")
            assert change["after"] == first
            assert change["transaction"] and not {"gtid", "file"} & change.keys()
        events = Socket(server.listening["http"], f"{EVENTS}?start=earliest")
        assert events.status == 101
        found = [events.change()[1] for _ in range(3)]
        assert [(one["op"], one.get("kind")) for one in found] == [
            ("statement", "CREATE"), ("c", None), ("d", None),
        ]  # fmt: skip
        events.close()
        with JavaClient(server.address, "shop") as canal:
            canal.connect()
            canal.subscribe()
            number, entries = canal.get(100)
            assert [row[0] for row in rows_of(entries)] == [1, 3], "INSERT, DELETE"
            assert kinds_of(entries).count("R") == 3, "and CREATE, without SQL"
            canal.acknowledge(number)
        server.stop()
        topics.send(table.topic, [table.change("c", None, second, **mysql(pos=30))])
        server.start()
        with (
            connect(server.listening["grpc"]) as flight,
            flight.subscribe_table("shop", "typed", "shop.orders") as stream,
        ):
            assert changes_of(stream, 1) == [("insert", 2)]
        with JavaClient(server.address, "shop") as canal:
            canal.connect()
            canal.subscribe()
            _, entries = canal.get(100)
            assert [row[0] for row in rows_of(entries)] == [1]
    finally:
        server.kill()


@pytest.mark.slow
def test_a_start_names_a_time_but_no_place_of_a_server(topics: Topics, table: Table, tmp_path: Path) -> None:
    topics.send(table.topic, [table.change("c", None, {"id": 1, "note": "a"}, **mysql(pos=10))])
    server = served(topics, table, tmp_path)
    server.start()
    try:
        with connect(server.listening["grpc"]) as flight:
            for start in ({"file": "binlog.000001", "position": 4}, {"gtid": "2-1-1"}):
                wrong = r"no places that `\w+.* of `start` could name"
                with pytest.raises(ConfigError, match=wrong), flight.read("shop", start=start) as batches:
                    next(batches)
            with flight.read("shop", start={"timestamp": "2023-11-14T00:00:00Z"}) as batches:
                assert "c" in (one["op"] for batch in batches for one in batch.changes)
    finally:
        server.kill()
    (tmp_path / "stopped").mkdir()
    refused = served(topics, table, tmp_path / "stopped", destinations={"shop": {"start": {"gtid": "1-2-"}}})
    with pytest.raises(PenstockError, match="not a GTID set"):
        refused.start()


@pytest.mark.slow
def test_positions_in_zookeeper_are_refused(topics: Topics, table: Table, tmp_path: Path) -> None:
    """A node of Canal has the file and the position of a database server."""
    with servers.zookeeper() as zookeeper:
        shared = {"zookeeper": zookeeper.hosts, "positions": {"type": "zookeeper"}}
        server = served(topics, table, tmp_path, **shared)
        with pytest.raises(PenstockError, match=r"file and position of MySQL's log.*type: store"):
            server.start()


def test_a_new_log_begins_where_a_subscriber_needs_it() -> None:
    topics = DebeziumOptions(type="debezium", bootstrap="b:1", topics=["x"])
    assert topics.beginning(latest=True).start == "latest"
    assert topics.beginning(latest=False).beginning_at("7").start == "earliest"
    chosen = DebeziumOptions(type="debezium", bootstrap="b:1", topics=["x"], start="latest")
    assert chosen.beginning(latest=False).start == "latest"
    server = MySqlOptions(user="u").beginning(latest=False)
    assert server.start == StartAt(at="earliest")
    assert server.beginning_at("binlog.000003:4711").start == StartAt(file="binlog.000003", position=4)


def test_a_stored_place_is_one_of_its_relay_log(logs: Logs, tmp_path: Path) -> None:
    """Offsets and transactions of topics mean nothing in another relay log of them."""
    table, log = Table(), logs()
    log.take([consumed(table, 0, table.change("c", None, {"id": 1, "note": "a"}, **mysql(pos=10)))])
    opened = log.log
    stored = of_place(opened, Place(opened.end, 3))
    assert to_place(opened, stored) == Place(opened.end, 3)
    assert type(stored).from_json(json.loads(json.dumps(stored.to_json()))) == stored
    with pytest.raises(NotReached):
        to_place(opened, replace(stored, offset=stored.offset + 1))
    with pytest.raises(ConfigError, match="another relay log") as refused:
        to_place(opened, replace(stored, relay_log="another"))
    assert "Remove" in str(refused.value) or "remove" in refused.value.hint
    assert not isinstance(refused.value, LogPurged) and Offset(0) < opened.end
