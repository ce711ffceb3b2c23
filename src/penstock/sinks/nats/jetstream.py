"""What the sink asks of JetStream: streams, their messages, and a bucket of keys and values
(https://docs.nats.io/reference/reference-protocols/nats_api_reference)."""

from __future__ import annotations

import base64
import contextlib
import json
import uuid
from collections.abc import Iterator
from typing import Any

from penstock.connections.answers import STRANGE, NoAnswer, fits, parsed, reading
from penstock.sinks.nats.connection import FLOW_CONTROL, NO_RESPONDERS, Message, NatsConnection, NoResponder
from penstock.sinks.nats.connection import parsed_headers as _parsed

STREAM_MISSING, MESSAGE_MISSING, WRONG_SEQUENCE = 10059, 10037, 10071
WRONG_LAST = (10070, WRONG_SEQUENCE)
"""The newest message of a stream, or of a subject, is not the expected one."""
_ERROR = {"code": int, "err_code": int}
_STREAM = {"config": {"subjects": (None, [str])}, "state": {"last_seq": int}}
_MESSAGE = {"message": {"seq": int}}
PUBLISHED = {"seq": int}
"""Of answers: what is read here."""
_EXPECTED_OF_SUBJECT = "Nats-Expected-Last-Subject-Sequence"
SINGLY_MAX = 8
"""Up to this number, messages are asked for one by one."""
_HEARTBEAT_NS = 2_000_000_000
"""Nanoseconds between the messages by which the server says that it has nothing to deliver. A lost connection
is noticed when they stay away."""


class ApiError(Exception):
    """An error that JetStream answers. `code`: JetStream's number for it. The text contains no parts of
    messages."""

    def __init__(self, error: dict[str, Any]) -> None:
        self.code: int = error.get("err_code", 0)
        self.status: int = error.get("code", 0)
        super().__init__(str(error.get("description", "")))


class JetStream:
    def __init__(self, connection: NatsConnection, domain: str = "") -> None:
        self.connection = connection
        self._prefix = f"$JS.{domain}.API" if domain else "$JS.API"

    def api(self, name: str, request: dict[str, Any] | None = None, shape: Any = dict) -> dict[str, Any]:
        """The answer to a request. `shape`: what of it the caller relies on (`answers.fits`)."""
        payload = b"" if request is None else json.dumps(request).encode()
        return answer(self.connection.request(f"{self._prefix}.{name}", payload), shape)

    def stream(self, name: str) -> dict[str, Any] | None:
        """`{config, state, …}` of a stream. None: there is none."""
        return self._unless(STREAM_MISSING, f"STREAM.INFO.{name}", shape=_STREAM)

    def create(self, config: dict[str, Any]) -> None:
        self.api(f"STREAM.CREATE.{config['name']}", config)

    def newest(self, stream: str, subject: str) -> tuple[int, bytes] | None:
        """Sequence and payload of the newest message with a subject."""
        found = self._unless(MESSAGE_MISSING, f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject}, _MESSAGE)
        if found is None:
            return None
        message = found["message"]
        with reading():
            return message["seq"], base64.b64decode(message.get("data", ""))

    def put(self, subject: str, payload: bytes, *, after: int) -> int:
        """Publishes a message, if the newest one with this subject has the sequence `after` (0: there is
        none). Returns its sequence."""
        headers = {_EXPECTED_OF_SUBJECT: str(after)}
        return int(answer(self.connection.request(subject, payload, headers), PUBLISHED)["seq"])

    def publish(self, subject: str, headers: dict[str, str]) -> int:
        """Publishes an empty message. Returns its sequence."""
        return int(answer(self.connection.request(subject, b"", headers), PUBLISHED)["seq"])

    def remove(self, stream: str, sequence: int) -> None:
        with contextlib.suppress(ApiError):  # streams may forbid it
            self.api(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence, "no_erase": True})

    def header(self, stream: str, sequence: int) -> dict[str, str] | None:
        """The headers of a message. None: it is not there."""
        found = self._unless(MESSAGE_MISSING, f"STREAM.MSG.GET.{stream}", {"seq": sequence}, _MESSAGE)
        if found is None:
            return None
        with reading():
            headers = base64.b64decode(found["message"].get("hdrs", ""))
        return _parsed(headers)[1]

    def headers(self, stream: str, first: int, last: int) -> Iterator[dict[str, str]]:
        """The headers of the messages from sequence `first` to `last` that are still there."""
        if last - first < SINGLY_MAX:
            for sequence in range(first, last + 1):
                if (found := self.header(stream, sequence)) is not None:
                    yield found
            return
        inbox = f"_INBOX.{uuid.uuid4().hex}"
        subscription = self.connection.subscribe(inbox)
        made = self.api(
            f"CONSUMER.CREATE.{stream}",
            {
                "stream_name": stream,
                "config": {
                    "deliver_subject": inbox, "deliver_policy": "by_start_sequence", "opt_start_seq": first,
                    "ack_policy": "none", "replay_policy": "instant", "headers_only": True, "max_deliver": 1,
                    "flow_control": True, "idle_heartbeat": _HEARTBEAT_NS,
                },
            },
            {"name": str},
        )  # fmt: skip
        pending = made.get("num_pending", 0)
        if not fits(pending, int):
            raise NoAnswer(STRANGE)
        try:
            yield from self._delivered(subscription, last, pending)
        finally:
            self.connection.unsubscribe(subscription)
            with contextlib.suppress(ApiError):  # it ends by itself
                self.api(f"CONSUMER.DELETE.{stream}.{made['name']}")

    def _delivered(self, subscription: int, last: int, pending: int) -> Iterator[dict[str, str]]:
        deadline = self.connection.deadline()
        while pending:
            message = self.connection.received(deadline)
            if message.subscription != subscription:
                continue
            if message.status == FLOW_CONTROL:
                wanted = message.reply or message.headers.get("Nats-Consumer-Stalled", "")
                if wanted:
                    self.connection.send(f"PUB {wanted} 0\r\n\r\n".encode())
                continue
            deadline = self.connection.deadline()
            sequence, pending = _place(message.reply)
            if sequence <= last:
                yield message.headers
            if sequence >= last:
                return

    def _unless(
        self, code: int, name: str, request: dict[str, Any] | None = None, shape: Any = dict
    ) -> dict[str, Any] | None:
        try:
            return self.api(name, request, shape)
        except ApiError as error:
            if error.code == code:
                return None
            raise


def answer(message: Message, shape: Any = dict) -> dict[str, Any]:
    """The answer of JetStream to a request, which has this shape. Raises `ApiError`, `NoResponder` or
    `NoAnswer`."""
    if message.status == NO_RESPONDERS:
        raise NoResponder(message.subject)
    found: dict[str, Any] = parsed(message.payload, ({"error": _ERROR}, {"error": {"code": int}}, shape))
    if "error" in found:
        raise ApiError(found["error"])
    return found


def _place(reply: str) -> tuple[int, int]:
    """A delivered message's sequence in its stream, and how many come after it. The server writes both into
    the subject for acknowledgements, whose first form has nine parts."""
    parts = reply.split(".")
    at = 5 if len(parts) == 9 else 7
    with reading():
        return int(parts[at]), int(parts[at + 3])
