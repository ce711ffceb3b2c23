"""A connection to a server of NATS, in its text protocol
(https://docs.nats.io/reference/reference-protocols/nats-protocol).

The server says later, and not of which message, that it does not permit one. So this is an error of whatever
is read next.
"""

from __future__ import annotations

import json
import re
import ssl
import time
import uuid
from collections import deque
from dataclasses import dataclass
from typing import Any

from penstock.connections.answers import STRANGE, NoAnswer, fits, parsed, reading
from penstock.connections.tcp import TcpConnection, in_words
from penstock.sinks.nats.credentials import Credentials

_LINE_BYTES_MAX = 1024**2
"""Limit of a line. The server's first one contains the addresses of its whole cluster."""
_MESSAGE_BYTES_MAX = 64 * 1024**2
"""Limit of a message, as servers have it."""
_HELD_BYTES_MAX = 128 * 1024**2
"""Limit of all messages that came while another answer was awaited."""
_MESSAGE_BYTES = 500  # of a message beside its payload, about
_QUIET_SECONDS = 5.0
"""A connection that was idle for longer is tried before it is used."""
NO_RESPONDERS = 503
FLOW_CONTROL = 100


class Refused(Exception):
    """The server does not accept this client. The text is the server's reason."""


class NoResponder(Exception):
    """Nobody answers requests of this subject: JetStream is switched off, or the stream is gone."""


@dataclass(frozen=True)
class Message:
    subscription: int
    subject: str
    """The subject to which it was published. A consumer of JetStream delivers it to another one."""
    reply: str
    status: int
    """The status code of a message that the server itself has made, without a payload. Else 0."""
    headers: dict[str, str]
    payload: bytes


class NatsConnection:
    """A connection to one server. It uses TLS if the server demands it, or always with `tls_wanted`.
    `seconds`: how long an answer may take. Raises `NoAnswer` or `Refused`. One thread uses it."""

    def __init__(
        self, host: str, port: int, *, tls: ssl.SSLContext, tls_wanted: bool, credentials: Credentials,
        seconds: float,
    ) -> None:  # fmt: skip
        self._seconds = seconds
        self._waiting: deque[Message] = deque()
        """Messages that came while another answer was awaited."""
        self._held_bytes = 0
        self._inbox = f"_INBOX.{uuid.uuid4().hex}"
        self._requests = self._subscriptions = 0
        self._tcp = TcpConnection(host, port, seconds=seconds)
        try:
            self.info = self._first_line()
            if tls_wanted or self.info.get("tls_required"):
                if not (self.info.get("tls_required") or self.info.get("tls_available")):
                    raise Refused("it has no TLS")
                self._tcp.begin_tls(tls, host)
            self._introduce(credentials)
        except BaseException:
            self._tcp.close()
            raise
        self._used = time.monotonic()

    @property
    def payload_bytes_max(self) -> int:
        """Largest message, with its headers."""
        return int(self.info.get("max_payload", 1024**2))

    @property
    def neighbours(self) -> list[str]:
        """Addresses of other servers of the cluster."""
        return [str(one) for one in self.info.get("connect_urls") or []]

    def close(self) -> None:
        self._tcp.close()

    # sending

    def send(self, data: bytes) -> None:
        """Sends whole commands of the protocol."""
        self._tcp.send(data)
        self._used = time.monotonic()

    def inbox(self, name: str) -> str:
        """A subject that only this connection receives. `name` begins with a letter."""
        return f"{self._inbox}.{name}"

    def subscribe(self, subject: str) -> int:
        """The number of a new subscription."""
        self._subscriptions += 1
        self.send(f"SUB {subject} {self._subscriptions}\r\n".encode())
        return self._subscriptions

    def unsubscribe(self, subscription: int) -> None:
        self.send(f"UNSUB {subscription}\r\n".encode())

    def request(self, subject: str, payload: bytes = b"", headers: dict[str, str] | None = None) -> Message:
        """The answer to a request. Raises `NoResponder`."""
        self._requests += 1
        reply = self.inbox(f"r{self._requests}")
        self.send(frame(subject, payload, reply, headers))
        deadline = self.deadline()
        while (message := self.next(deadline)).subject != reply:
            self._hold(message)
        if message.status == NO_RESPONDERS:
            raise NoResponder(subject)
        return message

    # receiving

    def deadline(self) -> float:
        """Until when the server may take for an answer that is awaited from now on."""
        return time.monotonic() + self._seconds

    def next(self, deadline: float) -> Message:
        """The next message. Answers the server's other commands meanwhile. A server that sends other messages
        without end does not move the deadline."""
        if time.monotonic() > deadline:
            raise NoAnswer(in_words(TimeoutError()))
        before = len(self._waiting)
        while len(self._waiting) == before:
            self._line(deadline)
        return self._released(self._waiting.pop())

    def received(self, deadline: float) -> Message:
        """The next message that no request waits for."""
        return self._released(self._waiting.popleft()) if self._waiting else self.next(deadline)

    def _hold(self, message: Message) -> None:
        self._waiting.append(message)
        self._held_bytes += len(message.payload) + _MESSAGE_BYTES
        if self._held_bytes > _HELD_BYTES_MAX:
            raise NoAnswer("it sends messages that nobody has asked for")

    def _released(self, message: Message) -> Message:
        self._held_bytes -= len(message.payload) + _MESSAGE_BYTES
        return message

    def is_alive(self) -> bool:
        """Whether the connection can be used. Called between epochs: the server asks now and then whether the
        client is there, and may have closed the connection."""
        if time.monotonic() - self._used < _QUIET_SECONDS and not self._tcp.has_input():
            return True
        try:
            self._round_trip()
        except (NoAnswer, Refused):  # an account may have expired, or have new credentials
            return False
        return True

    def _round_trip(self) -> None:
        self.send(b"PING\r\n")
        deadline = time.monotonic() + self._seconds
        while self._line(deadline) != b"PONG":
            pass

    def _line(self, deadline: float) -> bytes:
        """The next command that is not a message. Messages are kept."""
        line = self._tcp.read_line(deadline, bytes_max=_LINE_BYTES_MAX)
        command = line.split(b" ", 1)[0].upper()
        if command in (b"MSG", b"HMSG"):
            self._hold(self._message(line, deadline))
        elif command == b"PING":
            self.send(b"PONG\r\n")
        elif command == b"-ERR":
            self._complained(line)
        return command

    def _message(self, line: bytes, deadline: float) -> Message:
        with reading():
            _, subject, number, *reply, sizes = _fields(line.decode())
            first, _, second = sizes.rpartition(" ")
            head, whole, subscription = int(first or 0), int(second), int(number)
        if not 0 <= head <= whole <= _MESSAGE_BYTES_MAX:
            raise NoAnswer(STRANGE)
        data = self._tcp.read(whole + 2, deadline)[:-2]
        status, headers = parsed_headers(data[:head])
        return Message(subscription, subject, reply[0] if reply else "", status, headers, data[head:])

    @staticmethod
    def _complained(line: bytes) -> None:
        text = line[5:].decode(errors="replace").strip("' ")
        if re.match(r"(?i)(user |account )?auth|permissions violation", text):
            raise Refused(text)
        raise NoAnswer(f"it says: {text}")

    # beginning

    def _first_line(self) -> dict[str, Any]:
        deadline = time.monotonic() + self._seconds
        line = self._tcp.read_line(deadline, bytes_max=_LINE_BYTES_MAX)
        if not line.startswith(b"INFO {"):
            raise NoAnswer("it sends something else than a server of NATS")
        found: dict[str, Any] = parsed(line[5:], dict)
        if not fits(found.get("max_payload", 0), int) or not fits(found.get("connect_urls"), (None, list)):
            raise NoAnswer(STRANGE)
        return found

    def _introduce(self, credentials: Credentials) -> None:
        hello = {
            "verbose": False, "pedantic": False, "lang": "python", "version": "1", "protocol": 1,
            "name": "penstock", "headers": True, "no_responders": True, "echo": False,
            **credentials.fields(str(self.info.get("nonce", ""))),
        }  # fmt: skip
        self.send(b"CONNECT " + json.dumps(hello).encode() + b"\r\n")
        self._round_trip()
        self.subscribe(f"{self._inbox}.>")


def frame(subject: str, payload: bytes, reply: str = "", headers: dict[str, str] | None = None) -> bytes:
    """The command that publishes a message."""
    to = f"{subject} {reply} " if reply else f"{subject} "
    if headers is None:
        return f"PUB {to}{len(payload)}\r\n".encode() + payload + b"\r\n"
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"NATS/1.0\r\n{lines}\r\n".encode()
    return f"HPUB {to}{len(head)} {len(head) + len(payload)}\r\n".encode() + head + payload + b"\r\n"


def parsed_headers(head: bytes) -> tuple[int, dict[str, str]]:
    """The status (0: none) and the headers of a message. Raises `NoAnswer`."""
    first, *lines = head.decode(errors="replace").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    with reading():
        status = int(first.removeprefix("NATS/1.0").strip()[:3] or 0)
    return status, {name: value.strip() for name, _, value in pairs}


def _fields(line: str) -> list[str]:
    """Command, subject, number of the subscription, perhaps a subject for an answer, and the sizes."""
    command, *rest = line.split(" ")
    sizes = 2 if command.upper() == "HMSG" else 1
    return [command, *rest[:-sizes], " ".join(rest[-sizes:])]
