"""Writes epochs as messages into a stream of NATS JetStream.

**Why each message comes once.** A message is taken only if it directly follows the one that was sent before
it (`window.py`), and its id says which epoch it belongs to and its number among the epoch's messages about
its table (`records.Mark`). An epoch has the same messages, in the same order for each table, whenever it is
written. So after an error whose outcome is unknown, the driver reads the ids from the last place that it
knows on, and goes on behind what is there. Nothing that is still on its way from before can come in between
unnoticed: it would be the same message, or it is refused.

When all messages of an epoch are in the stream, the commit is written as a value in a key-value bucket, with
the stream's sequence. A driver that begins reads it, and the headers behind that sequence.

A table that is left out in the middle of an epoch has a part of its messages in the stream. When it continues
later, these come again.

**Two drivers.** A driver begins with a message of its own, so whatever an earlier one has sent, or sends
later, no longer follows the newest message. Then it writes its run into the bucket, at the revision that it
has read. An earlier driver that is refused reads there that it was replaced. The message is removed from the
stream.

**Other publishers.** If somebody else publishes into the stream, the next messages are refused. The driver
looks at what came in between, and sends them again.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import sha256

from penstock.errors import ConfigError, TableError, TransientError
from penstock.model.schema import TableId, TableSchema
from penstock.printable import argument
from penstock.sinks.base import Commit, EncodedBatch, LogMessage, Missing, Ours, Subject, TargetState
from penstock.sinks.messages import Messages, another_driver, counter, each_message
from penstock.sinks.nats import stream as streams
from penstock.sinks.nats.faults import explained, forgotten, lost, too_large
from penstock.sinks.nats.jetstream import SINGLY_MAX, WRONG_SEQUENCE, ApiError, JetStream
from penstock.sinks.nats.options import NatsOptions
from penstock.sinks.nats.records import Mark, Written
from penstock.sinks.nats.server import connected
from penstock.sinks.nats.subjects import is_covered
from penstock.sinks.nats.window import Outgoing, Window
from penstock.sinks.refusals import at, check_pipeline, is_recorded
from penstock.sinks.schema_registry import BINARY_FORMATS

ID, KEY, KEY_BASE64 = "Nats-Msg-Id", "Key", "Key-Base64"
_IDS_BYTES = 200
"""Bytes that `window.py` adds to a message's headers."""
_BEGINS_MAX = 10
"""How often another driver may begin at the same time, before it is tried again later."""
_DIGEST_BYTES = 6
"""Among 10,000 tables, two share a digest with a probability of 2 in 10 million."""
_NO_HEADER = re.compile(rb"[^\x20-\x7e]")


class NatsSink(Messages):
    """The sink of one pipeline, whose uuid is `pipeline`. One thread writes."""

    def __init__(self, options: NatsOptions, pipeline: str) -> None:
        super().__init__(options, pipeline)
        self._options = options
        self._servers = ", ".join(options.url)
        self._run = secrets.token_urlsafe(8)
        self._own = f"$KV.{options.control}.{pipeline}"
        self._jetstream: JetStream | None = None
        self._began = False
        self._written = Written()
        self._revision = 0
        self._last = 0
        """The newest sequence in the stream that was counted. `_counts`: the number of messages up to it that
        belong to the epoch and step `_begun`."""
        self._newest: bytes | None = None
        """The id of the stream's newest message, if this driver has sent it over the present connection."""
        self._counts: dict[str, int] = {}
        self._begun = (0, 0)
        self._patterns: tuple[str, ...] = ()
        self._bytes_max = 0

    # Sink

    def check(self) -> None:
        try:
            with explained(f"The servers {self._servers} cannot be used"):
                found = self._connected().stream(self._options.stream_name)
        except TransientError as error:
            raise ConfigError(error.message, hint="Start it, or correct `sink.url`.") from None
        if found is not None:
            streams.check(self._options, found["config"])
        elif not self._options.create_stream:
            raise ConfigError(
                f"There is no stream {self._options.stream_name}.",
                hint="Create it, correct `sink.stream`, or let it be created (`sink.create_stream`).",
            )

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
        self._ready()
        if is_recorded(commit, self._written.commit(self._pipeline)):
            return self._written.note
        for schema in tables:
            self._check_subject(schema.table)
        try:
            with explained(at(f"Epoch {commit.epoch} was not written", self._servers)):
                self._publish(commit, messages)
                return self._commit(replace(self._written, epoch=commit.epoch, step=commit.step, note=note))
        except TableError:
            raise
        except BaseException:
            self._drop()
            raise

    def _publish(self, commit: Commit, messages: Iterable[Sequence[LogMessage] | EncodedBatch]) -> None:
        if self._begun != commit.place:
            self._begun, self._counts = commit.place, {}
        window = Window(self._ready().connection, self._last, self._newest, self._counts, self._look)
        numbers: Counter[Subject] = Counter()
        known: dict[Subject, tuple[bytes, bytes, str]] = {}
        binary = self._options.format in BINARY_FORMATS
        try:
            for subject, key, value in each_message(messages):
                numbers[subject] += 1
                number = numbers[subject]
                if (found := known.get(subject)) is None:
                    found = known[subject] = self._constants(commit, subject)
                place, mark, about = found
                if number <= self._counts.get(about, 0):
                    continue
                headers = b"" if key is None else _key_header(key, binary)
                payload = value or b""
                if (size := len(payload) + len(headers) + _IDS_BYTES) > self._bytes_max:
                    self._refuse_large(subject, size)
                window.add(Outgoing(place, b"%b%d" % (mark, number), headers, payload, about, number))
            window.finish()
        except TableError:
            window.finish()  # what is on its way is counted
            raise
        finally:
            self._last, self._newest = window.last, window.newest

    def _constants(self, commit: Commit, subject: Subject) -> tuple[bytes, bytes, str]:
        """The subject of NATS, the begin of the id, and the digest of what a message is about."""
        digest = sha256(counter(subject).encode("utf-8", "surrogatepass")).digest()
        about = base64.urlsafe_b64encode(digest[:_DIGEST_BYTES]).decode()
        mark = str(Mark(self._run, commit.epoch, commit.step, about, 0)).removesuffix("0")
        return self._options.place_of(subject).encode(), mark.encode(), about

    def _commit(self, written: Written) -> str | None:
        written = replace(written, sequence=self._last, begun=(0, 0), counts={})
        try:
            self._revision = self._ready().put(self._own, written.to_json(), after=self._revision)
        except ApiError as error:
            if error.code != WRONG_SEQUENCE:
                raise
            self._read_own()
            raise TransientError("Somebody else has written the commit.", hint="It is tried again.") from None
        self._written = written
        return None

    def _check_subject(self, table: TableId) -> None:
        subject = self._options.place_of(table)
        if not is_covered(subject, self._patterns):
            raise TableError(
                f"The stream {self._options.stream_name} does not take the subject {subject} of {table}.",
                hint=f"Add it to the stream's subjects (`nats stream edit {self._options.stream_name}`), or "
                f"correct `sink.subject`. Then run `penstock unpark FILE {argument(table)}`.",
                table=str(table),
            )

    def _refuse_large(self, subject: Subject, size: int) -> None:
        if isinstance(subject, TableId):
            raise too_large(subject, size, self._bytes_max)
        raise ConfigError(
            f"A message about {subject or 'a transaction'} has {size} bytes, but the server takes at most "
            f"{self._bytes_max}.",
            hint="Raise `max_payload` of the server.",
        )

    # what is written ----------------------------------------------------------------------------------------

    def _ready(self) -> JetStream:
        """Returns the connection. If it is new, finds out first what the stream has."""
        if self._jetstream is not None and not self._jetstream.connection.is_alive():
            self._drop()
        if self._jetstream is not None and self._began:
            return self._jetstream
        try:
            with explained(at("The pipeline cannot begin to write", self._servers)):
                jetstream = self._connected()
                self._prepare(jetstream)
                if self._began:
                    self._read_own()
                    self._last = self._look(self._last)
                else:
                    self._begin(jetstream)
        except BaseException:
            self._drop()
            raise
        self._began = True
        return jetstream

    def _connected(self) -> JetStream:
        if self._jetstream is None:
            self._jetstream = JetStream(connected(self._options), self._options.domain)
        return self._jetstream

    def _drop(self) -> None:
        jetstream, self._jetstream = self._jetstream, None
        self._newest = None
        if jetstream is not None:
            jetstream.connection.close()

    def _prepare(self, jetstream: JetStream) -> None:
        """Creates the stream and the bucket if they are missing."""
        bucket = streams.bucket(self._options)
        if jetstream.stream(bucket["name"]) is None:
            if self._began:
                raise forgotten(self._options.url[0], self._own)
            jetstream.create(bucket)
        found = jetstream.stream(self._options.stream_name)
        if found is None:
            if self._began or not self._options.create_stream:
                raise lost(self._options.url[0], self._options.stream_name)
            jetstream.create(streams.wanted(self._options))
            found = jetstream.stream(self._options.stream_name)
        config = (found or {})["config"]
        streams.check(self._options, config)
        self._patterns = tuple(config.get("subjects", ()))
        limit = int(config.get("max_msg_size", -1))
        self._bytes_max = min(jetstream.connection.payload_bytes_max, limit if limit > 0 else 2**31)

    def _begin(self, jetstream: JetStream) -> None:
        for _ in range(_BEGINS_MAX):
            before = self._read(jetstream)
            if before.generation > self._generation:
                raise another_driver(self._own)
            fence = jetstream.publish(self._options.fence_place, {ID: f"{self._run}/begin"})
            if fence <= before.sequence:
                raise lost(self._options.url[0], self._options.stream_name)
            counts, begun = dict(before.counts), before.begun
            if before.run:
                missed = jetstream.headers(self._options.stream_name, before.sequence + 1, fence - 1)
                begun = _counted(missed, before, counts)
            own = replace(
                before, run=self._run, generation=self._generation, sequence=fence, begun=begun, counts=counts
            )
            try:
                self._revision = jetstream.put(self._own, own.to_json(), after=self._revision)
            except ApiError as error:
                if error.code != WRONG_SEQUENCE:
                    raise
                continue  # another driver has begun meanwhile
            jetstream.remove(self._options.stream_name, fence)
            self._written, self._last, self._begun, self._counts = own, fence, begun, counts
            return
        raise TransientError("Another driver begins at the same time.", hint="It is tried again.")

    def _read(self, jetstream: JetStream) -> Written:
        found = jetstream.newest(streams.bucket_stream(self._options), self._own)
        self._revision, value = found or (0, b"")
        return Written.parse(value, self._own) if found else Written()

    def _read_own(self) -> None:
        """Reads the pipeline's own key. Raises `DriverReplaced` if another driver has begun, and
        `ConfigError` if the key is gone."""
        written = self._read(self._connected())
        if not written.run:
            raise forgotten(self._options.url[0], self._own)
        if written.run != self._run:
            raise another_driver(self._own)
        self._written = written

    def _look(self, known: int) -> int:
        """Returns the newest sequence of the stream, and counts the messages after the sequence `known`.

        Others may have published while messages were counted. So the next message is asked for until there is
        none: then the answer is as new as it can be, and what is sent next is likely to follow it."""
        jetstream, stream = self._connected(), self._options.stream_name
        self._read_own()
        found = jetstream.stream(stream)
        last = -1 if found is None else int(found["state"]["last_seq"])
        if last < known:
            raise lost(self._options.url[0], stream)
        self._count(jetstream.headers(stream, known + 1, last))
        for _ in range(SINGLY_MAX):
            if (newer := jetstream.header(stream, last + 1)) is None:
                break
            self._count([newer])
            last += 1
        return last

    def _count(self, headers: Iterable[dict[str, str]]) -> None:
        self._begun = _counted(headers, replace(self._written, begun=self._begun), self._counts)


def _counted(headers: Iterable[dict[str, str]], written: Written, counts: dict[str, int]) -> tuple[int, int]:
    """Counts the messages with these headers that the run in `written` has written for an epoch and step that
    is not committed. Adds their numbers to `counts`, and returns that epoch and step."""
    begun = written.begun
    for one in headers:
        mark = Mark.parse(one.get(ID, ""))
        if mark is None or mark.run != written.run or (mark.epoch, mark.step) <= written.place:
            continue
        if (mark.epoch, mark.step) != begun:
            begun = (mark.epoch, mark.step)
            counts.clear()
        counts[mark.about] = mark.number
    return begun


def _key_header(key: bytes, binary: bool) -> bytes:
    """The header with a message's key. Headers are lines of text, so what is not ASCII is written with JSON's
    escapes, and a binary key as base64."""
    if binary:
        return b"%b: %b\r\n" % (KEY_BASE64.encode(), base64.b64encode(key))
    if _NO_HEADER.search(key):
        escaped = re.sub(r"[^\x20-\x7e]", lambda found: json.dumps(found[0])[1:-1], key.decode())
        key = escaped.encode()
    return b"%b: %b\r\n" % (KEY.encode(), key)
