"""The clients of Kafka (librdkafka), against a peer that answers anything in place of a broker."""

from __future__ import annotations

import itertools
import json
import logging
import os
import struct
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.connections.faulty import bounded_memory, outage, recovers, subject
from tests.connections.test_faulty_brokers import log_writer
from tests.notifications.test_notifier import Pipeline
from tests.signals import test_topic as signals
from tests.sources.debezium.receiving import Receiving, Topics

from penstock.config import SignalTopicConfig
from penstock.model.table import Reading, Streaming
from penstock.relaylog.status import read_status
from penstock.signals.topic import TopicChannel
from penstock.state import StateStore
from penstock.testing import servers
from penstock.testing.faulty_peer import ANY_PROTOCOL, FaultyPeer, Moment, says

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

FAULTS = (
    *ANY_PROTOCOL,
    says("a page", b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>"),
    says("an empty frame", struct.pack(">i", 0)),
    says("a negative frame", struct.pack(">i", -5)),
    says("a frame of 2 GB", struct.pack(">i", 2**31 - 1) + b"x" * 1000),
    says("a frame of 90 MB", struct.pack(">i", 90 * 1024**2) + b"x" * 1000),
    says("an answer that lies", struct.pack(">iihi", 12, 1, 0, 2**31 - 1)),
)
MOMENTS: tuple[Moment, ...] = ("connect", "answer", "middle")
EACH = list(itertools.product(MOMENTS, FAULTS))
SECONDS_MAX = 60.0
CLIENT = {"reconnect.backoff.max.ms": "200"}
"""So that clients do not wait for up to ten seconds before they connect again."""


@dataclass
class Broker:
    """A broker, a peer through which it tells clients to find it, and where it is found without that."""

    peer: FaultyPeer
    direct: str

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.peer.port}"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with FaultyPeer("127.0.0.1", 1) as peer, servers.KafkaCluster(1, clients_port=peer.port) as cluster:
        [one] = cluster.brokers
        peer.target = (one.host, one.port)
        yield Broker(peer, f"{one.host}:{one.internal_port}")


def section(broker: Broker, delivery: str) -> dict[str, Any]:
    return {
        "type": "kafka", "bootstrap": broker.bootstrap, "format": "json", "delivery": delivery,
        "request_timeout": "2s", "transaction_timeout": "4s", "client": CLIENT,
    }  # fmt: skip


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_writer_waits_whatever_is_answered_at_whatever_moment(broker: Broker, delivery: str) -> None:
    attempt = log_writer(section(broker, delivery))
    attempt()
    for at, fault in EACH:
        with subject(f"{fault}, at {at}"):
            outage(broker.peer, fault, at, attempt)
            recovers(attempt)


def until(condition: Callable[[], object], act: Callable[[], object] = lambda: None) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        act()
        time.sleep(0.02)  # polls a condition, with a limit


def test_a_receiver_of_debeziums_topics_waits_and_goes_on(broker: Broker, tmp_path: Path) -> None:
    prefix = f"p{uuid.uuid4().hex[:8]}"
    Topics(broker.direct).create(f"{prefix}.t")
    receiving = Receiving(broker.bootstrap, tmp_path, f"{prefix}.*", request_timeout="1s",
                          reconnect_max="500ms", client=CLIENT)  # fmt: skip
    receiving.start()
    try:
        receiving.wait_until_level()
        for at, fault in EACH:
            with subject(f"{fault}, at {at}"):
                broker.peer.play(fault, at=at)
                receiving.wait_for(lambda: read_status(receiving.log_path)["state"] == "reconnecting")
                said = json.dumps(read_status(receiving.log_path)["error"])
                broker.peer.behave()
                assert broker.bootstrap in said and "bug" not in said, said
                receiving.wait_until_level()
                assert _resident(receiving) < 400 * 1024**2
    finally:
        broker.peer.behave()
        receiving.stop()
    assert "Traceback" not in receiving.errors.read_text()


def _resident(receiving: Receiving) -> int:
    assert receiving.process is not None
    pages = Path(f"/proc/{receiving.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def test_signals_wait_for_their_topic_and_the_log_says_so(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topics, name = Topics(broker.direct), f"s{uuid.uuid4().hex[:8]}"
    topics.create(name)
    state = StateStore(tmp_path)
    options = {
        "bootstrap": broker.bootstrap,
        "topic": name,
        "client": {**CLIENT, "socket.timeout.ms": "1000"},
    }
    channel = TopicChannel(SignalTopicConfig.model_validate(options), signals.NAME, state)
    for number, (at, fault) in enumerate(EACH, 1):
        with subject(f"{fault}, at {at}"):
            caplog.clear()
            broker.peer.play(fault, at=at)
            with bounded_memory():
                until(lambda: caplog.records, channel.poll)
            broker.peer.behave()
            assert f"signals of the topic {name} cannot be read now ({broker.bootstrap})" in caplog.text
            topics.send(name, [signals.signal(number)])
            assert len(signals.poll_until(channel, state, number)) == number
    state.close()


def test_notifications_wait_for_their_topic_and_the_log_says_so(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.notifications.notifier.SEND_SECONDS", 1.0)
    caplog.set_level(logging.WARNING)
    one = Pipeline(broker.direct, tmp_path, at=broker.bootstrap, client=CLIENT)
    notifier = one.notifier()
    notifier.start()

    def told() -> set[str]:
        """Messages may come twice, and are the same then."""
        return {json.dumps(value) for _, value in one.sent()}

    try:
        phases = itertools.cycle((Reading(splitting=True), Streaming(snapshot_done=True)))
        for (at, fault), phase in zip(EACH, phases, strict=False):
            with subject(f"{fault}, at {at}"), bounded_memory():
                before = told()
                caplog.clear()
                broker.peer.play(fault, at=at)
                one.put(phase)
                until(lambda: caplog.records)
                broker.peer.behave()
                assert f"notifications cannot be sent for now ({broker.bootstrap})" in caplog.text
                assert "Traceback" not in caplog.text and "KafkaError{" not in caplog.text
                until(lambda: "unsent" not in json.loads(one.state.meta("notifications") or "{}"))
                assert told() - before
    finally:
        broker.peer.behave()
        notifier.stop()
        one.state.close()
