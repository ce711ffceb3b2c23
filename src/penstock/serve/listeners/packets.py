"""Packets of Canal's client protocol: Protobuf messages, each behind its length as four bytes.

Only what a server reads is decoded, and only what it says is encoded. Bytes come from strangers, so each
parser accepts what Protobuf allows and raises `BadPacket` for everything else.

Zeros are not written: to clients whose classes have defaults instead of zero (the protocol was proto2 once)
a missing field means the same as to the others.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from penstock._core import repeated_field
from penstock.serve.batches import Block
from penstock.serve.listeners import protobuf
from penstock.serve.listeners.protobuf import BadPacket

HEADER = struct.Struct(">i")
"""The length of the packet behind it."""
PROTOCOL_VERSION = 1


class PacketType(IntEnum):
    HANDSHAKE = 1
    CLIENT_AUTHENTICATION = 2
    ACK = 3
    SUBSCRIPTION = 4
    UNSUBSCRIPTION = 5
    GET = 6
    MESSAGES = 7
    CLIENT_ACK = 8
    SHUTDOWN = 9
    DUMP = 10
    HEARTBEAT = 11
    CLIENT_ROLLBACK = 12


@dataclass(frozen=True)
class Packet:
    kind: int
    body: bytes
    compression: int = 0


@dataclass(frozen=True)
class ClientAuth:
    user: str
    password: bytes
    destination: str
    client_id: str
    filter: str


@dataclass(frozen=True)
class Subscribe:
    """Also the body of the packet that ends a subscription."""

    destination: str
    client_id: str
    filter: str


@dataclass(frozen=True)
class Get:
    """`timeout` None: the client does not wait. Seconds; 0: without limit."""

    destination: str
    client_id: str
    size: int
    timeout: float | None
    auto_ack: bool


@dataclass(frozen=True)
class BatchOf:
    """The body of an acknowledgement and of a rollback."""

    destination: str
    client_id: str
    batch_id: int


# reading ----------------------------------------------------------------------------------------------------


def parse_packet(data: bytes) -> Packet:
    numbers, texts = protobuf.fields(data)
    return Packet(numbers.get(3, 0), texts.get(5, b""), numbers.get(4, 0))


def parse_auth(body: bytes) -> ClientAuth:
    _, texts = protobuf.fields(body)
    return ClientAuth(_text(texts, 1), texts.get(2, b""), _text(texts, 5), _text(texts, 6), _text(texts, 7))


def parse_subscribe(body: bytes) -> Subscribe:
    _, texts = protobuf.fields(body)
    return Subscribe(_text(texts, 1), _text(texts, 2), _text(texts, 7))


_UNIT_S = (1e-9, 1e-6, 1e-3, 1.0, 60.0, 3600.0, 86400.0)
"""Seconds of Java's units of time, by their number: nanoseconds to days."""
_MILLISECONDS = 2
TIMEOUT_S_MAX = 86_400.0 * 365  # a longer wait overflows the clock of the event loop


def parse_get(body: bytes) -> Get:
    numbers, texts = protobuf.fields(body)
    timeout = _signed(numbers.get(4, -1), 64)
    unit = _signed(numbers.get(5, _MILLISECONDS), 32)
    seconds = None
    if timeout >= 0:  # without one, some clients send no unit that exists
        if not 0 <= unit < len(_UNIT_S):
            raise BadPacket(f"there is no unit of time {unit}")
        seconds = min(timeout * _UNIT_S[unit], TIMEOUT_S_MAX)
    size, auto_ack = _signed(numbers.get(3, 0), 32), bool(numbers.get(6, 0))
    return Get(_text(texts, 1), _text(texts, 2), size, seconds, auto_ack)


def parse_batch(body: bytes) -> BatchOf:
    numbers, texts = protobuf.fields(body)
    return BatchOf(_text(texts, 1), _text(texts, 2), _signed(numbers.get(3, 0), 64))


def _signed(value: int, bits: int) -> int:
    if value < 0:
        return value
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _text(texts: dict[int, bytes], field: int) -> str:
    try:
        return texts.get(field, b"").decode()
    except UnicodeDecodeError:
        raise BadPacket(f"field {field} is no text") from None


# writing ----------------------------------------------------------------------------------------------------


def handshake(seed: bytes) -> bytes:
    """The first packet of a connection. `seed`: eight bytes."""
    # The version stands there, because clients compare it; compression NONE is the default.
    body = protobuf.text(1, b"utf8") + protobuf.text(2, seed) + protobuf.number(3, 1)
    return _packet(PacketType.HANDSHAKE, body)


def acknowledged() -> bytes:
    return _packet(PacketType.ACK, b"")


def refused(code: int, message: str) -> bytes:
    """The answer that makes clients raise an error."""
    return _packet(PacketType.ACK, protobuf.number(1, code) + protobuf.text(2, message.encode()))


def messages(batch_id: int, blocks: Sequence[Block]) -> list[bytes]:
    """A batch of entries, in parts that follow each other. The batch -1 has none."""
    parts = [protobuf.number(1, batch_id), *(block.rendered(_entries_of) for block in blocks)]
    length = sum(map(len, parts))
    head = (
        protobuf.number(2, PROTOCOL_VERSION)
        + protobuf.number(3, PacketType.MESSAGES)
        + b"\x2a"
        + protobuf.varint(length)
    )
    return [HEADER.pack(len(head) + length) + head, *parts]


def _entries_of(block: Block) -> bytes:
    return repeated_field(2, [piece.entries for piece in block.pieces])


def _packet(kind: PacketType, body: bytes) -> bytes:
    packet = protobuf.number(2, PROTOCOL_VERSION) + protobuf.number(3, kind) + protobuf.text(5, body)
    return HEADER.pack(len(packet)) + packet
