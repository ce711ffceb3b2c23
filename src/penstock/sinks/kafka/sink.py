"""Writes epochs to Kafka, each in one transaction with its commit.

**Why each message comes exactly once.** All messages of an epoch, and the record of its commit
(`commits.py`), are in one transaction. A producer begins with `init_transactions`: the broker ends whatever
an earlier producer of this pipeline had begun, as committed or as aborted, and refuses that producer from now
on. Only then is the newest commit read. So it says what is written, and nobody else can write any more. An
epoch that is recorded is skipped; one that is not recorded left nothing that consumers see.

After any error whose outcome is unknown, the producer is thrown away, and the next attempt begins like this.

**Two drivers.** A driver that was suspended may go on after another one has taken over. Its transaction is
refused. It then gets a new producer, which refuses that of the other one; but before it writes, it reads who
wrote the newest record: another run, of its own generation or a later one. So it ends (`DriverReplaced`). The
other one is refused once, gets a new producer, finds its own record, and goes on.

With `delivery: at_least_once` there are no transactions. The commit is written when all messages are
acknowledged.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from penstock.errors import ConfigError, PenstockError, TransientError
from penstock.model.schema import TableId, TableSchema
from penstock.sinks.base import (
    DEFINITIONS,
    Commit,
    EncodedBatch,
    LogMessage,
    Missing,
    Ours,
    Route,
    Subject,
    TargetState,
)
from penstock.sinks.kafka.client import RECORD_BYTES, Producer
from penstock.sinks.kafka.commits import NOTHING, PARTITION, Written, last_written
from penstock.sinks.kafka.faults import FENCED, explained, kafka_error, of_table, too_large
from penstock.sinks.kafka.options import KafkaOptions
from penstock.sinks.kafka.topics import OVERHEAD_BYTES, Topic, Topics
from penstock.sinks.messages import Messages, another_driver
from penstock.sinks.refusals import at, check_pipeline, is_recorded

if TYPE_CHECKING:
    from penstock._core import MessageTarget

log = logging.getLogger(__name__)

QUEUE_MESSAGES = 500_000
"""Messages that the client holds while brokers have not acknowledged them. Then the epoch waits."""
LOOK_SECONDS = 0.2
"""Seconds between two checks whether brokers still acknowledge messages."""
FLUSH_SECONDS = 0.001
"""Pause between two looks at the client while an epoch ends. By itself it looks every 10 ms whether brokers
have acknowledged everything, because only errors are reported."""
SHORT_SECONDS = 0.2
"""How long an epoch is checked so often. A small one has ended by then."""
ROOM_SECONDS = 0.01
"""Pause while the client's queue is full."""
QUEUE_KIB = 128 * 1024
"""KiB of messages that brokers have not acknowledged. At this limit the epoch waits."""


class KafkaSink(Messages):
    """The sink of one pipeline, whose uuid is `pipeline`. One thread writes."""

    def __init__(self, options: KafkaOptions, pipeline: str) -> None:
        super().__init__(options, pipeline)
        self._options = options
        self._seconds = options.request_timeout / 1000
        self._commits = options.commits_topic.replace("{pipeline}", pipeline)
        self._run = uuid.uuid4().hex
        self._began = False
        self._producer: Producer | None = None
        self._last: Written = NOTHING
        self._failed: tuple[KafkaError, str] | None = None
        self._guard = threading.Lock()
        self._settings = self._client_settings()
        try:
            self._topics = Topics(options, self._settings)
        except KafkaException as error:
            raise explained(kafka_error(error), "A setting of the client is refused") from error
        self._others: tuple[Subject, ...] = ()
        if "provide_transaction_metadata" in self.format_options:
            self._others = (None,)
        if options.definitions_apart:
            self._others = (*self._others, DEFINITIONS)
        self._batch_bytes = self._topics.batch_bytes_max

    # Sink

    def check(self) -> None:
        try:
            self._topics.check()
        except KafkaException as error:
            fault = explained(kafka_error(error), f"No broker answers at {self._options.bootstrap}")
            hint = fault.hint if isinstance(fault, ConfigError) else "Check `sink.bootstrap`."
            raise ConfigError(fault.message, hint=hint) from error

    def open(self, table: TableId) -> TargetState:
        self._ready()
        commit = self._last.commit(self._pipeline)
        return Missing() if commit is None else Ours(commit, (), empty=False)

    def create(self, schema: TableSchema, arrow: pa.Schema) -> None:
        self._topics.prepare([schema])

    def close(self) -> None:
        self._drop(abort=True)

    # Fencing

    def begin(self, generation: int) -> None:
        self._generation = generation
        self._ready()

    def fence(self, table: TableId) -> None:
        """`begin` has done it: one producer writes all topics."""

    # LogSink

    def write_epoch(
        self,
        commit: Commit,
        tables: Sequence[TableSchema],
        messages: Iterable[Sequence[LogMessage] | EncodedBatch],
        note: str = "",
    ) -> str | None:
        check_pipeline(commit, self._pipeline)
        producer = self._ready()
        if is_recorded(commit, self._last.commit(self._pipeline)):
            return self._last.note
        what = f"Epoch {commit.epoch} was not written"
        written = Written(commit.epoch, commit.step, self._generation, self._run, note)
        try:
            self._topics.prepare(tables, self._others)
            producer = self._with_smaller_batches(producer)
            self._failed = None
            if self._transactional:
                producer.begin_transaction()
            for batch in messages:
                if isinstance(batch, EncodedBatch):
                    self._produce_encoded(producer, batch)
                else:
                    self._produce(producer, batch)
            self._end(producer, written)
        except KafkaException as error:
            self._drop(abort=False)
            fault = self._fault(kafka_error(error), what)
            self._topics.forget()  # somebody may have removed a topic, or made it again
            raise fault from error
        except BaseException:
            self._drop(abort=True)
            raise
        self._last = written
        return None

    def topic_of(self, table: TableId | None) -> str:
        return self._options.topic_of(table)

    def route_of(self, table: TableId) -> Route | None:
        return self._topics.of(table).route

    # the producer -------------------------------------------------------------------------------------------

    @property
    def _transactional(self) -> bool:
        return self._options.delivery == "exactly_once"

    def _ready(self) -> Producer:
        """Returns the producer. If it is new, first ends the transaction that an earlier one had begun, and
        finds out what is written."""
        with self._guard:  # targets are opened side by side
            if self._producer is None:
                self._producer = self._begun()
            return self._producer

    def _begun(self) -> Producer:
        what = "The pipeline cannot begin to write"
        self._log_in_again()
        producer: Producer | None = None
        try:
            self._topics.prepare_commits(self._commits)
            producer = Producer(self._producer_settings(), self._reported, self._seconds)
            if self._transactional:
                producer.init_transactions(self._seconds)
            self._last = last_written(self._settings, self._commits, self._pipeline, seconds=self._seconds)
            self._refuse_replaced()
            if not self._began:
                if self._transactional:
                    producer.begin_transaction()
                self._last = replace(self._last, generation=self._generation, run=self._run)
                self._end(producer, self._last)
        except BaseException as error:
            if producer is not None:
                producer.close()
            if isinstance(error, KafkaException):
                raise self._fault(kafka_error(error), what) from error
            raise
        self._began = True
        return producer

    def _client_settings(self) -> dict[str, str]:
        # What is said of a broker that is away is said by the error of an attempt.
        return {"log_level": "2", **self._options.client_settings()}

    def _log_in_again(self) -> None:
        """Takes over passwords that were changed: a client of librdkafka keeps those that it was made
        with."""
        if (settings := self._client_settings()) != self._settings:
            self._settings = settings
            self._topics.use(settings)

    def _with_smaller_batches(self, producer: Producer) -> Producer:
        """Another producer, if a topic does not take batches as large as this one makes."""
        if self._batch_bytes <= self._topics.batch_bytes_max:
            return producer
        self._batch_bytes = self._topics.batch_bytes_max
        self._drop(abort=False)
        return self._ready()

    def _producer_settings(self) -> dict[str, Any]:
        options = self._options
        settings: dict[str, Any] = {
            "compression.type": "lz4",
            "linger.ms": 2,
            # A broker that still ends a transaction refuses the next one, for some milliseconds.
            "retry.backoff.ms": 5,
            "retry.backoff.max.ms": 100,
            "batch.size": self._batch_bytes,
            **self._settings,
            "enable.idempotence": True,
            "message.max.bytes": max(options.message_bytes_max, self._batch_bytes) + OVERHEAD_BYTES,
            "queue.buffering.max.messages": QUEUE_MESSAGES,
            "queue.buffering.max.kbytes": QUEUE_KIB,
            "delivery.timeout.ms": options.transaction_timeout,
            "delivery.report.only.error": True,
        }
        if self._transactional:
            settings["transactional.id"] = f"penstock-{self._pipeline}"
            settings["transaction.timeout.ms"] = options.transaction_timeout
        return settings

    def _refuse_replaced(self) -> None:
        last = self._last
        replaced = last.generation > self._generation
        if self._began and last.run != self._run:
            replaced = True
        if replaced:
            raise another_driver(self._commits)

    def _produce(self, producer: Producer, batch: Sequence[LogMessage]) -> None:
        topic: Topic | None = None
        last: Subject = None
        for subject, key, value, _ in batch:
            if topic is None or subject is not last:
                topic, last = self._topics.of(subject), subject
            size = len(key or b"") + len(value or b"")
            if size > topic.bytes_max and isinstance(subject, TableId):
                raise too_large(subject, topic.name, size)
            while True:
                try:
                    producer.produce(topic.name, value, key, topic.partition(key))
                    break
                except BufferError:
                    self._wait_below(producer, len(producer))
        producer.poll(0)
        self._raise_failed()

    def _produce_encoded(self, producer: Producer, batch: EncodedBatch) -> None:
        topics: dict[str, int] = {}

        def target(subject: Subject) -> MessageTarget:
            topic = self._topics.of(subject)
            number = topics.setdefault(topic.name, len(topics))
            first = batch.starts.get(subject, 0) if isinstance(subject, TableId) else 0
            return number, topic.partitions, topic.keyed, topic.keyless, topic.bytes_max, first

        targets: list[MessageTarget | None] = [target(table) for table in batch.tables]
        arrays, large = batch.encoded.records(targets, target(None) if None in self._others else None)
        if large is not None:
            table = batch.tables[large[0]]
            raise too_large(table, self._topics.of(table).name, large[1])
        names = list(topics)
        for number, records in arrays:
            first, count = 0, len(records) // RECORD_BYTES
            while (first := producer.produce_array(names[number], records, first)) < count:
                self._wait_below(producer, len(producer))
        producer.poll(0)
        self._raise_failed()

    def _end(self, producer: Producer, written: Written) -> None:
        """Commits the epoch's messages, together with the record of the commit."""
        if not self._transactional:
            self._wait_below(producer, 1)
        producer.produce(self._commits, written.to_json(), self._pipeline.encode(), PARTITION)
        self._wait_below(producer, 1)
        if self._transactional:
            producer.commit_transaction(self._seconds)
        self._raise_failed()

    def _wait_below(self, producer: Producer, count: int) -> None:
        """Waits until brokers have acknowledged all but fewer than `count` messages. A large epoch may take
        long, but something of it must be acknowledged within `request_timeout`."""
        left, began = len(producer), time.monotonic()
        since = began
        while left >= count:
            if count == 1:
                is_short = time.monotonic() - began < SHORT_SECONDS
                producer.flush(FLUSH_SECONDS if is_short else LOOK_SECONDS)
            else:
                producer.poll(ROOM_SECONDS)
            self._raise_failed()
            now = len(producer)
            if now < left:
                left, since = now, time.monotonic()
            elif time.monotonic() - since > self._seconds:
                raise TransientError(
                    f"Brokers of {self._options.bootstrap} have acknowledged none of {left} messages for "
                    f"{self._seconds:.0f} s.",
                    hint="It is tried again until brokers answer.",
                )

    def _reported(self, error: KafkaError, topic: str) -> None:
        """Called for messages that were not delivered."""
        if self._failed is None or self._failed[0].code() == KafkaError._PURGE_QUEUE:
            self._failed = (error, topic)

    def _raise_failed(self) -> None:
        if self._failed is not None:
            raise KafkaException(self._failed[0])

    def _fault(self, error: KafkaError, what: str) -> PenstockError:
        failed, self._failed = self._failed, None
        if failed is not None and failed[1] != self._commits:
            error, topic = failed
            table = self._topics.table_of(topic)
            if table is not None and error.code() not in FENCED:
                return of_table(error, table, topic, self._options.bootstrap)
        if error.code() in FENCED:
            return TransientError(
                f"{at(what, self._options.bootstrap)}: {error.str()}.",
                hint="Another producer of this pipeline has begun, or the epoch took longer than "
                "`sink.transaction_timeout`. What is written is looked up, and it is tried again.",
            )
        return explained(error, at(what, self._options.bootstrap))

    def _drop(self, *, abort: bool) -> None:
        """Discards the producer. `abort`: aborts its transaction at the broker, so that consumers need not
        wait for it."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            producer.purge()
            if abort and self._transactional:
                producer.abort_transaction(min(self._seconds, 10))
        except KafkaException as error:  # the next producer ends the transaction
            log.info("a transaction was not aborted: %s", kafka_error(error).str())
        finally:
            producer.close()
