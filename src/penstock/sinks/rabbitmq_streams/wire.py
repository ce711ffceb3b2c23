"""Bytes of RabbitMQ's stream protocol
(https://github.com/rabbitmq/rabbitmq-server/blob/main/deps/rabbitmq_stream/docs/PROTOCOL.adoc), and
messages of AMQP 1.0, which streams have. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

DECLARE_PUBLISHER, PUBLISH, CONFIRM, PUBLISH_ERROR, QUERY_SEQUENCE, DELETE_PUBLISHER = 1, 2, 3, 4, 5, 6
SUBSCRIBE, DELIVER, CREDIT, CREATE, DELETE, METADATA, METADATA_UPDATE = 7, 8, 9, 13, 14, 15, 16
PEER_PROPERTIES, SASL_HANDSHAKE, SASL_AUTHENTICATE, TUNE, OPEN, CLOSE, HEARTBEAT = 17, 18, 19, 20, 21, 22, 23
ANSWER = 0x8000
OK, NO_STREAM, STREAM_EXISTS, STREAM_NOT_AVAILABLE = 1, 2, 5, 6
AUTHENTICATION_FAILED, ONLY_FROM_LOOPBACK, NO_VIRTUAL_HOST = 8, 11, 12
INTERNAL_ERROR, ACCESS_REFUSED, PRECONDITION_FAILED = 15, 16, 17
FROM_LAST = 2
"""A subscription begins with the last chunk."""

_CHUNK = struct.Struct(">BBHIqQQiIIi")
_SUB_BATCH = 0x80000000
_APPLICATION_PROPERTIES, _DATA = b"\x00\x53\x74", b"\x00\x53\x75"


def text(value: str) -> bytes:
    data = value.encode("utf-8", "surrogatepass")
    return struct.pack(">h", len(data)) + data


def pairs(values: Mapping[str, str]) -> bytes:
    return struct.pack(">i", len(values)) + b"".join(text(name) + text(one) for name, one in values.items())


def message(value: bytes, key: str | bytes | None) -> bytes:
    """A message of AMQP 1.0 with a value, and a key as the application property `key`."""
    body = b"%b\xb0%b%b" % (_DATA, struct.pack(">I", len(value)), value)
    if key is None:
        return body
    data, code = (key, b"\xb0") if isinstance(key, bytes) else (key.encode(), b"\xb1")
    entries = b"\xa1\x03key%b%b%b" % (code, struct.pack(">I", len(data)), data)
    return b"%b\xd1%b%b%b" % (_APPLICATION_PROPERTIES, struct.pack(">II", 4 + len(entries), 2), entries, body)


def value_of(data: bytes) -> bytes:
    """The value of a message without a key, as `message` makes it. Raises `ValueError`."""
    if data[:4] != _DATA + b"\xb0":
        raise ValueError("no message of ours")
    return data[8:]


def code_of_stream(body: bytes) -> int:
    """The code of the one stream in an answer to `METADATA`, which names servers first."""
    (brokers,) = struct.unpack_from(">i", body)
    at = 4
    for _ in range(brokers):
        (length,) = struct.unpack_from(">h", body, at + 2)
        at += 4 + length + 4
    (length,) = struct.unpack_from(">h", body, at + 4)
    return int(struct.unpack_from(">H", body, at + 6 + length)[0])


def entries(chunk: bytes) -> Iterator[bytes]:
    """The messages of a delivered chunk. Those that are compressed together are left out: the sink makes
    none."""
    _, _, count, *_ = _CHUNK.unpack_from(chunk)
    at = _CHUNK.size
    for _ in range(count):
        (size,) = struct.unpack_from(">I", chunk, at)
        if size & _SUB_BATCH:
            return
        yield chunk[at + 4 : at + 4 + size]
        at += 4 + size
