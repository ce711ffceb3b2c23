"""Private brokers: what is in a topic survives kills, and a cluster goes on without one of its brokers."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.testing import servers, topics


def make_topic(bootstrap: str, name: str, copies: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 1, copies)])[name].result(60)


def write(bootstrap: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": "2"})
    producer.produce("t", value)
    assert producer.flush(60) == 0


@pytest.mark.slow
def test_a_killed_broker_starts_again_with_its_topics() -> None:
    with servers.kafka() as cluster:
        make_topic(cluster.bootstrap, "t", 1)
        write(cluster.bootstrap, b"a")
        cluster.brokers[0].kill9()
        cluster.brokers[0].start()
        write(cluster.bootstrap, b"b")
        assert [one.value for one in topics.records(cluster.bootstrap, ["t"])] == [b"a", b"b"]


@pytest.mark.slow
def test_a_cluster_of_three_goes_on_without_any_one_of_its_brokers() -> None:
    with servers.kafka(brokers=3) as cluster:
        make_topic(cluster.bootstrap, "t", 3)
        for broker in cluster.brokers:
            broker.kill9()
            write(cluster.bootstrap, str(broker.number).encode())
            broker.start()
        found = [one.value for one in topics.records(cluster.bootstrap, ["t"])]
        assert found == [b"1", b"2", b"3"]
