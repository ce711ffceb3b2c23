"""A client of Canal's protocol that costs little: it reads what a measurement needs, and decodes no rows."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

ROW, END = 2, 3
"""Types of entries: rows, and the end of a transaction."""
_ACK = 3
"""The packet that is an answer without entries."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and texts of a Protobuf message."""
    at, end = 0, len(data)
    while at < end:
        tag, at = varint(data, at)
        value, at = varint(data, at)
        if tag & 7 == 2:
            yield tag >> 3, data[at : at + value]
            at += value
        else:
            yield tag >> 3, value


def number(field: int, value: int) -> bytes:
    return bytes((field << 3,)) + _varint(value)


def text(field: int, value: bytes) -> bytes:
    return bytes((field << 3 | 2,)) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def kind_of(entry: bytes) -> int:
    """The type of an entry, which stands behind its header."""
    length, at = varint(entry, 1)
    return entry[at + length + 1]


class Client:
    def __init__(self, address: str, client_id: str, destination: str = "example") -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=120)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb", 1 << 20)
        self._names = text(1, destination.encode()) + text(2, client_id.encode())
        self._receive()
        self._ask(2, text(1, b"canal") + text(2, b""))
        self._ask(4, self._names + text(7, b""))

    def _ask(self, kind: int, body: bytes) -> dict[int, int | bytes]:
        self._send(kind, body)
        return self._receive()

    def get(self, size: int) -> tuple[int, bytes]:
        """The next batch, as its id and the packet's body; the id is -1 if there is none within a second."""
        body = self._ask(6, self._names + number(3, size) + number(4, 1000) + number(5, 2) + number(6, 0))[5]
        assert isinstance(body, bytes)
        batch_id = next(iter(fields(body)))[1]
        assert isinstance(batch_id, int)
        return (-1 if batch_id >> 63 else batch_id), body

    def acknowledge(self, batch_id: int) -> None:
        self._send(8, self._names + number(3, batch_id))

    def _send(self, kind: int, body: bytes) -> None:
        packet = number(2, 1) + number(3, kind) + text(5, body)
        self._socket.sendall(struct.pack(">i", len(packet)) + packet)

    def _receive(self) -> dict[int, int | bytes]:
        [length] = struct.unpack(">i", self._stream.read(4))
        packet = dict(fields(self._stream.read(length)))
        if packet[3] == _ACK and (said := dict(fields(bytes(packet.get(5, b""))))).get(1):
            raise ConnectionError(f"the server refuses: {said.get(2)!r}")
        return packet

    def close(self) -> None:
        self._socket.close()


def entries(body: bytes) -> list[bytes]:
    """The entries of a batch."""
    return [value for field, value in fields(body) if field == 2 and isinstance(value, bytes)]
