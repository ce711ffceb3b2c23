"""Protobuf: the fields of messages. Pure.

Bytes come from strangers, so `fields` accepts what Protobuf allows and raises `BadPacket` for everything
else. It copies nothing but the fields that it returns, and its time is linear in the message's length.
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT_BYTES_MAX = 10
"""Bytes of the longest number, which has 64 bits."""
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


class BadPacket(ValueError):
    """Bytes that are no packet, or not one that a client may send."""


def fields(data: bytes) -> tuple[dict[int, int], dict[int, bytes]]:
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


def varint(value: int) -> bytes:
    value &= 0xFFFF_FFFF_FFFF_FFFF
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def text(field: int, value: bytes) -> bytes:
    return varint(field << 3 | _LENGTH) + varint(len(value)) + value
