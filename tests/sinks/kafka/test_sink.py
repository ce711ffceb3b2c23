"""What the sink kafka promises, on a real broker. The judge is a consumer with `read_committed`."""

from __future__ import annotations

import itertools
import os
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.commands.doctor_sink import sink_findings
from penstock.config import parse
from penstock.errors import ConfigError, DriverReplaced, TableError, TargetRefused, TransientError
from penstock.model.schema import Column, TableId, TableSchema
from penstock.sinks.base import Commit, LogMessage, LogSink, Missing, Ours
from penstock.sinks.kafka.client import NOT_YET
from penstock.sinks.kafka.commits import NOTHING, last_written
from penstock.sinks.kafka.faults import kafka_error
from penstock.sinks.kafka.names import murmur2
from penstock.sinks.kafka.options import KafkaOptions
from penstock.sinks.kafka.sink import KafkaSink
from penstock.testing import topics
from penstock.testing.servers import KafkaCluster

_serial = itertools.count()


class Case:
    """A pipeline with two tables, and topics of its own."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.pipeline = str(uuid.uuid4())
        database = f"d{os.getpid()}_{next(_serial)}"
        self.one, self.two = TableId(database, "one"), TableId(database, "two")
        self.sinks: list[KafkaSink] = []
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def sink(self, generation: int = 0, **options: Any) -> KafkaSink:
        text = {"type": "kafka", "bootstrap": self.bootstrap, "format": "json", "request_timeout": "20s"}
        sink = KafkaSink(KafkaOptions.model_validate({**text, **options}), self.pipeline)
        self.sinks.append(sink)
        sink.check()
        sink.begin(generation)
        return sink

    def schema(self, table: TableId, *key: str) -> TableSchema:
        return TableSchema(table, (Column("id", "int"),), key or ("id",))

    def write(self, sink: KafkaSink, epoch: int, *messages: LogMessage, note: str = "") -> str | None:
        schemas = [self.schema(one) for one in (self.one, self.two) if one in {m[0] for m in messages}]
        return sink.write_epoch(Commit(self.pipeline, epoch), schemas, [messages], note)

    def message(self, key: str, value: str = "", table: TableId | None = None) -> LogMessage:
        return (table or self.one, key.encode(), (value or key).encode(), 1)

    def found(self, table: TableId | None = None) -> list[str]:
        name = str(table or self.one)
        return [(one.value or b"").decode() for one in topics.records(self.bootstrap, [name])]

    def drop_topic(self, table: TableId) -> None:
        """Returns when brokers do not list it any more."""
        self.admin.delete_topics([str(table)])[str(table)].result()
        deadline = time.monotonic() + 30
        while str(table) in self.admin.list_topics(timeout=10).topics:
            assert time.monotonic() < deadline
            time.sleep(0.05)  # polls a condition, with a limit

    def make_topic(self, table: TableId, partitions: int = 1, **config: str) -> None:
        topic = NewTopic(str(table), partitions, config={k.replace("_", "."): v for k, v in config.items()})
        self.admin.create_topics([topic])[str(table)].result()


@pytest.fixture
def case(kafka: KafkaCluster) -> Iterator[Case]:
    made = Case(kafka.bootstrap)
    yield made
    for sink in made.sinks:
        sink.close()


def test_a_repeated_epoch_writes_nothing_and_returns_the_note_of_the_first_time(case: Case) -> None:
    sink = case.sink()
    assert isinstance(sink, LogSink)
    assert sink.open(case.one) == Missing()
    assert case.write(sink, 1, case.message("a"), note="first") is None
    assert case.write(sink, 1, case.message("a"), note="other") == "first"
    again = case.sink()
    assert case.write(again, 1, case.message("a")) == "first"
    assert case.write(again, 2, case.message("b")) is None
    target = again.open(case.one)
    assert isinstance(target, Ours) and target.last_commit == Commit(case.pipeline, 2)
    assert case.found() == ["a", "b"]


def test_what_a_killed_driver_had_begun_is_seen_by_nobody(case: Case) -> None:
    killed = case.sink()
    case.write(killed, 1, case.message("a"))

    def interrupted() -> Iterator[list[LogMessage]]:
        yield [case.message("b"), case.message("c", table=case.two)]
        assert killed._producer is not None
        killed._producer.flush(20)
        raise KeyboardInterrupt

    # Nothing of this process is told to the broker, as after kill -9.
    killed._drop = lambda *, abort: None  # type: ignore[method-assign]
    schemas = [case.schema(case.one), case.schema(case.two)]
    with pytest.raises(KeyboardInterrupt):
        killed.write_epoch(Commit(case.pipeline, 2), schemas, interrupted())
    everything = [one.value for one in topics.records(case.bootstrap, [str(case.one)], committed=False)]
    assert everything == [b"a", b"b"]
    next_driver = case.sink()
    assert case.write(next_driver, 2, case.message("b"), case.message("c", table=case.two)) is None
    assert (case.found(), case.found(case.two)) == (["a", "b"], ["c"])


@pytest.mark.parametrize("generations", [(0, 0), (1, 2)])
def test_a_driver_that_was_replaced_writes_nothing_and_its_successor_goes_on(
    case: Case, generations: tuple[int, int]
) -> None:
    """The first driver is suspended in the middle of an epoch, and goes on after the second has begun."""
    first = case.sink(generations[0])
    case.write(first, 1, case.message("a"))
    second: list[KafkaSink] = []

    def suspended() -> Iterator[list[LogMessage]]:
        yield [case.message("late")]
        second.append(case.sink(generations[1]))
        case.write(second[0], 2, case.message("b"))
        yield [case.message("later")]

    with pytest.raises(TransientError, match="was not written"):
        first.write_epoch(Commit(case.pipeline, 2), [case.schema(case.one)], suspended())
    with pytest.raises(DriverReplaced):
        case.write(first, 2, case.message("late"))
    with pytest.raises(TransientError):  # the first one has taken the transactional id once more
        case.write(second[0], 3, case.message("c"))
    assert case.write(second[0], 3, case.message("c")) is None
    assert case.found() == ["a", "b", "c"]


def test_a_driver_of_an_earlier_generation_does_not_begin(case: Case) -> None:
    case.sink(7)
    with pytest.raises(DriverReplaced):
        case.sink(6)


def test_a_message_that_is_too_large_names_its_table_and_the_others_can_be_written(case: Case) -> None:
    sink = case.sink()
    large = case.message("k", "x" * (16 * 1024**2), table=case.two)
    with pytest.raises(TableError, match=r"16,777,217 bytes.*max.message.bytes") as refused:
        case.write(sink, 1, case.message("a"), large)
    assert refused.value.details["table"] == str(case.two)
    assert case.write(sink, 1, case.message("a")) is None
    assert (case.found(), case.found(case.two)) == (["a"], [])


def test_large_messages_are_written_where_topics_take_them(case: Case) -> None:
    case.make_topic(case.one, max_message_bytes=str(20 * 1024**2))
    sink = case.sink(message_bytes_max="20MiB")
    case.write(sink, 1, case.message("k", "x" * (16 * 1024**2)))
    assert [len(value) for value in case.found()] == [16 * 1024**2]


def test_many_messages_fit_into_a_topic_with_a_small_limit(case: Case) -> None:
    """The limit is one of batches, whatever its name says."""
    case.make_topic(case.one, max_message_bytes="10000")
    sink = case.sink(client={"compression.type": "none"})
    values = [f"{number} {'x' * 3000}" for number in range(100)]
    case.write(sink, 1, *(case.message(str(number), value) for number, value in enumerate(values)))
    assert case.found() == values
    with pytest.raises(TableError, match="too large for the topic"):
        case.write(sink, 2, case.message("k", "x" * 9900))
    assert case.write(sink, 2, case.message("k", "x" * 9000)) is None


def test_topics_are_created_as_the_options_say(case: Case) -> None:
    sink = case.sink(
        partitions=3, retention="2h", cleanup="compact,delete", topic_config={"segment.bytes": 2**21},
        topics=[{"match": f"{case.two}", "partitions": 2, "topic": "{database}.{table}.v2"}],
    )  # fmt: skip
    case.write(sink, 1, case.message("a"), case.message("b", table=case.two))
    found = topics.topics(case.bootstrap)
    assert (found[str(case.one)], found[f"{case.two}.v2"]) == (3, 2)
    settings = sink._topics._settings(str(case.one))
    assert settings["retention.ms"] == "7200000" and settings["segment.bytes"] == str(2**21)
    assert set(settings["cleanup.policy"].split(",")) == {"compact", "delete"}


def test_a_topic_that_cannot_take_a_table_stops_only_that_table(case: Case) -> None:
    case.make_topic(case.one, 3)
    case.make_topic(case.two, cleanup_policy="compact")
    with pytest.raises(TableError, match="has 3 partitions, and `order: log` needs one"):
        case.write(case.sink(order="log"), 1, case.message("a"))
    keyless = TableSchema(case.two, (Column("id", "int"),), ())
    with pytest.raises(TableError, match="is compacted, and messages of this table have no key"):
        case.sink().write_epoch(Commit(case.pipeline, 1), [keyless], [[(case.two, None, b"v", 1)]])
    other = TableSchema(TableId(case.one.database, "three"), (Column("id", "int"),), ("id",))
    with pytest.raises(TableError, match=r"does not exist, and `sink.create_topics` is false"):
        case.sink(create_topics=False).write_epoch(Commit(case.pipeline, 1), [other], [])


@pytest.mark.slow
@pytest.mark.parametrize("made_again", [False, True])
def test_a_topic_that_somebody_removes_or_makes_smaller_is_looked_up_again(
    case: Case, made_again: bool
) -> None:
    sink = case.sink(partitions=8, request_timeout="3s")
    case.write(sink, 1, *(case.message(f"key {number}") for number in range(30)))
    case.drop_topic(case.one)
    if made_again:
        case.make_topic(case.one, 1)
    for _ in range(10):
        try:
            case.write(sink, 2, case.message("a"), case.message("b"), case.message("c"))
            break
        except TransientError as error:
            assert case.bootstrap in error.message
    assert sorted(case.found()) == ["a", "b", "c"]


def test_a_transaction_that_brokers_find_too_long_names_the_option(case: Case) -> None:
    with pytest.raises(TargetRefused, match=r"Lower `sink\.transaction_timeout`"):
        case.sink(transaction_timeout="2h")


def test_a_topic_whose_limits_refuse_a_time_stamp_parks_its_table(case: Case) -> None:
    case.make_topic(case.one, message_timestamp_before_max_ms="0")
    with pytest.raises(TableError, match=r"message\.timestamp\.before\.max\.ms") as raised:
        case.write(case.sink(), 1, case.message("a"))
    assert raised.value.details["table"] == str(case.one)


def test_partitions_are_those_of_javas_client_for_keys_and_one_for_the_rest(case: Case) -> None:
    sink = case.sink(partitions=4)
    keys = [f"key {number}" for number in range(40)]
    case.write(sink, 1, *(case.message(key) for key in keys), (case.one, None, b"none", 1))
    for record in topics.records(case.bootstrap, [str(case.one)]):
        named = record.key if record.key is not None else str(case.one).encode()
        assert record.partition == murmur2(named) % 4
    sink = case.sink(order="table", partitions=4)
    case.write(sink, 2, *(case.message(key, table=case.two) for key in keys))
    assert len({one.partition for one in topics.records(case.bootstrap, [str(case.two)])}) == 1


def test_two_pipelines_may_write_one_topic(case: Case) -> None:
    other = Case(case.bootstrap)
    other.one = case.one
    one, two = case.sink(), other.sink()
    for epoch in (1, 2):
        case.write(one, epoch, case.message(f"one {epoch}"))
        other.write(two, epoch, other.message(f"two {epoch}"))
    two.close()
    assert case.found() == ["one 1", "two 1", "one 2", "two 2"]


def test_a_transaction_of_another_pipeline_in_the_topic_of_commits_hides_no_commit(case: Case) -> None:
    shared: dict[str, Any] = {"commits_topic": f"commits-{case.one.database}"}
    one, other = case.sink(**shared), Case(case.bootstrap)
    two = other.sink(**shared)
    assert two._producer is not None
    two._producer.begin_transaction()
    two._producer.produce(shared["commits_topic"], b"open", b"another", 0)
    two._wait_below(two._producer, 1)
    assert case.write(one, 1, case.message("a"), note="first") is None
    with pytest.raises(TransientError, match="could not be read to its end"):
        case.sink(**shared, request_timeout="2s")
    two.close()
    assert case.write(case.sink(**shared), 1, case.message("a")) == "first"
    assert case.found() == ["a"]


def test_at_least_once_remembers_epochs_too(case: Case) -> None:
    case.write(case.sink(delivery="at_least_once"), 1, case.message("a"))
    again = case.sink(delivery="at_least_once")
    assert case.write(again, 1, case.message("a")) == ""
    assert case.found() == ["a"]


def test_no_broker_is_an_error_that_names_the_address(case: Case) -> None:
    options = {"type": "kafka", "bootstrap": "127.0.0.1:9", "request_timeout": "1s"}
    sink = KafkaSink(KafkaOptions.model_validate(options), case.pipeline)
    with pytest.raises(ConfigError, match=r"No broker answers at 127.0.0.1:9.*sink.bootstrap"):
        sink.check()


def test_doctor_tries_brokers_and_transactions_without_spark(kafka: KafkaCluster) -> None:
    def found(bootstrap: str, **options: Any) -> list[tuple[str, str]]:
        sink = {"type": "kafka", "bootstrap": bootstrap, "request_timeout": "5s", **options}
        source = {"host": "h", "user": "u", "password": "p"}
        document = {"name": "p", "source": source, "tables": ["d.*"], "sink": sink, "state": "/tmp/state"}
        return [(one.level, one.check) for one in sink_findings(parse(document))]

    assert found(kafka.bootstrap) == [("ok", "kafka"), ("ok", "kafka-transactions")]
    assert found(kafka.bootstrap, delivery="at_least_once") == [("ok", "kafka")]
    assert found("127.0.0.1:9", request_timeout="1s") == [("error", "kafka")]


def test_a_topic_that_collides_with_another_in_kafkas_metrics_parks_the_later_table(case: Case) -> None:
    """Kafka takes `.` and `_` for the same there, and refuses the second topic."""
    first = replace(case.one, table="one_a")
    case.two = TableId(f"{case.one.database}_one", "a")
    case.one = first
    sink = case.sink(topic="{database}.{table}")
    case.write(sink, 1, case.message("a"))
    with pytest.raises(TableError, match="collides with existing topic") as refused:
        case.write(sink, 2, case.message("b"), case.message("c", table=case.two))
    assert str(case.two) in refused.value.message and "`sink.topics`" in refused.value.hint
    case.write(sink, 2, case.message("b"))
    assert case.found() == ["a", "b"]
    other = [{"match": str(case.two), "topic": "{database}-{table}"}]
    sink = case.sink(topic="{database}.{table}", topics=other)
    case.write(sink, 3, case.message("c", table=case.two))
    assert [one.value for one in topics.records(case.bootstrap, [f"{case.two.database}-a"])] == [b"c"]


def test_a_commits_topic_that_brokers_do_not_know_yet_is_waited_for(case: Case) -> None:
    topic = f"commits-{case.pipeline}"
    settings = {"bootstrap.servers": case.bootstrap, "log_level": "2"}
    codes: list[int] = []
    watched = Consumer({**settings, "group.id": topic})
    try:
        watched.get_watermark_offsets(TopicPartition(topic, 0), timeout=5)
    except KafkaException as error:
        codes.append(kafka_error(error).code())
    finally:
        watched.close()
    assert codes and codes[0] in NOT_YET  # the refusal that a broker gives until it knows the topic
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(last_written, settings, topic, case.pipeline, seconds=30)
        with pytest.raises(TimeoutError):
            found.result(timeout=1)
        case.admin.create_topics([NewTopic(topic, 1)])[topic].result()
        assert found.result(timeout=30) == NOTHING
