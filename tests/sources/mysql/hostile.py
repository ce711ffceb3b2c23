"""A server that lets everybody in and then plays a fault. It has no database: it plays the fault only."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

_PROTOCOL_41, _SECURE, _PLUGINS = 1 << 9, 1 << 15, 1 << 19
_OK = b"\0\0\0\x02\0\0\0"
_EOF = b"\xfe\0\0\x02\0"
MORE = b"\0\0\0\x0a\0\0\0"
"""An OK packet that promises another result."""

Fault = Callable[[], Iterator[bytes]]
"""What the server sends, as it goes over the wire. The number of the first packet is 1."""


def packet(number: int, payload: bytes) -> bytes:
    return struct.pack("<I", len(payload))[:3] + bytes([number % 256]) + payload


def packets(*payloads: bytes) -> bytes:
    return b"".join(packet(number, payload) for number, payload in enumerate(payloads, 1))


def text(value: bytes) -> bytes:
    return bytes([len(value)]) + value


def definition(name: bytes = b"a", kind: int = 253) -> bytes:
    names = text(b"def") + text(b"") * 3 + text(name) + text(name)
    return names + b"\x0c" + struct.pack("<HIBHBH", 45, 255, kind, 0, 0, 0)


def result(columns: int, *rows: bytes) -> bytes:
    return packets(bytes([columns]), *[definition()] * columns, _EOF, *rows, _EOF)


def endless_packets() -> Iterator[bytes]:
    body = bytes(0xFFFFFF)
    for number in itertools.count(1):
        yield struct.pack("<I", 0xFFFFFF)[:3] + bytes([number % 256])
        yield body


def endless_large_rows() -> Iterator[bytes]:
    yield packets(b"\1", definition(), _EOF)
    row = b"\xfd" + struct.pack("<I", 8_000_000)[:3] + bytes(8_000_000)
    for number in itertools.count(4):
        yield packet(number, row)


def endless_small_rows() -> Iterator[bytes]:
    yield packets(b"\1", definition(), _EOF)
    for number in itertools.count(4, 256):
        yield b"".join(packet(number + at, text(b"ab")) for at in range(256))


def endless_definitions() -> Iterator[bytes]:
    yield packets(b"\xfe" + struct.pack("<Q", 2**62))
    for number in itertools.count(2, 256):
        yield b"".join(packet(number + at, definition()) for at in range(256))


def endless_results() -> Iterator[bytes]:
    for number in itertools.count(1, 256):
        yield b"".join(packet(number + at, MORE) for at in range(256))


def drip() -> Iterator[bytes]:
    yield packets(b"\1", definition(), _EOF)
    for number in itertools.count(4):
        for byte in packet(number, text(b"ab")):
            time.sleep(0.05)  # the fault is to be slow
            yield bytes([byte])


ENDLESS: dict[str, Fault] = {
    "packets of 16 MB": endless_packets,
    "large rows": endless_large_rows,
    "small rows": endless_small_rows,
    "definitions": endless_definitions,
    "results": endless_results,
}
BROKEN: dict[str, bytes] = {
    "OK in place of rows": packets(_OK),
    "no rows at all": result(1),
    "too few columns": result(1, text(b"1")),
    "too many columns": result(9, text(b"1") * 9),
    "a value that is longer than its row": result(1, b"\xfa" + b"1"),
    "a row without its last columns": result(8, text(b"1") * 3),
    "NULL everywhere": result(8, b"\xfb" * 8),
    "text where there must be numbers": result(8, text(b"abc") * 8),
    "text that is not UTF-8": result(1, text(b"\xff\xfe")),
    "no end of the definitions": packets(b"\1", definition(), text(b"1"), _EOF),
    "a definition that is cut": packets(b"\1", b"\x03def", _EOF, _EOF),
    "a request for a file": packets(b"\xfb/etc/passwd"),
    "an empty packet": packets(b""),
    "an OK that is cut": packets(b"\0"),
    "an error that is cut": packets(b"\xff"),
    "an error without end": packets(b"\xff" + struct.pack("<H", 1105) + b"#HY000" + b"x" * 1_000_000),
    "wrong numbers of packets": packet(7, b"\1"),
    "a web page": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html></html>",
    "nothing": b"",
    "a packet that is cut": packet(1, bytes(200))[:50],
}


def once(data: bytes) -> Fault:
    return lambda: iter([data])


class Hostile:
    """`at`: when the fault is played. "greeting"; "login": in place of the OK; "switch": after the client has
    followed a request for another plugin; or the beginning of a statement."""

    def __init__(self, fault: Fault, at: str = "SELECT") -> None:
        self._fault, self._at = fault, at
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.played = 0

    def __enter__(self) -> Hostile:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            if self._at == "greeting":
                return self._play(connection, 255)
            flags = _PROTOCOL_41 | _SECURE | _PLUGINS
            greeting = b"\x0a8.0.15\0" + struct.pack("<I", 7) + b"12345678\0"
            greeting += struct.pack("<HBHHB", flags & 0xFFFF, 45, 2, flags >> 16, 21) + bytes(10)
            connection.sendall(packet(0, greeting + b"123456789012\0mysql_native_password\0"))
            connection.recv(65536)
            if self._at == "login":
                return self._play(connection, 1)
            if self._at == "switch":
                connection.sendall(packet(2, b"\xfecaching_sha2_password\x0012345678901234567890\0"))
                connection.recv(65536)
                return self._play(connection, 3)
            connection.sendall(packet(2, _OK))
            while asked := connection.recv(65536):
                if asked[4:5] == b"\1":
                    return None
                if asked[5:].upper().startswith(self._at.upper().encode()):
                    return self._play(connection, 0)
                connection.sendall(packets(_OK))
        return None

    def _play(self, connection: socket.socket, later: int) -> None:
        """`later`: how much greater the packets' numbers are than in the fault."""
        self.played += 1
        for data in self._fault():
            is_head = later and len(data) >= 4
            number = bytes([(data[3] + later) % 256]) if is_head else b""
            connection.sendall(data[:3] + number + data[4:] if is_head else data)
