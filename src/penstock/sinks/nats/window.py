"""Publishes messages one behind the other, without waiting for each.

Each message has an id, and says which id the newest message of the stream must have
(`Nats-Expected-Last-Msg-Id`). So if one is not taken, or somebody else's comes in between, none behind it is
taken. Sequences would not do: a foreign message takes the number of the one that it displaces, and the next
one would follow it. Only the first message, when no id is known, says a sequence.

The server is asked to answer only the last message of each batch: its answer is that of all. A few batches
are on their way at a time.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from penstock.sinks.nats.connection import Message, NatsConnection, NoResponder
from penstock.sinks.nats.jetstream import PUBLISHED, WRONG_LAST, WRONG_SEQUENCE, ApiError, answer

MESSAGES_MAX = 500
"""Messages that have one answer: then answers cost hardly anything."""
BYTES_MAX = 512 * 1024
"""About so many bytes have one answer."""
BATCHES_MAX = 4
"""Batches on their way. New servers refuse messages while 10,000 of a stream wait."""
_ROUNDS_MAX = 100
"""How often other publishers may come in between before the epoch is tried again later."""


class Outgoing(NamedTuple):
    """A message that is sent. `id`: the `records.Mark` with `about` and `number`. `headers`: further headers,
    each with its line end."""

    subject: bytes
    id: bytes
    headers: bytes
    payload: bytes
    about: str
    number: int


@dataclass
class _Batch:
    messages: list[Outgoing]
    last: int
    """The sequence that its last message gets."""
    inbox: str


class Window:
    """Sends messages, with many on their way at a time. `last`, `newest`: sequence and id of the stream's
    newest message. `counts`: for what messages are about, the number of those that are known to be in the
    stream; it is updated. `look`: called if messages were not taken, when no other one is on its way. It gets
    the newest sequence that was counted, updates `counts`, and returns the stream's newest sequence."""

    def __init__(
        self, connection: NatsConnection, last: int, newest: bytes | None, counts: dict[str, int],
        look: Callable[[int], int],
    ) -> None:  # fmt: skip
        self._connection = connection
        self.last = last
        """The newest sequence that is known to be in the stream."""
        self.newest = newest
        """The id of the message that was sent last. None: the next message names the stream's last sequence
        instead."""
        self._sent = last
        self._counts = counts
        self._look = look
        self._batch: list[Outgoing] = []
        self._bytes = 0
        self._running: deque[_Batch] = deque()
        self._serial = 0

    def add(self, message: Outgoing) -> None:
        self._batch.append(message)
        self._bytes += len(message.payload) + len(message.headers)
        if len(self._batch) >= MESSAGES_MAX or self._bytes >= BYTES_MAX:
            self._send()
            while len(self._running) >= BATCHES_MAX:
                self._confirm()

    def finish(self) -> None:
        """Returns when the stream has all messages."""
        self._send()
        while self._running:
            self._confirm()

    def _send(self) -> None:
        messages, self._batch, self._bytes = self._batch, [], 0
        if not messages:
            return
        self._serial += 1
        inbox = self._connection.inbox(f"a{self._serial}")
        pieces = [self._command(message, b"") for message in messages[:-1]]
        pieces.append(self._command(messages[-1], inbox.encode() + b" "))
        self._sent += len(messages)
        self._running.append(_Batch(messages, self._sent, inbox))
        self._connection.send(b"".join(pieces))

    def _command(self, message: Outgoing, reply: bytes) -> bytes:
        if self.newest is None:
            expected = b"Nats-Expected-Last-Sequence: %d" % self._sent
        else:
            expected = b"Nats-Expected-Last-Msg-Id: " + self.newest
        self.newest = message.id
        head = b"NATS/1.0\r\n%b\r\nNats-Msg-Id: %b\r\n%b\r\n" % (expected, message.id, message.headers)
        sizes = len(head), len(head) + len(message.payload)
        return b"HPUB %b %b%d %d\r\n%b%b\r\n" % (message.subject, reply, *sizes, head, message.payload)

    def _confirm(self) -> None:
        """Waits for the answer to the oldest batch."""
        batch = self._running[0]
        try:
            found = answer(self._answer_to(batch), PUBLISHED)
        except (ApiError, NoResponder) as error:
            return self._repeat(error)
        if int(found["seq"]) != batch.last:  # the stream was made anew
            return self._repeat(ApiError({"err_code": WRONG_SEQUENCE, "description": "wrong last sequence"}))
        self._running.popleft()
        self._count(batch.messages)
        self.last = batch.last
        return None

    def _answer_to(self, batch: _Batch) -> Message:
        deadline = self._connection.deadline()
        while (message := self._connection.received(deadline)).subject != batch.inbox:
            pass
        return message

    def _repeat(self, error: Exception) -> None:
        """Sends again the messages that were not taken. The first one is sent alone, so that the answer is
        about it."""
        waiting = list(self._running)
        for batch in waiting[1:]:
            with contextlib.suppress(ApiError, NoResponder):
                answer(self._answer_to(batch))
        for _ in range(_ROUNDS_MAX):
            before, self.last = self.last, self._look(self.last)
            self._sent, self.newest = self.last, None
            left = self._left(waiting)
            self._running.clear()
            if self.last == before and not _is_another_newest(error):
                raise error
            if not left:
                return
            self._batch = left[:1]
            self._send()
            try:
                found = answer(self._answer_to(self._running[0]), PUBLISHED)
            except (ApiError, NoResponder) as again:
                error = again
                continue
            if found.get("duplicate"):  # it was there, and is not any more
                self.newest, self._sent = None, self.last
            else:
                self.last = int(found["seq"])
            self._count(left[:1])
            self._running.clear()
            self._send_all(left[1:])
            return
        raise error

    def _left(self, batches: Iterable[_Batch]) -> list[Outgoing]:
        messages = (message for batch in batches for message in batch.messages)
        return [one for one in messages if one.number > self._counts.get(one.about, 0)]

    def _send_all(self, messages: list[Outgoing]) -> None:
        for begin in range(0, len(messages), MESSAGES_MAX):
            self._batch = messages[begin : begin + MESSAGES_MAX]
            self._send()

    def _count(self, messages: list[Outgoing]) -> None:
        for message in messages:
            self._counts[message.about] = message.number


def _is_another_newest(error: Exception) -> bool:
    return isinstance(error, ApiError) and error.code in WRONG_LAST
