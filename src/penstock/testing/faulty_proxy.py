"""An HTTP proxy in front of a real S3 server that does to requests what networks and servers do.

    with FaultyProxy(server.host, server.port) as proxy:
        proxy.plan(Fault("lost answer"), when=put, times=1)
        …
        proxy.requests      # all that arrived, in order

It forwards bytes as they are, so signatures stay valid. Each connection has a thread of its own.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal

from typing_extensions import Self

Kind = Literal[
    "answer",  # the server never sees it: it is answered with `status` and `code`
    "done, but answer",  # the server does it, and the client is told `status` and `code`
    "lost answer",  # the server does it, and the connection is reset before its answer
    "reset in the middle",  # half of the body arrives, then the connection is reset
    "late",  # the connection is reset, and the server does it `seconds` later
    "truncated",  # the answer ends in the middle of its body
    "slow",  # forwarded after `seconds`
    "silent",  # never answered, never forwarded
    "without header",  # forwarded without the header `header`
]

_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Fault:
    kind: Kind
    status: int = 503
    code: str = "SlowDown"
    seconds: float = 0.0
    header: str = ""


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    """The path with the query."""
    headers: dict[str, str] = field(repr=False)
    """The headers, by their names in lower case."""
    body_bytes: int = 0


When = Callable[[Request], bool]


def always(request: Request) -> bool:
    return True


def put(request: Request) -> bool:
    return request.method == "PUT"


def get(request: Request) -> bool:
    return request.method == "GET"


@dataclass
class _Planned:
    fault: Fault
    when: When
    left: int


class FaultyProxy:
    """Listens on `port` of 127.0.0.1 while its `with` block lasts."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.requests: list[Request] = []
        self.faults = 0
        """How many faults have happened."""
        self._planned: list[_Planned] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def plan(self, fault: Fault, *, when: When = always, times: int = 1) -> None:
        """The next `times` requests that match have this fault; faults planned first come first."""
        with self._lock:
            self._planned.append(_Planned(fault, when, times))

    def forget(self) -> None:
        """No more faults, and no memory of requests."""
        with self._lock:
            self._planned.clear()
            self.requests.clear()

    @property
    def faults_left(self) -> int:
        """Faults that were planned and have not happened yet."""
        with self._lock:
            return sum(planned.left for planned in self._planned)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="faulty proxy", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    # What follows runs on the proxy's own threads.

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            stream = client.makefile("rb")
            while head := _head(stream.readline):
                if b"100-continue" in head.lower():  # the client waits for this before it sends its body
                    client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                length = _length(head)
                request = _request(head, length)
                fault = self._fault(request)
                if fault is not None and fault.kind == "reset in the middle":
                    stream.read(length // 2)
                    return _reset(client)
                body = stream.read(length)
                if not self._answer(client, head, body, fault):
                    return None
        return None

    def _fault(self, request: Request) -> Fault | None:
        with self._lock:
            self.requests.append(request)
            for planned in self._planned:
                if planned.left and planned.when(request):
                    planned.left -= 1
                    self.faults += 1
                    return planned.fault
        return None

    def _answer(self, client: socket.socket, head: bytes, body: bytes, fault: Fault | None) -> bool:
        """Whether the connection goes on."""
        match fault:
            case None:
                answer = self._forward(head, body)
                client.sendall(answer)
                return _says_its_end(answer, head)
            case Fault(kind="answer"):
                client.sendall(_error(fault))
            case Fault(kind="done, but answer"):
                self._forward(head, body)
                client.sendall(_error(fault))
            case Fault(kind="lost answer"):
                self._forward(head, body)
                _reset(client)
            case Fault(kind="late"):
                _reset(client)
                time.sleep(fault.seconds)
                self._forward(head, body)
            case Fault(kind="truncated"):
                answer = self._forward(head, body)
                start = answer.index(b"\r\n\r\n") + 4
                client.sendall(answer[: start + (len(answer) - start) // 2])
            case Fault(kind="slow"):
                time.sleep(fault.seconds)
                answer = self._forward(head, body)
                client.sendall(answer)
                return _says_its_end(answer, head)
            case Fault(kind="silent"):
                self._closing.wait(60)
            case Fault(kind="without header"):
                kept = re.sub(rb"(?im)^" + fault.header.encode() + rb":[^\n]*\n", b"", head)
                client.sendall(self._forward(kept, body))
            case _:
                raise AssertionError(fault)
        return False

    def _forward(self, head: bytes, body: bytes) -> bytes:
        """The server's whole answer. A connection of its own for each request, which the server closes."""
        head = re.sub(rb"(?im)^(connection|expect):[^\n]*\n", b"", head)
        head = head[:-2] + b"Connection: close\r\n\r\n"
        with socket.create_connection(self._target, 30) as server:
            server.sendall(head)
            for start in range(0, len(body), 1 << 16):
                if select.select([server], [], [], 0)[0]:
                    break  # it answers without having read the body
                server.sendall(body[start : start + (1 << 16)])
            pieces = []
            with contextlib.suppress(ConnectionResetError):
                while piece := server.recv(1 << 18):
                    pieces.append(piece)
        return b"".join(pieces)


def _head(readline: Callable[[], bytes]) -> bytes:
    lines = []
    while line := readline():
        lines.append(line)
        if line == b"\r\n":
            return b"".join(lines)
    return b""


def _says_its_end(answer: bytes, head: bytes) -> bool:
    """Whether a client can tell where the answer ends. Of one without a length, only the end of the
    connection says so."""
    first = answer.partition(b"\r\n\r\n")[0]
    if head.startswith(b"HEAD ") or first.split(b" ", 2)[1:2] in ([b"204"], [b"304"]):
        return True
    return re.search(rb"(?im)^(content-length|transfer-encoding):", first) is not None


def _length(head: bytes) -> int:
    found = re.search(rb"(?im)^content-length: *(\d+)", head)
    return int(found[1]) if found else 0


def _request(head: bytes, length: int) -> Request:
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = dict(line.split(":", 1) for line in lines if ":" in line)
    return Request(
        method, path, {name.lower(): value.strip() for name, value in headers.items()}, body_bytes=length
    )


def _error(fault: Fault) -> bytes:
    body = f"<Error><Code>{fault.code}</Code><Message>made by a test</Message></Error>".encode()
    head = (
        f"HTTP/1.1 {fault.status} Fault\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n"
    )
    return head.encode() + b"Connection: close\r\n\r\n" + body


def _reset(client: socket.socket) -> None:
    """Resets the connection at once, though a reader of the socket is open, for which `close` would wait."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    os.close(client.detach())
