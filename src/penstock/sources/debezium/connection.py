"""Connects to Kafka's brokers. Only this module imports the client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from penstock.connections.verdicts import Codes, Verdict
from penstock.errors import (
    ConfigError,
    LoginRefused,
    LogPurged,
    PenstockError,
    SourceUnreachable,
    TransientError,
)
from penstock.sources.debezium.options import DebeziumOptions

Place = tuple[str, int]
"""A topic and the number of a partition."""
Consumed = tuple[str, int, int, int, bytes | None, bytes | None]
"""Topic, partition, offset, timestamp in milliseconds, key and value of a message."""

BATCH_MESSAGES = 10_000
"""Messages that are taken at once, if so many have come."""
QUEUED_KIB = 64 * 1024
"""KiB of messages that the client fetches ahead, over all partitions."""
INTERNAL_TOPICS = "__"
"""How the names of Kafka's own topics begin."""

LOST_HINT = (
    "The topics no longer have messages that the relay log lacks. Begin again with a new `state` (and a new "
    "snapshot by Debezium), and give the topics a longer `retention.ms`."
)


@dataclass(frozen=True)
class Batch:
    """What came with one call. `ends`: the offset of the next message of partitions whose end was reached."""

    messages: list[Consumed]
    ends: dict[Place, int]


@dataclass(frozen=True)
class Bounds:
    """The offset of the first message that a partition has, and that of the next one it will get."""

    first: int
    next: int


def _libraries() -> tuple[Any, Any, Codes]:
    """The client's package, its part for administration, and the table of Kafka's codes."""
    try:
        import confluent_kafka
        import confluent_kafka.admin

        from penstock.connections.kafka_codes import CODES
    except ImportError as error:
        raise ConfigError(
            f"A source of type debezium needs a package that is missing: {error.name}.",
            hint="pip install 'penstock[kafka]'",
        ) from error
    return confluent_kafka, confluent_kafka.admin, CODES


class Topics:
    """A consumer of the topics. Only one thread uses it."""

    def __init__(self, source: DebeziumOptions) -> None:
        self._library, self._administration, self._codes = _libraries()
        self._source = source
        self._timeout = source.request_timeout / 1000
        self._failure: Any = None
        own: dict[str, Any] = {
            "bootstrap.servers": source.bootstrap,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "allow.auto.create.topics": False,
            "queued.max.messages.kbytes": QUEUED_KIB,
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 100,
            "socket.timeout.ms": source.request_timeout,
            "error_cb": self._failed,
            "log_level": 2,
        }
        settings: dict[str, Any] = {name: secret.reveal() for name, secret in source.client.items()}
        group = {"group.id": "penstock"}  # the client wants one; nothing is committed to it
        try:
            self._consumer = self._library.Consumer({**group, **settings, **own})
            shared: dict[str, Any] = {
                "bootstrap.servers": source.bootstrap,
                "log_level": 2,
                "error_cb": self._failed,
            }
            self._admin = self._administration.AdminClient({**settings, **shared})
        except (self._library.KafkaException, ValueError, TypeError) as error:
            raise ConfigError(
                f"Kafka's client refuses its settings: {error}.", hint="See `source.client`."
            ) from error

    def _failed(self, error: Any) -> None:
        """Called by the client for errors that belong to no single request. An error of one broker is ignored
        while others answer."""
        codes = self._library.KafkaError
        if error.fatal() or error.code() in (codes._ALL_BROKERS_DOWN, codes._AUTHENTICATION, codes._SSL):
            self._failure = error

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except self._library.KafkaException as error:
            raise self._error(error.args[0], what) from error

    def _error(self, error: Any, what: str) -> PenstockError:
        codes = self._library.KafkaError
        unspecific = (codes._TRANSPORT, codes._TIMED_OUT)
        known = self._failure if error.code() in unspecific and self._failure is not None else error
        where = self._source.bootstrap
        message = f"{what} ({where}): {known.str()}."
        unreachable = (codes._TRANSPORT, codes._ALL_BROKERS_DOWN, codes._RESOLVE, codes._TIMED_OUT)
        if known.code() in unreachable:
            return SourceUnreachable(f"No broker of {where} answers. {what}: {known.str()}.")
        refused = (codes.TOPIC_AUTHORIZATION_FAILED, codes._SSL)
        if known.code() in refused or self._codes.verdict(known.code()) is Verdict.CONFIGURATION:
            return LoginRefused(message, hint="See `source.client`, and the account's rights on the topics.")
        if known.code() in (codes.OFFSET_OUT_OF_RANGE, codes._AUTO_OFFSET_RESET):
            return LogPurged(message, hint=LOST_HINT)
        return TransientError(message)

    def find(self) -> tuple[str, dict[str, int]]:
        """The cluster's id, and the number of partitions of each topic that matches, by name."""
        with self._explained("The topics cannot be listed"):
            found = self._consumer.list_topics(timeout=self._timeout)
        topics = {
            name: len(topic.partitions)
            for name, topic in sorted(found.topics.items())
            if topic.error is None and self._matches(name)
        }
        return str(found.cluster_id), topics

    def _matches(self, name: str) -> bool:
        return any(
            fnmatchcase(name, pattern)
            and (not name.startswith(INTERNAL_TOPICS) or pattern.startswith(INTERNAL_TOPICS))
            for pattern in self._source.topics
        )

    def bounds(self, places: Iterable[Place]) -> dict[Place, Bounds]:
        """The bounds of partitions now."""
        places = list(places)
        first, ends = self._offsets(places, latest=False), self.ends(places)
        return {place: Bounds(first[place], ends[place]) for place in places}

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """The ends of partitions now. Messages of transactions that are not committed yet do not count."""
        return self._offsets(places, latest=True)

    def _offsets(self, places: Iterable[Place], *, latest: bool) -> dict[Place, int]:
        kinds = self._administration.OffsetSpec
        spec = kinds.latest() if latest else kinds.earliest()
        asked = {self._library.TopicPartition(*place): spec for place in places}
        if not asked:
            return {}
        with self._explained("The ends of partitions cannot be read"):
            futures = self._admin.list_offsets(
                asked,
                isolation_level=self._library.IsolationLevel.READ_COMMITTED,
                request_timeout=self._timeout,
            )
            return {(one.topic, one.partition): future.result().offset for one, future in futures.items()}

    def ids(self, names: Iterable[str]) -> dict[str, str]:
        """The ids of topics: a topic that is created again has another one. Without those that the broker
        does not tell (Kafka before 2.8)."""
        names = list(names)
        if not names:
            return {}
        asked = self._library.TopicCollection(names)
        found = {}
        with self._explained("The topics cannot be described"):
            futures = self._admin.describe_topics(asked, request_timeout=self._timeout)
        for name, future in futures.items():
            try:
                topic_id = future.result().topic_id
            except self._library.KafkaException:
                continue  # it has just gone, or the account may not describe it
            if topic_id.get_most_significant_bits() or topic_id.get_least_significant_bits():
                found[name] = str(topic_id)
        return found

    def assign(self, starts: dict[Place, int]) -> None:
        """Reads these partitions, from the given offsets on."""
        with self._explained("The partitions cannot be assigned"):
            self._consumer.assign(
                [self._library.TopicPartition(*place, offset) for place, offset in starts.items()]
            )

    def add(self, starts: dict[Place, int]) -> None:
        """Reads these partitions, too."""
        with self._explained("The partitions cannot be assigned"):
            self._consumer.incremental_assign(
                [self._library.TopicPartition(*place, offset) for place, offset in starts.items()]
            )

    def take(self, wait_s: float) -> Batch:
        """What has come, grouped by partition. Waits for the first message, at most `wait_s`."""
        first = self._consumer.poll(wait_s)
        found = [] if first is None else [first]
        if found:
            with self._explained("Messages cannot be read"):
                found += self._consumer.consume(BATCH_MESSAGES - 1, timeout=0)
        elif self._failure is not None:
            failure, self._failure = self._failure, None
            raise self._error(failure, "Messages cannot be read")
        self._failure = None
        batch = Batch([], {})
        for one in found:
            if one.error() is None:
                kind, milliseconds = one.timestamp()
                moment = 0 if kind == self._library.TIMESTAMP_NOT_AVAILABLE else milliseconds
                batch.messages.append(
                    (one.topic(), one.partition(), one.offset(), moment, one.key(), one.value())
                )
            elif one.error().code() == self._library.KafkaError._PARTITION_EOF:
                batch.ends[(one.topic(), one.partition())] = one.offset()
            else:
                what = "Messages" if one.topic() is None else f"{one.topic()}[{one.partition()}]"
                raise self._error(one.error(), f"{what} cannot be read")
        batch.messages.sort(key=lambda one: (one[0], one[1]))  # stable: the order of a partition stays
        return batch

    def settings(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """The settings of topics. Topics whose settings the account may not read are left out."""
        kinds = self._administration
        asked = [kinds.ConfigResource(kinds.ResourceType.TOPIC, name) for name in names]
        if not asked:
            return {}
        found = {}
        for resource, future in self._admin.describe_configs(asked, request_timeout=self._timeout).items():
            try:
                entries = future.result()
            except self._library.KafkaException:
                continue
            found[resource.name] = {name: entry.value for name, entry in entries.items()}
        return found

    def close(self) -> None:
        self._consumer.close()
