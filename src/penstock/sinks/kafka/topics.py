"""The topics of tables: their names, their partitions, and what is created."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from penstock.errors import ConfigError, PenstockError, TableError
from penstock.model.schema import TableId, TableSchema
from penstock.printable import argument
from penstock.sinks.base import DEFINITIONS, Route, Subject
from penstock.sinks.kafka import commits
from penstock.sinks.kafka.client import NOT_YET, NOT_YET_SECONDS
from penstock.sinks.kafka.faults import explained, kafka_error, of_table
from penstock.sinks.kafka.names import murmur2
from penstock.sinks.kafka.options import KafkaOptions, TopicEntry
from penstock.sinks.kafka.routing import Routing
from penstock.sinks.refusals import at

log = logging.getLogger(__name__)

BATCH_BYTES_MAX = 1_000_000
"""Batches of this size cost the client a third of what those of 256 KiB do."""
OVERHEAD_BYTES = 512
"""Bytes that a batch with one message needs besides key and value, rounded up."""


@dataclass(frozen=True)
class Topic:
    """A topic of a table. `keyed`: the partition of messages with a key; None: it depends on the key.
    `keyless`: the partition of messages without one. `route`: how the partition is found otherwise."""

    name: str
    partitions: int
    keyed: int | None
    keyless: int
    bytes_max: int
    route: Route | None = None

    def partition(self, key: bytes | None) -> int:
        if key is None:
            return self.keyless
        return murmur2(key) % self.partitions if self.keyed is None else self.keyed


class Topics:
    """Finds the topic of a table, and creates it. What it has found once it does not look up again."""

    def __init__(self, options: KafkaOptions, settings: Mapping[str, Any]) -> None:
        self._options = options
        self._seconds = options.request_timeout / 1000
        self.use(settings)
        self._of: dict[Subject, Topic] = {}
        self.batch_bytes_max = BATCH_BYTES_MAX
        """Bytes of a batch that all topics so far accept. What Kafka calls the limit of a message is one of a
        batch."""

    def use(self, settings: Mapping[str, Any]) -> None:
        """Makes a new client, with these settings."""
        self._admin = AdminClient(dict(settings))

    def of(self, subject: Subject) -> Topic:
        """The topic of a table that `prepare` has seen."""
        return self._of[subject]

    def table_of(self, name: str) -> TableId | None:
        """A table whose topic has this name."""
        found = (subject for subject, topic in self._of.items() if topic.name == name)
        return next((table for table in found if isinstance(table, TableId)), None)

    def check(self) -> None:
        """Raises `KafkaException` if no broker answers."""
        self._admin.list_topics(timeout=self._seconds)

    def forget(self) -> None:
        """Looks everything up again: a topic may have been removed."""
        self._of.clear()

    def prepare(self, tables: Iterable[TableSchema], others: Iterable[Subject] = ()) -> None:
        """Makes sure that the topics of these tables exist, and those of `others`. Raises `TableError` for a
        topic that cannot take the table's messages."""
        for schema in tables:
            routing = self._options.routing_of(schema.table)
            if missing := routing.missing(schema):
                raise _unfit(
                    schema.table, self._options.topic_of(schema.table),
                    f"the table has no column `{missing}`, which is to decide the partition",
                    "Correct the section `sink`, and restart the pipeline.",
                )  # fmt: skip
            if schema.table not in self._of:
                self._of[schema.table] = self._found(schema.table, bool(schema.key), routing)
        for subject in others:
            if subject not in self._of:
                self._of[subject] = self._found(subject, True, Routing("table"))

    def prepare_commits(self, name: str) -> None:
        """Makes sure that the pipeline's own topic exists."""
        try:
            if self._partitions(name) is None:
                self._create(name, 1, commits.TOPIC_CONFIG)
        except KafkaException as error:
            what = at(f"The topic {name} cannot be created", self._options.bootstrap)
            raise explained(kafka_error(error), what) from error

    def _found(self, subject: Subject, has_key: bool, routing: Routing) -> Topic:
        options = self._options
        table = subject if isinstance(subject, TableId) else None
        name = options.topic_of(subject)
        try:
            count = self._partitions(name)
            if count is None:
                count = self._created(name, table, options.entry_of(table), subject)
            settings = self._settings(name)
        except KafkaException as error:
            raise self._refused(kafka_error(error), table, name) from error
        if options.order == "log" and count > 1:
            raise _unfit(
                table, name, f"it has {count} partitions, and `order: log` needs one",
                "Name another topic, or choose another order.",
            )  # fmt: skip
        has_key = has_key and (options.format != "canal" or options.single_rows)
        if "compact" in settings.get("cleanup.policy", "") and not has_key:
            raise _unfit(
                table, name, "it is compacted, and messages of this table have no key",
                "Set its `cleanup.policy` to `delete`, or name another topic.",
            )  # fmt: skip
        batch_max = int(settings.get("max.message.bytes", BATCH_BYTES_MAX))
        self.batch_bytes_max = min(self.batch_bytes_max, batch_max)
        largest = batch_max - OVERHEAD_BYTES if "max.message.bytes" in settings else options.message_bytes_max
        bytes_max = min(options.message_bytes_max, largest)
        if table is None:
            return Topic(name, count, 0, 0, bytes_max)
        keyed, keyless = routing.partitions(table, count, by_key=options.order == "key")
        route = routing.route(options.format, count, has_key=has_key) if options.order == "key" else None
        return Topic(name, count, keyed, keyless, bytes_max, route)

    def _partitions(self, name: str) -> int | None:
        """Number of partitions. None: there is no such topic."""
        found = self._admin.list_topics(name, timeout=self._seconds).topics.get(name)
        if found is None:  # an answer to another question
            raise KafkaException(KafkaError(KafkaError._BAD_MSG))
        if found.error is None:
            return len(found.partitions)
        if found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise KafkaException(found.error)

    def _settings(self, name: str) -> dict[str, str]:
        """The topic's settings. A broker that has only now created it may not know it for a moment."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        deadline = time.monotonic() + self._seconds
        while True:
            try:
                answer = self._admin.describe_configs([resource], request_timeout=self._seconds)
                return {key: entry.value or "" for key, entry in answer[resource].result().items()}
            except KafkaException as error:
                code = kafka_error(error).code()
                if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    return {}  # the right DescribeConfigs is not needed to write
                if code not in NOT_YET or time.monotonic() > deadline:
                    raise
            time.sleep(NOT_YET_SECONDS)  # polls a condition, with a limit

    def _created(self, name: str, table: TableId | None, entry: TopicEntry | None, subject: Subject) -> int:
        options = self._options
        if not options.create_topics:
            raise _unfit(table, name, "it does not exist, and `sink.create_topics` is false", "Create it.")
        count = 1 if options.order == "log" else (entry and entry.partitions) or options.partitions
        if subject == DEFINITIONS:
            count = 1  # they need an order of their own
        settings = dict(options.topic_config)
        if options.retention is not None:
            settings["retention.ms"] = str(options.retention)
        if options.cleanup is not None:
            settings["cleanup.policy"] = options.cleanup
        self._create(name, count, settings)
        return count

    def _create(self, name: str, count: int, settings: dict[str, str]) -> None:
        copies = self._options.replication or -1
        topic = NewTopic(name, num_partitions=count, replication_factor=copies, config=settings)
        done = self._admin.create_topics([topic], request_timeout=self._seconds)
        try:
            done[name].result()
            log.info("created the topic %s with %d partitions", name, count)
        except KafkaException as error:
            if kafka_error(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _refused(self, error: KafkaError, table: TableId | None, name: str) -> PenstockError:
        unfit = {
            KafkaError.INVALID_REPLICATION_FACTOR, KafkaError.INVALID_CONFIG, KafkaError.INVALID_PARTITIONS,
            KafkaError.POLICY_VIOLATION, KafkaError.TOPIC_EXCEPTION, KafkaError.INVALID_REQUEST,
        }  # fmt: skip
        if self._options.replication is None:  # brokers are away, for what the brokers want themselves
            unfit.discard(KafkaError.INVALID_REPLICATION_FACTOR)
        if error.code() in unfit:
            cure = "Correct the section `sink`, or name another topic, for one table by `sink.topics`."
            return _unfit(table, name, f"it cannot be created: {error.str()}", cure)
        if table is not None:
            return of_table(error, table, name, self._options.bootstrap)
        return explained(error, at(f"The topic {name} cannot be used", self._options.bootstrap))


def _unfit(table: TableId | None, topic: str, why: str, cure: str) -> PenstockError:
    if table is None:
        return ConfigError(f"The topic {topic} cannot be used: {why}.", hint=cure)
    return TableError(
        f"The topic {topic} of {table} cannot be used: {why}.",
        hint=f"{cure} Then run `penstock unpark FILE {argument(table)}`: the table continues from here.",
        table=str(table),
    )
