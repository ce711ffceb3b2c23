"""Signals from a topic of a real broker."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sources.debezium.receiving import Topics

from penstock.config import SignalTopicConfig
from penstock.errors import ConfigError
from penstock.signals.topic import TopicChannel
from penstock.state import StateStore
from penstock.testing import servers

NAME = "shop"


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with servers.kafka() as cluster:
        yield Topics(cluster.bootstrap)


@pytest.fixture
def topic(topics: Topics) -> str:
    name = f"signals-{uuid.uuid4().hex[:8]}"
    topics.create(name)
    return name


def signal(number: int, **more: Any) -> tuple[bytes, bytes]:
    return NAME.encode(), json.dumps(
        {"id": f"s{number}", "type": "log", "data": {"message": "x"}, **more}
    ).encode()


def channel(topics: Topics, topic: str, state: StateStore) -> TopicChannel:
    return TopicChannel(SignalTopicConfig(bootstrap=topics.bootstrap, topic=topic), NAME, state)


def accepted(state: StateStore) -> list[str]:
    return sorted(one.id for one in state.signals())


def poll_until(one: TopicChannel, state: StateStore, count: int) -> list[str]:
    deadline = time.monotonic() + 60
    while len(accepted(state)) < count:
        assert time.monotonic() < deadline, accepted(state)
        one.poll()
        time.sleep(0.02)  # polls, with a limit
    one.poll()
    return accepted(state)


def test_signals_count_once_from_the_end_of_the_topic_on_and_across_restarts(
    topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.send(topic, [signal(0)])
    state = StateStore(tmp_path)
    one = channel(topics, topic, state)
    topics.send(topic, [signal(1), (b"other", signal(9)[1]), signal(2), signal(1)])
    assert poll_until(one, state, 2) == ["s1", "s2"]
    topics.send(topic, [signal(3)])  # while no pipeline runs
    state.close()
    again = StateStore(tmp_path)
    two = channel(topics, topic, again)
    topics.send(topic, [signal(4)])
    assert poll_until(two, again, 4) == ["s1", "s2", "s3", "s4"]
    again.close()


def test_what_is_not_stored_is_read_again(
    topics: Topics, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateStore(tmp_path)
    one = channel(topics, topic, state)
    topics.send(topic, [signal(1), signal(2)])
    send, calls = state.send, []

    def fails_once(*arguments: Any, **options: Any) -> bool:
        calls.append(arguments)
        if len(calls) == 2:
            raise OSError("the disk is full")
        return send(*arguments, **options)

    monkeypatch.setattr(state, "send", fails_once)
    deadline = time.monotonic() + 60
    with pytest.raises(OSError, match="full"):
        while time.monotonic() < deadline:
            one.poll()
    assert accepted(state) == []
    assert poll_until(one, state, 2) == ["s1", "s2"]
    state.close()


def test_a_signal_without_an_id_gets_one_from_its_offset_and_other_input_is_skipped_unquoted(
    topics: Topics, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    state = StateStore(tmp_path)
    one = channel(topics, topic, state)
    key = NAME.encode()
    without = json.dumps({"type": "log", "data": {"message": "x"}}).encode()
    topics.send(topic, [(key, b"secret"), (key, b"\xff"), (key, None), (key, without)])
    assert poll_until(one, state, 1) == [f"{topic}-3"]
    assert "offset 0" in caplog.text and "offset 1" in caplog.text and "secret" not in caplog.text
    state.close()


def test_a_topic_that_is_missing_or_has_several_partitions_is_refused_by_name(
    topics: Topics, tmp_path: Path
) -> None:
    name = f"wide-{uuid.uuid4().hex[:8]}"
    topics.create(name, 2)
    state = StateStore(tmp_path)
    with pytest.raises(ConfigError, match=f"{name} of `signals.kafka` has 2 partitions"):
        channel(topics, name, state)
    with pytest.raises(ConfigError, match=r"signals\.kafka"):
        channel(topics, "missing", state)
    state.close()
