"""A server in front of a real one, which now and then answers what networks, proxies and other programs do.

    with FaultyPeer(server.host, server.port) as peer:
        client = connect(peer.port)               # all is passed on
        peer.play(GARBAGE, at="answer")           # from now on, what is asked is answered with garbage
        …
        assert peer.played
        peer.behave()                             # all is passed on again, over new connections

It knows no protocol: a `Fault` is bytes, and what becomes of the connection after them.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal

from typing_extensions import Self

Moment = Literal["connect", "answer", "middle"]
"""When a fault is played: as soon as a client connects; in place of an answer; or in the middle of the
server's own answer, of which the client gets the first bytes."""

_PIECE_BYTES = 64 * 1024
"""Bytes that are passed on at once."""
_RESET = struct.pack("ii", 1, 0)
_HOLD_S = 60.0
"""How long a client is waited for that takes nothing."""


@dataclass(frozen=True)
class Fault:
    """`pieces`: makes the bytes that are sent. `end`: whether the connection is then closed, reset, or left
    open in silence."""

    name: str
    pieces: Callable[[], Iterable[bytes]] = field(default=tuple, repr=False)
    end: Literal["close", "reset", "hold"] = "close"

    def __str__(self) -> str:
        return self.name


def says(name: str, data: bytes, end: Literal["close", "reset", "hold"] = "close") -> Fault:
    return Fault(name, lambda: [data], end)


def _slowly(data: Iterable[bytes]) -> Iterator[bytes]:
    for piece in data:
        for byte in piece:
            yield bytes([byte])
            time.sleep(0.02)  # what this fault is about


def _noise(seed: int = 7) -> bytes:
    return random.Random(seed).randbytes(_PIECE_BYTES)


CLOSED = Fault("closed")
RESET = Fault("reset", end="reset")
SILENT = Fault("silent", end="hold")
GARBAGE = says("garbage", _noise()[:512])
GARBAGE_HELD = says("garbage, then silence", _noise(8)[:512], "hold")
ENDLESS = Fault("endless garbage", lambda: itertools.repeat(_noise()))
ZEROS = Fault("endless zeros", lambda: itertools.repeat(bytes(_PIECE_BYTES)))
ONES = Fault("endless ones", lambda: itertools.repeat(b"\xff" * _PIECE_BYTES))
LINES = Fault("endless lines", lambda: itertools.repeat(b"+OK\r\n" * 8192))
DRIP = Fault("one byte after another", lambda: _slowly(itertools.repeat(b"H")))
ANY_PROTOCOL = (CLOSED, RESET, SILENT, GARBAGE, GARBAGE_HELD, ENDLESS, ZEROS, ONES, LINES, DRIP)
"""Faults of any protocol."""


def http(body: bytes, status: str = "200 OK", kind: str = "application/json", *more: str) -> bytes:
    """A whole answer of HTTP."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *more]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


_PAGE = b"<!DOCTYPE html>\n<html><body><form action=/login>Sign in</form></body></html>"
_CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
_DEEP = b'{"id":' * 100_000 + b"1" + b"}" * 100_000


def _chunks(piece: bytes) -> Iterator[bytes]:
    yield _CHUNKED
    while True:
        yield b"%x\r\n%b\r\n" % (len(piece), piece)


_LONG = http(b"").replace(b"Length: 0", b"Length: 9999999999")

HTTP = (
    *(
        says(f"200 with {name}", http(body))
        for name, body in (
            ("{}", b"{}"), ("[]", b"[]"), ("null", b"null"), ("a number", b"7"), ("a text", b'"x"'),
            ("a wrong type", b'{"id":"x","data":"x","version":[],"items":{},"_source":[],"count":"x"}'),
            ("a huge number", b'{"id":' + b"9" * 5000 + b"}"), ("a float", b'{"id":1e999}'),
            ("deep JSON", _DEEP), ("half of a JSON", b'{"id":'),
            ("bytes that are no UTF-8", b'{"id":"\xff\xfe"}'),
        )
    ),
    says("200 with a page", http(_PAGE, kind="text/html")),
    says("404 with a page", http(_PAGE, "404 Not Found", "text/html")),
    says("502 with a page", http(_PAGE, "502 Bad Gateway", "text/html")),
    says("redirection", http(b"", "302 Found", "text/html", "Location: /login")),
    says("a body that is cut", http(b'{"id":1}')[:-3]),
    says("a body that is too long", http(b'{"id":1}').replace(b"Length: 8", b"Length: 99999999999999999999")),
    says("a negative length", http(b'{"id":1}').replace(b"Length: 8", b"Length: -8")),
    says("a chunk without its end", _CHUNKED + b"8\r\n{"),
    says("a chunk without a length", _CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n"),
    says("a chunk with a negative length", _CHUNKED + b"-1\r\n{}\r\n0\r\n\r\n"),
    says("a chunk with a huge length", _CHUNKED + b"f" * 40 + b"\r\n{}\r\n"),
    says("headers without end", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000),
    says("a line that is too long", b"HTTP/1.1 200 " + b"x" * 1_000_000 + b"\r\n\r\n"),
    says("a status that is no number", b"HTTP/1.1 abc OK\r\n\r\n"),
    says("another version", b"HTTP/9.9 200 OK\r\n\r\n{}"),
    says("only headers", http(b'{"id":1}')[:-8], "hold"),
    Fault("100 Continue without end", lambda: itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)),
    says("103 Early Hints", b"HTTP/1.1 103 Early Hints\r\n\r\n", "hold"),
    Fault("a body without end", lambda: itertools.chain([_LONG],
                                                        itertools.repeat(b"x" * _PIECE_BYTES))),
    Fault("chunks without end", lambda: _chunks(b" " * _PIECE_BYTES)),
    Fault("a slow body", lambda: itertools.chain([_CHUNKED], _slowly(itertools.repeat(b"1\r\n \r\n")))),
)  # fmt: skip
"""Faults of servers that are asked over HTTP for JSON."""


class FaultyPeer:
    """Listens on `port` of 127.0.0.1 while its `with` block lasts. Each connection has its own thread.
    `listen`: another address, of a server that tells its clients where it is."""

    def __init__(self, host: str, port: int, *, listen: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self.target = (host, port)
        """Where the real server listens."""
        self._listener = socket.create_server(listen, backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._planned: tuple[Fault, Moment, int] | None = None
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.played = 0
        """How often the present fault was played."""

    def play(self, fault: Fault, *, at: Moment = "answer", after: int = 1) -> None:
        """Plays this fault from now on. `after`: for `middle`, the bytes of the answer that come first. With
        `connect`, connections that are open end."""
        with self._lock:
            self._planned, self.played = (fault, at, after), 0
        if at == "connect":
            self._end_all()

    def behave(self) -> None:
        """Passes everything on, over new connections: those that are open end."""
        with self._lock:
            self._planned = None
        self._end_all()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="faulty peer", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._end_all()

    def _end_all(self) -> None:
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    # What follows runs on the peer's own threads.

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open.add(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            with contextlib.suppress(OSError):
                if (fault := self._due("connect")) is not None:
                    return self._play(client, fault[0])
                with socket.create_connection(self.target, 30) as server:
                    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._pass_on(client, server)
        finally:
            with self._lock:
                self._open.discard(client)
                client.close()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        passed = 0
        while True:
            ready = select.select([client, server], [], [])[0]
            if client in ready:
                if not (data := client.recv(_PIECE_BYTES)):
                    return None
                if (fault := self._due("answer")) is not None:
                    return self._play(client, fault[0])
                server.sendall(data)
                passed = 0
            if server in ready:
                if not (data := server.recv(_PIECE_BYTES)):
                    return None
                fault = self._due("middle")
                if fault is not None and passed + len(data) > fault[1]:
                    client.sendall(data[: max(0, fault[1] - passed)])
                    return self._play(client, fault[0])
                passed += len(data)
                client.sendall(data)

    def _due(self, moment: Moment) -> tuple[Fault, int] | None:
        with self._lock:
            if self._planned is None or self._planned[1] != moment:
                return None
            return self._planned[0], self._planned[2]

    def _play(self, client: socket.socket, fault: Fault) -> None:
        with self._lock:
            self.played += 1
        client.settimeout(_HOLD_S)
        for piece in fault.pieces():
            client.sendall(piece)
        if fault.end == "hold":
            while client.recv(_PIECE_BYTES):
                """Until the client gives up."""
        elif fault.end == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        else:
            client.shutdown(socket.SHUT_WR)
            while client.recv(_PIECE_BYTES):
                """So that no reset hides what was sent."""
