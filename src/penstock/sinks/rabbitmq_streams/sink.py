"""Writes epochs as messages into streams of RabbitMQ.

**Why each message comes once.** The server drops a message whose id is not greater than that of the last one
that the same publisher has given to its stream, and says which that was. The id (`records.id_of`) has how
many messages of the epoch its stream has then. An epoch has the same messages, in the same order for each
table, whenever it is written. So after an error whose outcome is unknown, or in a new driver, the sink asks
each stream for its last id and goes on behind it. What is still on its way from before is the same message
with the same id.

The commit is a message in a stream of the pipeline's own (`records.Written`). The id also has the number of
that record, so an id of an earlier epoch is never taken for one of this.

If a table is left out in the middle of an epoch, streams that it shares have other messages from there on.
This is recorded before they are written, with the counts so far, and a new driver leaves out the same tables.

**Two drivers.** A driver begins with a record. Records have numbers, and of two with the same number, the
server drops the second one. Every driver reads the records as they come. So a driver whose record is not
there, or that reads that of another run, was replaced. It cannot write a commit any more. Before each epoch,
a driver asks for the number of the newest record. So if it was replaced before the epoch, it sends nothing.
Messages of an epoch that it was sending at that moment may still arrive. They are those that the other driver
sends, so they do no harm, unless the two had different states.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from penstock.errors import ConfigError, TableError, TransientError, rebuilt
from penstock.model.schema import TableId, TableSchema
from penstock.printable import argument
from penstock.sinks.base import Commit, EncodedBatch, LogMessage, Missing, Ours, Subject, TargetState
from penstock.sinks.messages import Messages, another_driver, counter, each_message
from penstock.sinks.rabbitmq_streams import wire
from penstock.sinks.rabbitmq_streams.connection import (
    Confirmed,
    Delivered,
    Event,
    Failed,
    StreamConnection,
)
from penstock.sinks.rabbitmq_streams.faults import explained, in_words, too_large
from penstock.sinks.rabbitmq_streams.lanes import Lane, Lanes
from penstock.sinks.rabbitmq_streams.options import RabbitMqStreamsOptions
from penstock.sinks.rabbitmq_streams.records import Written, count_of, id_of
from penstock.sinks.rabbitmq_streams.server import connected
from penstock.sinks.refusals import at, check_pipeline, is_recorded
from penstock.sinks.schema_registry import BINARY_FORMATS

_RECORDS, _REFERENCE = 0, "penstock"
"""Number of the publisher of records, and its name there."""
_RECORDS_ARGUMENTS = {"max-length-bytes": "20000000", "stream-max-segment-size-bytes": "1000000"}
_FRAME_BYTES = 64
"""Bytes of a frame besides its message."""
_BEGINS_MAX = 10
"""How often another driver may begin at the same time, before it is tried again later."""
_NAME_BYTES_MAX = 255
"""RabbitMQ's limit for the name of a queue, which a stream is."""


class RabbitMqStreamsSink(Messages):
    """The sink of one pipeline, whose uuid is `pipeline`. One thread writes."""

    def __init__(self, options: RabbitMqStreamsOptions, pipeline: str) -> None:
        super().__init__(options, pipeline)
        self._options = options
        self._servers = ", ".join(options.url)
        self._run = secrets.token_urlsafe(8)
        self._own = f"penstock-{pipeline}"
        self._connection: StreamConnection | None = None
        self._lanes: Lanes | None = None
        self._began = False
        self._newest = Written()
        """The newest record that was delivered. `_written`: the newest of this run."""
        self._written = Written()
        self._told: tuple[tuple[int, int], set[str]] = ((0, 0), set())
        """An epoch and step, and the tables for which an error was raised there."""

    # Sink

    def check(self) -> None:
        try:
            with explained(f"The servers {self._servers} cannot be used"):
                self._connected()
        except TransientError as error:
            raise ConfigError(
                error.message,
                hint="Start it, with its plug-in (`rabbitmq-plugins enable rabbitmq_stream`), or correct "
                "`sink.url`.",
            ) from None

    def open(self, table: TableId) -> TargetState:
        self._ready()
        commit = self._written.commit(self._pipeline)
        return Missing() if commit is None else Ours(commit, (), empty=False)

    def close(self) -> None:
        self._drop()

    # Fencing

    def begin(self, generation: int) -> None:
        self._generation = generation
        self._began = False
        self._drop()
        self._ready()

    # LogSink

    def topic_of(self, table: TableId | None) -> str:
        return self._options.place_of(table)

    def write_epoch(
        self,
        commit: Commit,
        tables: Sequence[TableSchema],
        messages: Iterable[Sequence[LogMessage] | EncodedBatch],
        note: str = "",
    ) -> str | None:
        check_pipeline(commit, self._pipeline)
        lanes = self._ready()
        if is_recorded(commit, self._written.commit(self._pipeline)):
            return self._written.note
        if self._told[0] != commit.place:
            self._told = (commit.place, set())
        self._tell_left_out()
        try:
            with explained(at(f"Epoch {commit.epoch} was not written", self._servers)):
                self._check_newest()
                lanes.begin(self._written.bases)
                self._publish(lanes, messages)
                number = self._written.number + 1
                self._append(
                    replace(
                        self._written, epoch=commit.epoch, step=commit.step, note=note, number=number,
                        committed=number, layout=number, left_out=(), counts={}, bases={},
                    )
                )  # fmt: skip
                lanes.committed()
        except TableError:
            raise
        except BaseException:
            self._drop()
            raise
        return None

    def _publish(self, lanes: Lanes, messages: Iterable[Sequence[LogMessage] | EncodedBatch]) -> None:
        numbers: Counter[str] = Counter()
        known: dict[Subject, tuple[str, str, int]] = {}
        text_keys = self._options.format not in BINARY_FORMATS
        layout, limit = self._written.layout, self._limit()
        try:
            for subject, key, value in each_message(messages):
                if (found := known.get(subject)) is None:
                    about = counter(subject)
                    found = self._place(subject), about, self._written.counts.get(about, 0)
                    known[subject] = found
                stream, about, before = found
                numbers[about] += 1
                if numbers[about] <= before:
                    continue
                lane = self._lane(lanes, stream, subject)
                lane.count += 1
                if lane.count <= lane.written:
                    continue
                data = wire.message(value or b"", key.decode() if key is not None and text_keys else key)
                if len(data) > limit:
                    lane.count -= 1
                    raise self._too_large(subject, len(data), limit)
                lanes.add(lane, id_of(layout, lane.count), data)
            lanes.finish()
        except TableError as error:
            self._leave_out(lanes, error, numbers)
            raise

    def _leave_out(self, lanes: Lanes, error: TableError, numbers: Counter[str]) -> None:
        """Records that a table is left out from here on."""
        lanes.finish()
        table = str(error.details.get("table", ""))
        if not table:
            return
        counts = dict(self._written.counts)
        for about, number in numbers.items():
            counts[about] = max(counts.get(about, 0), number)
        bases = {**self._written.bases, **lanes.written()}
        self._told[1].add(table)
        number = self._written.number + 1
        self._append(
            replace(
                self._written, number=number, layout=number, counts=counts, bases=bases,
                left_out=(*self._written.left_out, error.to_json()),
            )
        )  # fmt: skip

    def _tell_left_out(self) -> None:
        """Raises the error of a table that an earlier driver has left out of this epoch."""
        for fields in self._written.left_out:
            if fields["table"] not in self._told[1]:
                self._told[1].add(fields["table"])
                raise rebuilt(fields, {"TableError": TableError}, unknown=TableError)

    # streams ------------------------------------------------------------------------------------------------

    def _place(self, subject: Subject) -> str:
        stream = self._options.place_of(subject)
        if len(stream.encode("utf-8", "surrogatepass")) > _NAME_BYTES_MAX and isinstance(subject, TableId):
            raise TableError(
                f"The name of the stream of {subject} has more than {_NAME_BYTES_MAX} bytes, the limit.",
                hint=f"Shorten `sink.stream`, then run `penstock unpark FILE {argument(subject)}`.",
                table=str(subject),
            )
        return stream

    def _lane(self, lanes: Lanes, stream: str, subject: Subject) -> Lane:
        try:
            return lanes[stream]
        except Failed as error:
            if error.code not in (wire.NO_STREAM, wire.PRECONDITION_FAILED, wire.ACCESS_REFUSED):
                raise
            if not isinstance(subject, TableId):
                raise
            raise TableError(
                f"{in_words(error)}.",
                hint="Create it, remove what has its name, or correct `sink.stream`. Then run "
                f"`penstock unpark FILE {argument(subject)}`.",
                table=str(subject),
            ) from None

    def _opened(self, stream: str, number: int) -> Lane:
        connection = self._connected()
        if not connection.exists(stream):
            if not self._options.create_streams:
                raise Failed(wire.NO_STREAM, f"Publishing into {stream}")
            connection.create(stream, self._options.arguments)
        reference = f"penstock-{self._pipeline}"
        connection.declare_publisher(number, reference, stream)
        written = count_of(connection.last_id(reference, stream), self._written.committed)
        return Lane(stream, number, written, count=self._written.bases.get(stream, 0))

    def _limit(self) -> int:
        return self._connected().frame_bytes_max - _FRAME_BYTES

    @staticmethod
    def _too_large(subject: Subject, size: int, limit: int) -> Exception:
        if isinstance(subject, TableId):
            return too_large(subject, size, limit)
        return ConfigError(
            f"A message about {subject or 'transactions'} has {size} bytes; the server takes {limit}.",
            hint="Raise `stream.frame_max` of the server.",
        )

    # what is written ----------------------------------------------------------------------------------------

    def _ready(self) -> Lanes:
        """Returns the streams over a connection. If it is new, finds out first what is written."""
        if self._connection is not None and self._lanes is not None:
            if self._connection.is_alive(self._own):
                return self._lanes
            self._drop()
        try:
            with explained(at("The pipeline cannot begin to write", self._servers)):
                connection = self._connected()
                if not connection.exists(self._own):
                    connection.create(self._own, _RECORDS_ARGUMENTS)
                connection.declare_publisher(_RECORDS, _REFERENCE, self._own)
                self._lanes = Lanes(connection, self._opened, self._wait, self._look)
                self._read_own(connection)
                if not self._began:
                    self._begin()
                elif self._newest.run != self._run:
                    raise another_driver(self._own)
                else:
                    self._written = self._newest
        except BaseException:
            self._drop()
            raise
        self._began = True
        return self._lanes

    def _connected(self) -> StreamConnection:
        if self._connection is None:
            self._connection = connected(self._options)
        return self._connection

    def _drop(self) -> None:
        connection, self._connection, self._lanes = self._connection, None, None
        if connection is not None:
            connection.close()

    def _read_own(self, connection: StreamConnection) -> None:
        """Reads the newest record, and subscribes to the ones that follow."""
        self._newest = Written()
        last = connection.last_id(_REFERENCE, self._own)
        if last < self._written.number:
            raise ConfigError(
                f"The server {self._options.url[0]} has lost what this pipeline has written, or a part of "
                f"it. Its stream {self._own} is not what it was.",
                hint="Restore it, or begin again with a new `state`.",
            )
        connection.subscribe(_RECORDS, self._own)
        while self._newest.number < last:
            self._wait()

    def _begin(self) -> None:
        for _ in range(_BEGINS_MAX):
            before = self._newest
            if before.generation > self._generation:
                raise another_driver(self._own)
            own = replace(before, run=self._run, generation=self._generation, number=before.number + 1)
            self._publish_record(own)
            if self._newest.run == self._run:
                self._written = self._newest
                return
        raise TransientError("Another driver begins at the same time.", hint="It is tried again.")

    def _append(self, record: Written) -> None:
        """Appends a record. Raises `DriverReplaced` if another driver has written one meanwhile."""
        self._publish_record(record)
        if self._newest.run != self._run:
            raise another_driver(self._own)
        self._written = record

    def _publish_record(self, record: Written) -> None:
        """Returns when a record with this number is there, ours or another."""
        self._connected().publish(_RECORDS, [(record.number, record.to_message())])
        while self._newest.number < record.number:
            self._wait()

    def _wait(self) -> None:
        self._take(self._connected().event())

    def _look(self) -> None:
        """Raises `DriverReplaced` if another driver has begun."""
        connection = self._connected()
        while connection.has_event():
            self._take(connection.event())
        if self._newest.run != self._run:
            raise another_driver(self._own)

    def _check_newest(self) -> None:
        """Raises `DriverReplaced` if another driver has begun, also if its record has not arrived here."""
        last = self._connected().last_id(_REFERENCE, self._own)
        while self._newest.number < last:
            self._wait()
        self._look()

    def _take(self, event: Event) -> None:
        if isinstance(event, Confirmed):
            if self._lanes is not None:
                self._lanes.confirmed(event)
        elif isinstance(event, Delivered):
            for message in event.messages:
                record = Written.parse(message, self._own)
                if record.number > self._newest.number:
                    self._newest = record
        else:
            raise Failed(event.code, "A message was not taken")
