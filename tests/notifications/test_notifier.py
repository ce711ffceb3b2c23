"""Notifications and heartbeats in topics of a real broker."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.config import NotificationsConfig, PipelineConfig
from penstock.model.offset import Offset
from penstock.model.partial_snapshot import Part
from penstock.model.schema import TableId, TableSchema
from penstock.model.table import Reading, Streaming, TableState
from penstock.notifications.notifier import Notifier
from penstock.relaylog.status import StatusFile
from penstock.state import StateStore
from penstock.testing import servers, topics

ORDERS = TableId("shop", "orders")


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with servers.kafka() as cluster:
        yield cluster.bootstrap


class Pipeline:
    def __init__(self, bootstrap: str, folder: Path, **more: Any) -> None:
        self.topic, self.heartbeats = f"n-{uuid.uuid4().hex[:8]}", f"h-{uuid.uuid4().hex[:8]}"
        self.bootstrap, self.folder = bootstrap, folder
        document = {
            "name": "shop",
            "tables": ["shop.*"],
            "source": {"host": "x", "user": "y"},
            "state": folder,
        }
        self.config = PipelineConfig.model_validate(document)
        self.wanted = NotificationsConfig(
            bootstrap=more.pop("at", bootstrap), topic=self.topic, heartbeat_topic=self.heartbeats, **more
        )
        self.state = StateStore(folder)

    def notifier(self) -> Notifier:
        return Notifier(self.config, self.wanted, self.state)

    def put(self, phase: Any, start: int = 1) -> None:
        schema = TableSchema(ORDERS, (), (), 1)
        self.state.put_table(TableState(schema, Offset(start), phase))

    def sent(self, topic: str | None = None) -> list[tuple[bytes | None, Any]]:
        found = topics.records(self.bootstrap, [topic or self.topic])
        return [(one.key, json.loads(one.value or b"")) for one in found]


@pytest.fixture
def pipeline(bootstrap: str, tmp_path: Path) -> Iterator[Callable[..., Pipeline]]:
    made: list[Pipeline] = []

    def make(**more: Any) -> Pipeline:
        made.append(Pipeline(bootstrap, tmp_path / str(len(made)), **more))
        return made[-1]

    (tmp_path / "0").mkdir()
    yield make
    for one in made:
        one.state.close()


def test_a_snapshot_is_told_to_whoever_reads_the_topic(pipeline: Callable[..., Pipeline]) -> None:
    one = pipeline()
    notifier = one.notifier()
    one.put(Reading(splitting=True))
    notifier.start()
    wait(lambda: one.sent(), 2)
    one.put(Streaming(snapshot_done=True))
    number = one.state.begin_partial("by-hand", ORDERS, Offset(5), Part(condition="id > 5"))
    wait(lambda: one.sent(), 6)
    one.state.end_partial(number, "done")
    notifier.stop()
    found = one.sent()
    assert {key for key, _ in found} == {b"shop"}
    assert [(value["aggregate_type"].split(" ")[0], value["type"]) for _, value in found] == [
        ("Initial", "STARTED"), ("Initial", "IN_PROGRESS"), ("Initial", "TABLE_SCAN_COMPLETED"),
        ("Initial", "COMPLETED"), ("Incremental", "STARTED"), ("Incremental", "IN_PROGRESS"),
        ("Incremental", "TABLE_SCAN_COMPLETED"), ("Incremental", "COMPLETED"),
    ]  # fmt: skip
    assert all(value["additional_data"]["connector_name"] == "shop" for _, value in found)
    again = one.notifier()
    again.start()
    again.stop()
    assert one.sent() == found


def test_what_no_broker_took_is_told_as_it_was_by_the_next_run(
    pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.notifications.notifier.END_SECONDS", 0.5)
    one = pipeline(at="127.0.0.1:1")
    one.put(Streaming(snapshot_done=True))
    notifier = one.notifier()
    notifier.start()
    notifier.stop()
    stored = json.loads(one.state.meta("notifications") or "")["unsent"]
    assert stored[0]["type"] == "STARTED"
    one.put(Reading(splitting=False), start=2)
    one.wanted = one.wanted.model_copy(update={"bootstrap": one.bootstrap})
    notifier = one.notifier()
    notifier.start()
    wait(lambda: one.sent(), len(stored) + 2)
    notifier.stop()
    assert [value for _, value in one.sent()][: len(stored)] == stored


def test_heartbeats_come_while_the_receiver_hears_the_source(pipeline: Callable[..., Pipeline]) -> None:
    one = pipeline(heartbeat_interval=100)
    relay = one.folder / "relay"
    relay.mkdir()
    status = StatusFile(relay, 1)
    status.enter("reconnecting")
    notifier = one.notifier()
    notifier.start()
    time.sleep(1.2)  # two looks, at which nothing must come
    assert one.sent(one.heartbeats) == []
    status.enter("streaming")
    wait(lambda: one.sent(one.heartbeats), 2)
    notifier.stop()
    key, value = one.sent(one.heartbeats)[0]
    assert json.loads(key or b"") == {"serverName": "shop"}
    assert set(value) == {"ts_ms"}
    assert abs(value["ts_ms"] / 1000 - time.time()) < 60


def wait(found: Callable[[], list[Any]], count: int) -> None:
    deadline = time.monotonic() + 30
    while len(found()) < count:
        assert time.monotonic() < deadline, found()
        time.sleep(0.1)  # polls, with a limit
