"""Writes epochs as messages into streams of Redis or Valkey.

**Why each message comes once.** An epoch is many calls, each of which is atomic on the server
(`scripts.py`): it adds some messages, and records in the pipeline's own key how many of each table's messages
in this epoch are written. An epoch has the same messages, in the same order for each table, whenever it is
written. So if it is repeated after a crash, or after an error whose outcome is unknown, the server skips
those that it has. The last call records the commit. Readers see an epoch message by message, not as a whole.

A table that is left out in the middle of an epoch has a part of its messages in its stream. When it continues
later, these come again.

**Two drivers.** A driver that begins writes its run into the pipeline's own key. Each call has the driver's
run, and the server refuses that of one that was replaced.

**A server that forgets.** After a restart, the server may have lost the last second, or all. Each call names
the newest commit that the driver knows, and is refused if the server knows another one.
"""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import redis

from penstock.connections.answers import STRANGE
from penstock.errors import ConfigError, TableError
from penstock.model.schema import TableId, TableSchema
from penstock.printable import argument
from penstock.sinks.base import (
    Commit,
    EncodedBatch,
    LogMessage,
    Missing,
    Ours,
    Subject,
    TargetState,
)
from penstock.sinks.messages import Messages, another_driver, counter, each_message
from penstock.sinks.redis.faults import explained
from penstock.sinks.redis.server import check_server, client
from penstock.sinks.redis_streams import scripts
from penstock.sinks.redis_streams.options import RedisStreamsOptions
from penstock.sinks.refusals import at, check_pipeline, is_recorded

MESSAGES_MAX = 500
"""Messages of one call: while it runs, the server does nothing else."""
BYTES_MAX = 1024**2
"""About so many bytes of one call, if its messages are fewer."""


class RedisStreamsSink(Messages):
    """The sink of one pipeline, whose uuid is `pipeline`. One thread writes."""

    def __init__(self, options: RedisStreamsOptions, pipeline: str) -> None:
        super().__init__(options, pipeline)
        self._options = options
        self._client: Any = client(options)
        self._scripts = {
            name: self._client.register_script(getattr(scripts, name.upper()))
            for name in ("write", "commit", "fence")
        }
        self._run = uuid.uuid4().hex
        self._own = f"{options.control}:streams:{pipeline}"
        self._last: tuple[int, int] | None = None
        """The newest commit. None: it was not looked up yet."""
        self._note = ""
        self._checked: set[str] = set()

    # Sink

    def check(self) -> None:
        check_server(self._client, self._options)

    def open(self, table: TableId) -> TargetState:
        epoch, step = self._looked_up()
        return Ours(Commit(self._pipeline, epoch, step), (), empty=False) if epoch else Missing()

    def close(self) -> None:
        self._client.close()

    # Fencing

    def begin(self, generation: int) -> None:
        self._generation = generation
        with self._explained("The pipeline cannot begin to write"):
            self._answered(self._scripts["fence"](keys=[self._own], args=[generation, self._run]))
        self._last = None

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
        last = self._looked_up()
        if is_recorded(commit, Commit(self._pipeline, *last) if last[0] else None):
            return self._note
        for schema in tables:
            self._check_stream(schema.table)
        place: list[Any] = [self._run, commit.epoch, commit.step, f"{last[0]}/{last[1]}"]
        with self._explained(f"Epoch {commit.epoch} was not written"):
            for keys, arguments in self._calls(messages):
                answer = self._scripts["write"](keys=[self._own, *keys], args=[*place, *arguments])
                if self._answered(answer) == "DONE":
                    self._last = None
                    self._looked_up()
                    return self._note
            answer = self._answered(self._scripts["commit"](keys=[self._own], args=[*place, note]))
        if answer == "DONE":  # the answer to an earlier attempt was lost
            self._last = None
            self._looked_up()
            return self._note
        self._last, self._note = (commit.epoch, commit.step), note
        return None

    def _calls(
        self, messages: Iterable[Sequence[LogMessage] | EncodedBatch]
    ) -> Iterator[tuple[list[str], list[Any]]]:
        """Streams and arguments of each call."""
        counts: Counter[Subject] = Counter()
        streams: dict[str, int] = {}
        arguments: list[Any] = []
        size = taken = 0
        limit = "" if self._options.length_max is None else self._options.length_max
        for subject, key, value in each_message(messages):
            counts[subject] += 1
            stream = streams.setdefault(self._options.place_of(subject), len(streams) + 2)
            arguments += [stream, "n:" + counter(subject), counts[subject], _text(key), _text(value)]
            size += len(key or b"") + len(value or b"")
            taken += 1
            if taken >= MESSAGES_MAX or size >= BYTES_MAX:
                yield list(streams), [limit, *arguments]
                streams, arguments, size, taken = {}, [], 0, 0
        if arguments:
            yield list(streams), [limit, *arguments]

    def _check_stream(self, table: TableId) -> None:
        """Raises `TableError` if something else has the name of the table's stream."""
        stream = self._options.place_of(table)
        if stream in self._checked:
            return
        with self._explained(f"The stream {stream} of {table} cannot be looked at"):
            found = self._client.type(stream).decode()
        if found not in ("none", "stream"):
            raise TableError(
                f"The key {stream}, which is to be the stream of {table}, is a {found}.",
                hint="Name another `sink.stream`, or remove this key if nobody needs it. Then run "
                f"`penstock unpark FILE {argument(table)}`.",
                table=str(table),
            )
        self._checked.add(stream)

    # the pipeline's own key ---------------------------------------------------------------------------------

    def _looked_up(self) -> tuple[int, int]:
        if self._last is None:
            with self._explained("What is written cannot be looked up"):
                found = self._client.hmget(self._own, "epoch", "step", "note")
                try:
                    epoch, step, note = (one or b"" for one in found)
                    self._last, self._note = (int(epoch or 0), int(step or 0)), note.decode()
                except (ValueError, TypeError, AttributeError):
                    raise redis.InvalidResponse(STRANGE) from None
        return self._last

    def _answered(self, answer: bytes) -> str:
        match answer:
            case b"FENCED":
                raise another_driver("the server")
            case b"LOST":
                self._last = None
                raise ConfigError(
                    f"The server {self._options.url} has lost what this pipeline has written, or a part of "
                    f"it: its key {self._own} is not what it was.",
                    hint="Redis keeps everything only with `appendonly yes` and `appendfsync always`. "
                    "Restore it, or begin again with a new `state`.",
                )
        if answer not in (b"OK", b"DONE"):
            raise redis.InvalidResponse(STRANGE)
        return answer.decode()

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except redis.RedisError as error:
            what = at(what, self._options.url)
            raise explained(error, what, None) from None  # the server's text may have values of rows


def _text(part: bytes | None) -> bytes:
    return b"-" if part is None else b"=" + part
