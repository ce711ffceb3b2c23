"""Packets of Canal's client protocol: Protobuf messages, each behind its length as four bytes.

Only what a server reads is decoded, and only what it says is encoded. Bytes come from strangers, so each
parser accepts what Protobuf allows and raises `BadPacket` for everything else. It copies nothing but the
fields that it returns, and its time is linear in the packet's length.

Zeros are not written: to clients whose classes have defaults instead of zero (the protocol was proto2 once)
a missing field means the same as to the others.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from penstock._core import repeated_field
from penstock.serve.batches import Block

HEADER = struct.Struct(">i")
"""The length of the packet behind it."""
PROTOCOL_VERSION = 1
_VARINT_BYTES_MAX = 10
"""Bytes of the longest number, which has 64 bits."""
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


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


class BadPacket(ValueError):
    """Bytes that are no packet, or not one that a client may send."""


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
    numbers, texts = _fields(data)
    return Packet(numbers.get(3, 0), texts.get(5, b""), numbers.get(4, 0))


def parse_auth(body: bytes) -> ClientAuth:
    _, texts = _fields(body)
    return ClientAuth(_text(texts, 1), texts.get(2, b""), _text(texts, 5), _text(texts, 6), _text(texts, 7))


def parse_subscribe(body: bytes) -> Subscribe:
    _, texts = _fields(body)
    return Subscribe(_text(texts, 1), _text(texts, 2), _text(texts, 7))


_UNIT_S = (1e-9, 1e-6, 1e-3, 1.0, 60.0, 3600.0, 86400.0)
"""Seconds of Java's units of time, by their number: nanoseconds to days."""
_MILLISECONDS = 2
TIMEOUT_S_MAX = 86_400.0 * 365  # a longer wait overflows the clock of the event loop


def parse_get(body: bytes) -> Get:
    numbers, texts = _fields(body)
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
    numbers, texts = _fields(body)
    return BatchOf(_text(texts, 1), _text(texts, 2), _signed(numbers.get(3, 0), 64))


def _fields(data: bytes) -> tuple[dict[int, int], dict[int, bytes]]:
    """The numbers and the texts of a message, by the number of the field. The last one counts, as Protobuf
    says."""
    numbers: dict[int, int] = {}
    texts: dict[int, bytes] = {}
    for field, value in _each(data):
        if isinstance(value, int):
            numbers[field] = value
        else:
            texts[field] = value
    return numbers, texts


def _each(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        field, wire = tag >> 3, tag & 7
        if not 0 < field < 1 << 29:
            raise BadPacket(f"there is no field {field}")
        if wire == _VARINT:
            number, at = _varint(data, at)
            yield field, number
            continue
        length = {_FIXED64: 8, _FIXED32: 4}.get(wire)
        if wire == _LENGTH:
            length, at = _varint(data, at)
        if length is None:
            raise BadPacket(f"there is no wire type {wire}")
        if length > end - at:
            raise BadPacket("a field is longer than its message")
        if wire == _LENGTH:
            yield field, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for byte in data[at : at + _VARINT_BYTES_MAX]:
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
    raise BadPacket("a number has no end")


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
    body = _bytes(1, b"utf8") + _bytes(2, seed) + _number(3, 1)
    return _packet(PacketType.HANDSHAKE, body)


def acknowledged() -> bytes:
    return _packet(PacketType.ACK, b"")


def refused(code: int, message: str) -> bytes:
    """The answer that makes clients raise an error."""
    return _packet(PacketType.ACK, _number(1, code) + _bytes(2, message.encode()))


def messages(batch_id: int, blocks: Sequence[Block]) -> list[bytes]:
    """A batch of entries, in parts that follow each other. The batch -1 has none."""
    parts = [_number(1, batch_id), *(block.rendered(_entries_of) for block in blocks)]
    length = sum(map(len, parts))
    head = _number(2, PROTOCOL_VERSION) + _number(3, PacketType.MESSAGES) + b"\x2a" + _varint_of(length)
    return [HEADER.pack(len(head) + length) + head, *parts]


def _entries_of(block: Block) -> bytes:
    return repeated_field(2, [piece.entries for piece in block.pieces])


def _packet(kind: PacketType, body: bytes) -> bytes:
    packet = _number(2, PROTOCOL_VERSION) + _number(3, kind) + _bytes(5, body)
    return HEADER.pack(len(packet)) + packet


def _varint_of(value: int) -> bytes:
    value &= 0xFFFF_FFFF_FFFF_FFFF
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _number(field: int, value: int) -> bytes:
    return _varint_of(field << 3) + _varint_of(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint_of(field << 3 | _LENGTH) + _varint_of(len(value)) + value
