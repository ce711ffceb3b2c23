"""The producer over librdkafka's C interface, against a real broker."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock._core import EncodedMessages, LogEncoder
from penstock.sinks.kafka.client import Producer
from penstock.testing import topics
from penstock.testing.servers import KafkaCluster

LOG = Path(__file__).parents[3] / "core" / "bench" / "orders.binlog"


def producer(kafka: KafkaCluster, seconds: float) -> Producer:
    def reported(error: KafkaError, topic: str) -> None:
        raise AssertionError(f"{topic}: {error}")

    settings = {
        "bootstrap.servers": kafka.bootstrap, "transactional.id": f"t-{uuid4()}",
        "delivery.report.only.error": True,
    }  # fmt: skip
    return Producer(settings, reported, seconds)


def test_messages_to_a_topic_that_brokers_know_a_moment_later_are_all_in_the_transaction(
    kafka: KafkaCluster,
) -> None:
    name = f"late-{uuid4()}"
    step = LogEncoder([(str(LOG), 0, 0, None, [])], "json").read()
    assert isinstance(step, EncodedMessages)
    [(_, array)] = step.records([(0, 1, 0, 0, 10**6, 0)])[0]
    writer = producer(kafka, 30)
    writer.init_transactions(30)
    writer.begin_transaction()
    created = threading.Timer(1.0, topics.create, [kafka.bootstrap, name])
    created.start()
    began = time.monotonic()
    try:
        writer.produce(name, b"first", b"key", 0)
        assert time.monotonic() - began > 0.9  # it has waited for the topic
        assert writer.produce_array(name, array, 0) == len(step)
        writer.commit_transaction(30)
    finally:
        created.join()
        writer.close()
    found = [one.value for one in topics.records(kafka.bootstrap, [name])]
    assert found == [b"first", *(value for _, _, value, _ in step.messages())]


def test_a_topic_that_does_not_appear_is_an_error(kafka: KafkaCluster) -> None:
    writer = producer(kafka, 1)
    writer.init_transactions(30)
    writer.begin_transaction()
    try:
        with pytest.raises(KafkaException) as error:
            writer.produce(f"never-{uuid4()}", b"x", None, 0)
        assert error.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    finally:
        writer.close()
