"""One connection over TCP, or TLS, to a server whose protocol is its caller's. One thread uses it."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import time
from pathlib import Path
from typing import Any

from penstock.connections.answers import STRANGE, NoAnswer
from penstock.errors import TargetRefused

_RECEIVED_AT_ONCE = 256 * 1024
"""Bytes that one system call may read: more would rarely be there."""


class TcpConnection:
    """A connection to a server. `seconds`: how long the server may take to accept the connection, and later
    to take what is sent."""

    def __init__(self, host: str, port: int, *, seconds: float) -> None:
        self._seconds = seconds
        self._received = bytearray()
        self._at = 0
        """Where the part of `_received` begins that was not read yet."""
        try:
            self._socket = socket.create_connection((host, port), timeout=seconds)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError as error:
            raise NoAnswer(in_words(error)) from None

    def begin_tls(self, context: ssl.SSLContext, host: str) -> None:
        self._socket.settimeout(self._seconds)
        try:
            self._socket = context.wrap_socket(self._socket, server_hostname=host)
        except (OSError, ValueError) as error:
            raise NoAnswer(in_words(error)) from None

    def send(self, data: bytes) -> None:
        try:
            self._socket.settimeout(self._seconds)
            self._socket.sendall(data)
        except OSError as error:
            raise NoAnswer(in_words(error)) from None

    def read(self, count: int, deadline: float) -> bytes:
        """The next bytes. `deadline`: in the time of `time.monotonic`."""
        while len(self._received) - self._at < count:
            self._receive(deadline)
        found = bytes(self._received[self._at : self._at + count])
        self._at += count
        return found

    def read_line(self, deadline: float, *, bytes_max: int) -> bytes:
        """The next line, without its end."""
        searched = self._at
        while (end := self._received.find(b"\r\n", searched)) < 0:
            left = len(self._received) - self._at
            if left > bytes_max:
                raise NoAnswer(STRANGE)
            self._receive(deadline)  # which may move what is left
            searched = max(self._at, self._at + left - 1)
        found = bytes(self._received[self._at : end])
        self._at = end + 2
        return found

    def has_input(self) -> bool:
        """Whether something can be read now, or the server has closed the connection."""
        if len(self._received) > self._at:
            return True
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        return bool(select.select([self._socket], [], [], 0)[0])

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()

    def _receive(self, deadline: float) -> None:
        if self._at:
            del self._received[: self._at]
            self._at = 0
        left = deadline - time.monotonic()
        if left <= 0:  # also while a server sends without end
            raise NoAnswer(in_words(TimeoutError()))
        try:
            self._socket.settimeout(left)
            found = self._socket.recv(_RECEIVED_AT_ONCE)
        except OSError as error:
            raise NoAnswer(in_words(error)) from None
        if not found:
            raise NoAnswer("it closed the connection")
        self._received += found


class BoundedSocket:
    """A socket for a client that is not ours, and takes whatever is sent. After each thing that it sends, the
    server may answer at most `bytes_max` bytes within `seconds`."""

    def __init__(self, connected: socket.socket, *, seconds: float, bytes_max: int) -> None:
        self._socket = connected
        self._seconds, self._bytes_max = seconds, bytes_max
        self._begin()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def sendall(self, data: bytes) -> None:
        self._socket.sendall(data)
        self._begin()

    def send(self, data: bytes) -> int:
        count = self._socket.send(data)
        self._begin()
        return count

    def recv(self, count: int) -> bytes:
        data = self._socket.recv(count)
        self._count(len(data))
        return data

    def recv_into(self, buffer: Any) -> int:
        count = self._socket.recv_into(buffer)
        self._count(count)
        return count

    def _begin(self) -> None:
        self._deadline, self._left = time.monotonic() + self._seconds, self._bytes_max

    def _count(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise ConnectionAbortedError(f"more than {self._bytes_max:,} bytes")
        if time.monotonic() > self._deadline:
            raise TimeoutError


def shut_down(number: int) -> None:
    """Ends a connection of a client that is not ours, by the number of its socket. Whoever waits for the
    server gets an error."""
    with socket.socket(fileno=os.dup(number)) as own:
        own.shutdown(socket.SHUT_RDWR)


def tls_context(ca: Path | None, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """The TLS settings of a connection. `ca`: a file with certificates to trust instead of the system's.
    `certificate`, `key`: files of the client. Raises `ConfigError` if a file cannot be read."""
    try:
        context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    except OSError as error:  # also one that is no certificate
        raise _unreadable(ca, error, "sink.ca") from None
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key)
        except OSError as error:
            raise _unreadable(certificate, error, "sink.certificate` and `sink.key") from None
    return context


def _unreadable(path: Path | None, error: OSError, option: str) -> TargetRefused:
    return TargetRefused(
        f"The certificates in {path} cannot be read: {error.strerror or type(error).__name__}.",
        hint=f"Correct `{option}`.",
    )


def in_words(error: object) -> str:
    """Why a server could not be reached, as the end of a sentence, without anything that was sent."""
    if isinstance(error, ConnectionRefusedError):
        return "it refuses connections, so nothing listens there"
    if isinstance(error, socket.gaierror):
        return "its host name cannot be resolved"
    if isinstance(error, TimeoutError):
        return "it does not answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid here ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return "it does not speak TLS as expected"
    if isinstance(error, ConnectionError):
        return "it closed the connection"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__
