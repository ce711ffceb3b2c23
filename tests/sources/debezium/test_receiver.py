"""A real receiver process consumes topics of a real broker. Each message is in the log once, in order."""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]
from tests.encode.registry_server import fake_registry
from tests.sources.debezium.avro import InAvro
from tests.sources.debezium.messages import Table
from tests.sources.debezium.receiving import Receiving, Topics

from penstock.config import load
from penstock.relaylog.segment import list_segments
from penstock.relaylog.status import read_status
from penstock.sources.debezium import connection, positions
from penstock.sources.debezium import receiver as module
from penstock.sources.debezium.options import options_of
from penstock.sources.stop_signals import Stopping
from penstock.testing import servers

PARTITIONS = 3


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with servers.kafka() as cluster:
        yield Topics(cluster.bootstrap)


@pytest.fixture
def table() -> Table:
    """A table with a topic of its own."""
    name = f"t{uuid.uuid4().hex[:8]}"
    return Table(topic=f"{name}.shop.orders")


@pytest.fixture
def receivers(topics: Topics, tmp_path: Path) -> Iterator[Any]:
    made: list[Receiving] = []

    def make(topic: str, **source: Any) -> Receiving:
        made.append(Receiving(topics.bootstrap, tmp_path / str(len(made)), topic, **source))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def row(key: int, position: int) -> dict[str, Any]:
    return {"id": key, "note": f"change {position}"}


def created(table: Table, numbers: range) -> list[tuple[bytes | None, bytes]]:
    return [
        table.change("c", None, row(at, at), file="binlog.000001", pos=at + 4, row=0, server_id=1)
        for at in numbers
    ]


def ids(receiver: Receiving) -> list[int]:
    return [change["id"] for change in receiver.changes("shop.orders")]


def test_each_message_is_in_the_log_once_though_the_receiver_is_killed(
    topics: Topics, table: Table, receivers: Any
) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance, receiver = random.Random(seed), receivers(table.topic, relay_log={"segment_size": 65536})
    topics.create(table.topic, PARTITIONS)
    sent = 0
    for _ in range(4):
        receiver.start()
        for _ in range(chance.randrange(1, 4)):
            for partition in range(PARTITIONS):
                more = chance.randrange(400, 800)  # three segments at least, whatever the seed
                topics.send(table.topic, created(table, range(sent, sent + more)), partition=partition)
                sent += more
        end = receiver.log.end if receiver.log is not None else 0
        if chance.random() < 0.7:
            receiver.wait_for(lambda end=end: receiver.log is not None and receiver.log.end > end + 1000)
        receiver.kill()
    receiver.start()
    receiver.wait_until_level()
    receiver.stop()
    found = ids(receiver)
    assert sorted(found) == list(range(sent)) and len(list_segments(receiver.log_path)) > 2


@pytest.mark.slow
def test_a_full_disk_is_waited_out_and_nothing_is_lost(
    topics: Topics, table: Table, receivers: Any, tmp_path: Path
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("no small file system can be mounted here")
    try:
        receiver = receivers(table.topic, relay_log={"path": str(small / "relay")})
        receiver.log_path = small / "relay"
        topics.create(table.topic)
        receiver.start()
        receiver.wait_until_level()
        topics.send(table.topic, created(table, range(60_000)))
        receiver.wait_for(lambda: read_status(receiver.log_path).get("state") == "disk_full")
        assert "MiB are left" in receiver.errors.read_text()
        subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
        receiver.wait_until_level()
        receiver.stop()
        assert sorted(ids(receiver)) == list(range(60_000))
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_a_client_that_stays_silent_though_there_are_messages_gives_way_to_another(
    topics: Topics, table: Table, receivers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create(table.topic)
    topics.send(table.topic, created(table, range(10)))
    now = positions.position(positions.now_us())
    receiver, clients = receivers(table.topic), []
    take = connection.Topics.take

    def silent(client: connection.Topics, wait_s: float) -> connection.Batch:
        if client not in clients:
            clients.append(client)
        return take(client, wait_s) if len(clients) > 1 else connection.Batch([], {})

    monkeypatch.setattr(connection.Topics, "take", silent)
    monkeypatch.setattr(module, "STALLED_S", 0.5)
    config, stopping = load(receiver.file), Stopping()
    one = module.Receiver(config, options_of(config), stopping)
    thread = threading.Thread(target=one.run)
    thread.start()
    try:
        deadline = time.monotonic() + 60
        while not (receiver.log and receiver.log.reached(now)):
            assert time.monotonic() < deadline
            time.sleep(0.05)  # polls a condition, with a limit
    finally:
        stopping.set()
        thread.join(20)
    assert ids(receiver) == list(range(10)) and len(clients) == 2


def test_messages_of_transactions_that_were_aborted_are_not_taken(
    topics: Topics, table: Table, receivers: Any
) -> None:
    topics.create(table.topic)
    producer = Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": table.topic})
    producer.init_transactions(30)
    for number, commits in enumerate([True, False, True, False]):
        producer.begin_transaction()
        for key, value in created(table, range(number * 10, number * 10 + 10)):
            producer.produce(table.topic, key=key, value=value)
        producer.flush(30)
        if commits:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    receiver = receivers(table.topic)
    receiver.start()
    receiver.wait_until_level()
    assert ids(receiver) == [*range(10), *range(20, 30)]


@pytest.mark.slow
def test_new_topics_and_partitions_are_followed_from_their_first_message(
    topics: Topics, table: Table, receivers: Any
) -> None:
    receiver = receivers(table.topic.replace("orders", "*"), start="latest")
    topics.create(table.topic)
    topics.send(table.topic, created(table, range(5)))
    receiver.start()
    receiver.wait_until_level()
    later = Table(topic=table.topic.replace("orders", "lines"), source={"db": "shop", "table": "lines"})
    topics.create(later.topic)
    topics.send(later.topic, created(later, range(3)))
    topics.send(table.topic, created(table, range(5, 7)))
    receiver.wait_for(
        lambda: b"lines" in b"".join(path.read_bytes() for path in receiver.log_path.glob("*.index"))
    )
    receiver.wait_until_level()
    assert ids(receiver) == [5, 6]
    assert [change["id"] for change in receiver.changes("shop.lines")] == [0, 1, 2]


def test_a_receiver_says_which_messages_were_deleted_before_it_had_them(
    topics: Topics, table: Table, receivers: Any
) -> None:
    topics.create(table.topic)
    topics.send(table.topic, created(table, range(10)))
    receiver = receivers(table.topic)
    receiver.start()
    receiver.wait_until_level()
    receiver.stop()
    topics.send(table.topic, created(table, range(10, 20)))
    for future in topics.admin.delete_records([TopicPartition(table.topic, 0, 15)]).values():
        future.result()
    receiver.start()
    said = receiver.fails()
    assert (
        said.startswith("LogPurged") and f"messages 10 to 14 of {table.topic}[0]" in said and "state" in said
    )


@pytest.mark.slow
def test_a_topic_that_was_created_again_is_not_taken_for_the_old_one(
    topics: Topics, table: Table, receivers: Any
) -> None:
    topics.create(table.topic)
    topics.send(table.topic, created(table, range(10)))
    receiver = receivers(table.topic)
    receiver.start()
    receiver.wait_until_level()
    receiver.stop()
    for future in topics.admin.delete_topics([table.topic], operation_timeout=30).values():
        future.result()
    topics.create(table.topic)
    topics.send(table.topic, created(table, range(3)))
    receiver.start()
    said = receiver.fails()
    assert said.startswith("LogDiverged") and f"{table.topic}[0] ends at offset 3" in said
    topics.send(table.topic, created(table, range(3, 20)))
    receiver.start()
    said = receiver.fails()
    assert said.startswith("LogDiverged") and "created again" in said


def test_partitions_that_a_topic_gets_later_are_read_behind_what_it_had(
    topics: Topics, table: Table, receivers: Any
) -> None:
    """Rows may have moved to them: then their older changes are in the other partitions."""
    topics.create(table.topic)
    topics.send(table.topic, created(table, range(3)))
    receiver = receivers(table.topic)
    receiver.start()
    receiver.wait_until_level()
    receiver.stop()
    topics.send(table.topic, created(table, range(3, 3000)))
    for future in topics.admin.create_partitions([NewPartitions(table.topic, 2)]).values():
        future.result()
    receiver.wait_for(
        lambda: len(topics.producer.list_topics(table.topic).topics[table.topic].partitions) == 2
    )
    topics.send(table.topic, created(table, range(3000, 3010)), partition=1)
    receiver.start()
    receiver.wait_until_level()
    assert ids(receiver) == list(range(3010))
    assert "has new partitions" in receiver.errors.read_text()


def test_a_message_that_cannot_be_read_stops_the_receiver_or_is_skipped(
    topics: Topics, table: Table, receivers: Any
) -> None:
    topics.create(table.topic)
    topics.send(table.topic, [*created(table, range(2)), (b"{}", b"secret"), *created(table, range(2, 4))])
    receiver = receivers(table.topic)
    receiver.start()
    said = receiver.fails()
    assert f"offset 2 of {table.topic}[0]" in said and "on_error" in said and "secret" not in said
    assert ids(receiver) == [0, 1]
    file = receiver.file.read_text().replace("type: debezium", "type: debezium\n  on_error: skip")
    receiver.file.write_text(file)
    receiver.start()
    receiver.wait_until_level()
    assert ids(receiver) == [0, 1, 2, 3]
    assert "secret" not in receiver.errors.read_text() and "It is skipped" in receiver.errors.read_text()


def test_messages_in_avro_are_read_with_their_registry_also_after_a_restart(
    topics: Topics, table: Table, receivers: Any
) -> None:
    topics.create(table.topic)
    with fake_registry(failures=[503]) as registry:
        binary = InAvro(registry)
        pairs = [(binary.converted(key), binary.converted(value)) for key, value in created(table, range(6))]
        receiver = receivers(table.topic, registry={"url": registry.url})
        topics.send(table.topic, pairs[:3])
        receiver.start()
        receiver.wait_until_level()
        receiver.kill()
        topics.send(table.topic, pairs[3:])
        receiver.start()
        receiver.wait_until_level()
        assert ids(receiver) == list(range(6))
        asked = [one for one in registry.asked if one.startswith("GET /schemas/ids/")]
        assert len(asked) == 2 * 2 + 1  # key and value, in each run, and once more after 503


@pytest.mark.slow
def test_a_receiver_goes_on_when_its_broker_comes_back(table: Table, tmp_path: Path) -> None:
    with servers.kafka() as cluster:
        topics = Topics(cluster.bootstrap)
        topics.create(table.topic)
        receiver = Receiving(cluster.bootstrap, tmp_path, table.topic, reconnect_max="1s")
        receiver.start()
        try:
            topics.send(table.topic, created(table, range(10)))
            receiver.wait_until_level()
            cluster.brokers[0].kill9()
            cluster.brokers[0].start()
            topics.send(table.topic, created(table, range(10, 20)))
            receiver.wait_until_level()
            assert ids(receiver) == list(range(20))
        finally:
            receiver.stop()


@pytest.mark.slow
def test_nothing_is_left_at_the_broker(topics: Topics, table: Table, receivers: Any) -> None:
    topics.create(table.topic)
    topics.send(table.topic, created(table, range(2)))
    receiver = receivers(table.topic)
    receiver.start()
    receiver.wait_until_level()
    receiver.stop()
    groups = topics.admin.list_consumer_groups().result().valid
    for group in groups:
        asked = [ConsumerGroupTopicPartitions(group.group_id)]
        for future in topics.admin.list_consumer_group_offsets(asked).values():
            assert [one for one in future.result().topic_partitions if one.topic == table.topic] == []
