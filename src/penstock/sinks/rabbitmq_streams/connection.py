"""A connection to a server of RabbitMQ, in its stream protocol. One thread uses it."""

from __future__ import annotations

import ssl
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.connections.answers import NoAnswer, reading
from penstock.connections.tcp import TcpConnection
from penstock.sinks.rabbitmq_streams import wire

_FRAME_BYTES_MAX = 64 * 1024**2
"""A server that announces a larger frame speaks another protocol."""
_EVENTS_MAX = 100_000
"""Events that came while an answer was awaited: a server confirms no more messages than it was sent."""
_QUIET_SECONDS = 5.0
"""A connection that was idle for longer is tried before it is used."""
_CREDIT = 10  # chunks that the server may deliver; each gives one back


class Failed(Exception):
    """The server answers with an error. `code`: see `wire`."""

    def __init__(self, code: int, what: str) -> None:
        self.code = code
        super().__init__(what)


class Confirmed(NamedTuple):
    """The messages with these ids are in the publisher's stream."""

    publisher: int
    ids: Sequence[int]


class NotPublished(NamedTuple):
    publisher: int
    code: int


@dataclass(frozen=True)
class Delivered:
    messages: list[bytes]


Event = Confirmed | NotPublished | Delivered


class StreamConnection:
    """A connection to one server, over RabbitMQ's stream protocol. Opening it raises `NoAnswer`, or
    `Failed` if the server refuses the account."""

    def __init__(
        self, host: str, port: int, *, tls: ssl.SSLContext | None, user: str, password: str,
        virtual_host: str, seconds: float,
    ) -> None:  # fmt: skip
        self._seconds = seconds
        self._correlation = 0
        self._events: list[Event] = []
        self.frame_bytes_max = _FRAME_BYTES_MAX
        self._tcp = TcpConnection(host, port, seconds=seconds)
        try:
            if tls is not None:
                self._tcp.begin_tls(tls, host)
            self._introduce(user, password, virtual_host)
        except BaseException:
            self._tcp.close()
            raise
        self._used = time.monotonic()

    def close(self) -> None:
        self._tcp.close()

    def is_alive(self, stream: str) -> bool:
        """Whether the connection can be used. `stream`: one that exists."""
        if time.monotonic() - self._used < _QUIET_SECONDS and not self._tcp.has_input():
            return True
        try:
            self.exists(stream)
        except (NoAnswer, Failed):
            return False
        return True

    # streams and publishers

    def exists(self, stream: str) -> bool:
        body = self._request(wire.METADATA, struct.pack(">i", 1) + wire.text(stream), "Looking for a stream")
        with reading():
            code = wire.code_of_stream(body)
        if code in (wire.OK, wire.NO_STREAM):
            return bool(code == wire.OK)
        raise Failed(code, f"The stream {stream} cannot be used")

    def create(self, stream: str, arguments: dict[str, str]) -> None:
        """Creates a stream, unless there is one with this name and these arguments."""
        try:
            self._request(wire.CREATE, wire.text(stream) + wire.pairs(arguments), f"Creating {stream}")
        except Failed as error:
            if error.code != wire.STREAM_EXISTS:
                raise

    def declare_publisher(self, number: int, reference: str, stream: str) -> None:
        body = struct.pack(">B", number) + wire.text(reference) + wire.text(stream)
        self._request(wire.DECLARE_PUBLISHER, body, f"Publishing into {stream}")

    def delete_publisher(self, number: int) -> None:
        self._request(wire.DELETE_PUBLISHER, struct.pack(">B", number), "Ending a publisher")

    def last_id(self, reference: str, stream: str) -> int:
        """The greatest id that this publisher has ever given to a message of the stream. 0: none."""
        body = wire.text(reference) + wire.text(stream)
        found = self._request(wire.QUERY_SEQUENCE, body, f"Looking at {stream}")
        with reading():
            return int(struct.unpack_from(">Q", found)[0])

    def publish(self, publisher: int, messages: Sequence[tuple[int, bytes]]) -> None:
        """Sends messages with growing ids. The server drops a message whose id is not greater than the last
        one's."""
        pieces = [b"", struct.pack(">HHBi", wire.PUBLISH, 1, publisher, len(messages))]
        for id, data in messages:
            pieces += [struct.pack(">QI", id, len(data)), data]
        pieces[0] = struct.pack(">I", sum(map(len, pieces)))
        self._tcp.send(b"".join(pieces))
        self._used = time.monotonic()

    def subscribe(self, number: int, stream: str) -> None:
        """Subscribes to a stream from its last chunk on."""
        body = struct.pack(">B", number) + wire.text(stream) + struct.pack(">HHi", wire.FROM_LAST, _CREDIT, 0)
        self._request(wire.SUBSCRIBE, body, f"Reading {stream}")

    # events

    def event(self) -> Event:
        """The next event. Raises `NoAnswer` if none comes in time."""
        deadline = time.monotonic() + self._seconds
        while not self._events:
            self._frame(deadline)
        return self._events.pop(0)

    def has_event(self) -> bool:
        while not self._events and self._tcp.has_input():
            self._frame(time.monotonic() + self._seconds)
        return bool(self._events)

    # frames

    def _request(self, key: int, body: bytes, what: str) -> bytes:
        """Sends a request. Returns the body of the answer, without its code."""
        self._correlation += 1
        self._send(key, struct.pack(">I", self._correlation) + body)
        deadline = time.monotonic() + self._seconds
        while (found := self._frame(deadline)) is None or found[0] != key | wire.ANSWER:
            pass
        if key == wire.METADATA:  # which has no code of its own
            return found[1][4:]
        with reading():
            (code,) = struct.unpack_from(">H", found[1], 4)
        if code != wire.OK:
            raise Failed(code, what)
        return found[1][6:]

    def _send(self, key: int, body: bytes) -> None:
        self._tcp.send(struct.pack(">IHH", len(body) + 4, key, 1) + body)
        self._used = time.monotonic()

    def _frame(self, deadline: float) -> tuple[int, bytes] | None:
        """The key and the body of the next frame. None: it was an event, or not for us."""
        (size,) = struct.unpack(">I", self._tcp.read(4, deadline))
        if not 4 <= size <= _FRAME_BYTES_MAX:
            raise NoAnswer("it does not speak RabbitMQ's stream protocol")
        data = self._tcp.read(size, deadline)
        if len(self._events) > _EVENTS_MAX:
            raise NoAnswer("it sends events without end")
        with reading():
            return self._taken(struct.unpack_from(">HH", data)[0], data[4:])

    def _taken(self, key: int, body: bytes) -> tuple[int, bytes] | None:
        match key:
            case wire.CONFIRM:
                publisher, count = struct.unpack_from(">Bi", body)
                self._events.append(Confirmed(publisher, struct.unpack_from(f">{count}Q", body, 5)))
            case wire.PUBLISH_ERROR:
                publisher, _, _, code = struct.unpack_from(">BiQH", body)
                self._events.append(NotPublished(publisher, code))
            case wire.DELIVER:
                self._events.append(Delivered(list(wire.entries(body[1:]))))
                self._send(wire.CREDIT, struct.pack(">BH", body[0], 1))
            case wire.METADATA_UPDATE:
                raise NoAnswer("a stream was removed, or its leader has changed")
            case wire.CLOSE:
                raise NoAnswer("it closes the connection")
            case wire.HEARTBEAT:
                pass
            case _:
                return key, body
        return None

    def _introduce(self, user: str, password: str, virtual_host: str) -> None:
        self._request(wire.PEER_PROPERTIES, wire.pairs({"product": "penstock"}), "Introducing Penstock")
        self._request(wire.SASL_HANDSHAKE, b"", "Logging in")
        proof = f"\0{user}\0{password}".encode()
        body = wire.text("PLAIN") + struct.pack(">i", len(proof)) + proof
        self._request(wire.SASL_AUTHENTICATE, body, "Logging in")
        deadline = time.monotonic() + self._seconds
        while (found := self._frame(deadline)) is None or found[0] != wire.TUNE:
            pass
        with reading():
            (limit, _) = struct.unpack_from(">II", found[1])
        self.frame_bytes_max = limit or _FRAME_BYTES_MAX
        # No heartbeats: between epochs nobody is there to send them.
        self._send(wire.TUNE | wire.ANSWER, struct.pack(">II", limit, 0))
        self._request(wire.OPEN, wire.text(virtual_host), f"Opening the virtual host {virtual_host}")
