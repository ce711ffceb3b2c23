"""Connections over HTTP to one server, which stay open between requests. Any thread may make requests.

A connection that was idle may have been closed by the server. Then the request is made once more over a new
one, so every request must be one that may arrive twice.

An answer is read up to a number of bytes and until a deadline, which counts for the whole of it: also for its
headers, and for `100 Continue` without end. No redirection is followed: another address must not get
credentials, and a POST would become a GET.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import http.client
import io
import select
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from penstock.connections import tcp
from penstock.connections.answers import STRANGE, NoAnswer, parsed
from penstock.errors import ConfigError

ANSWER_BYTES_MAX = 64 * 1024**2
"""Bytes of an answer that is kept in memory."""
PART_BYTES = 1024**2
"""Bytes of a long answer that are read at once."""
IDLE_MAX = 16  # as many tables as are written side by side
_READ_AT_ONCE = 64 * 1024
"""Bytes of a short answer that are read at once."""
_NOT_NOW = frozenset({408, 425, 429})
"""Statuses below 500 after which the same request may succeed."""


@dataclass(frozen=True)
class Answer:
    """`body` may have values of rows."""

    status: int
    headers: http.client.HTTPMessage
    """By their names in any case."""
    body: bytes = field(repr=False)

    @property
    def done(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_page(self) -> bool:
        """Whether this is a page for people, as of a proxy or a login: not what a program answers."""
        start = self.body[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
        return start.startswith((b"<!doctype html", b"<html"))

    def json(self, shape: Any = object) -> Any:
        """The JSON that was answered (`answers.fits`). Raises `NoAnswer`."""
        return parsed(self.body, shape)


def is_outage(status: int) -> bool:
    """Whether a status says nothing about the request itself: the same one may succeed later. A redirection
    is one: servers of this kind answer none, but what stands in front of them does."""
    return status < 200 or 300 <= status < 400 or status >= 500 or status in _NOT_NOW


class HttpConnection:
    """A kept connection to a server. `url`: `http://host:port/prefix`, or https. `headers`: asked for before
    each request, as passwords may change. `tls`: for https, if not the
    system's settings. `through_proxy`: by way of the proxy that the environment names, if it names one.
    `timeout_s`: how long a whole answer may take."""

    def __init__(
        self,
        url: str,
        headers: Callable[[], Mapping[str, str]],
        *,
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
        through_proxy: bool = False,
    ) -> None:
        parts = urlsplit(url)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port
        self._prefix = parts.path.rstrip("/")
        self._headers = headers
        self._timeout_s = timeout_s
        self._tls = (tls or ssl.create_default_context()) if self._secure else None
        self._proxy = _proxy_of(parts.scheme, self._host) if through_proxy else None
        if self._proxy is not None and not self._secure:
            self._prefix = f"http://{parts.netloc}{self._prefix}"
        self._idle: list[http.client.HTTPConnection] = []
        self._guard = threading.Lock()

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        bytes_max: int = ANSWER_BYTES_MAX,
    ) -> Answer:
        """Sends a request, and reads the whole answer. Raises `NoAnswer`."""
        wanted = self._wanted(headers or {})
        while True:
            kept = self._kept()
            connection = kept or self._new()
            try:
                answer = self._begun(connection, method, path, body, wanted, self._timeout_s)
                found = Answer(answer.status, answer.headers, _whole(answer, bytes_max))
            except TimeoutError:
                connection.close()
                raise NoAnswer(in_words(TimeoutError())) from None
            except NoAnswer:
                connection.close()
                raise
            except (http.client.HTTPException, OSError) as error:
                connection.close()
                if kept is None:
                    raise NoAnswer(in_words(error)) from None
                continue
            except BaseException:
                connection.close()
                raise
            with self._guard:
                if answer.will_close or answer.status < 200 or len(self._idle) >= IDLE_MAX:
                    connection.close()
                else:
                    self._idle.append(connection)
            return found

    def stream(
        self, method: str, path: str, body: bytes, *, timeout_s: float
    ) -> tuple[int, http.client.HTTPMessage, Iterator[bytes]]:
        """Sends a request over a connection of its own. Returns the status, the headers, and the parts of a
        long answer, for each of which the server has `timeout_s`. The call and the parts raise `NoAnswer`."""
        connection = self._new()
        try:
            answer = self._begun(connection, method, path, body, self._wanted({}), timeout_s)
        except (http.client.HTTPException, OSError) as error:
            connection.close()
            raise NoAnswer(in_words(error)) from None
        except BaseException:
            connection.close()
            raise

        def parts() -> Iterator[bytes]:
            try:
                while part := _part(answer, PART_BYTES):
                    yield part
                    answer.until(time.monotonic() + timeout_s)
            except (http.client.HTTPException, OSError) as error:
                raise NoAnswer(in_words(error)) from None
            finally:
                connection.close()

        return answer.status, answer.headers, parts()

    def _wanted(self, more: Mapping[str, str]) -> dict[str, bytes]:
        headers = {name: _header(name, value) for name, value in {**self._headers(), **more}.items()}
        return headers if self._proxy is None or self._secure else headers | dict(self._proxy.headers)

    def _begun(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, bytes],
        timeout_s: float,
    ) -> _Answering:
        """Sends a request, and reads the headers of the answer."""
        if connection.sock is None:
            connection.connect()
        connection.sock.settimeout(self._timeout_s)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.request(method, self._prefix + path, body, headers)
        # A server that does not want all of a large body answers, and closes the connection.
        response: Any = functools.partial(_Answering, time.monotonic() + timeout_s)
        connection.response_class = response
        try:
            answer: _Answering = connection.getresponse()  # type: ignore[assignment]
        except ValueError:  # what it says cannot be taken apart
            raise NoAnswer(STRANGE) from None
        lengths = answer.headers.get_all("Content-Length", [])
        if len({one.strip() for one in lengths}) > 1 or not all(one.strip().isdecimal() for one in lengths):
            raise NoAnswer(STRANGE)
        return answer

    def _kept(self) -> http.client.HTTPConnection | None:
        """A connection that is open and idle. One with input was closed by the server, or has an answer that
        nobody has asked for, and would be taken for that of the next request."""
        while True:
            with self._guard:
                if not self._idle:
                    return None
                found = self._idle.pop()
            if not select.select([found.sock], [], [], 0)[0]:
                return found
            found.close()

    def _new(self) -> http.client.HTTPConnection:
        host, port = (self._host, self._port) if self._proxy is None else (self._proxy.host, self._proxy.port)
        if not self._secure:
            return http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        made = http.client.HTTPSConnection(host, port, timeout=self._timeout_s, context=self._tls)
        if self._proxy is not None:
            made.set_tunnel(self._host, self._port, {k: v.decode() for k, v in self._proxy.headers.items()})
        return made

    def close(self) -> None:
        with self._guard:
            idle, self._idle = self._idle, []
        for one in idle:
            with contextlib.suppress(OSError):
                one.close()


class _Answering(http.client.HTTPResponse):
    """An answer that is read until a deadline, in the time of `time.monotonic`."""

    def __init__(self, deadline: float, sock: socket.socket, *more: Any, **options: Any) -> None:
        super().__init__(sock, *more, **options)
        raw = _Until(deadline, sock, self.fp.detach())
        self.until = raw.until
        self.fp = io.BufferedReader(raw)


class _Until(io.RawIOBase):
    def __init__(self, deadline: float, sock: socket.socket, raw: io.RawIOBase) -> None:
        self._deadline, self._sock, self._raw = deadline, sock, raw

    def until(self, deadline: float) -> None:
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _part(answer: _Answering, bytes_max: int) -> bytes:
    """The next bytes of the body; none: it has ended. Raises an error if it was cut."""
    buffer = bytearray(bytes_max)
    try:
        count = answer.readinto(buffer)
    except ValueError:  # of a length or a chunk
        raise NoAnswer(STRANGE) from None
    if not count and answer.length:
        raise http.client.IncompleteRead(b"", answer.length)
    return bytes(memoryview(buffer)[:count])


def _whole(answer: _Answering, bytes_max: int) -> bytes:
    found = bytearray()
    while part := _part(answer, _READ_AT_ONCE):
        found += part
        if len(found) > bytes_max:
            raise NoAnswer(f"it answers more than {bytes_max:,} bytes")
    return bytes(found)


@dataclass(frozen=True)
class _Proxy:
    host: str
    port: int | None
    headers: Mapping[str, bytes] = field(repr=False)


def _proxy_of(scheme: str, host: str) -> _Proxy | None:
    """The proxy that the environment names for this host (`http_proxy`, `https_proxy`, `no_proxy`)."""
    url = urllib.request.getproxies().get(scheme)
    if not url or urllib.request.proxy_bypass(host):
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    headers = {}
    if parts.username:
        account = basic_authorization(unquote(parts.username), unquote(parts.password or ""))
        headers["Proxy-Authorization"] = account["Authorization"].encode()
    return _Proxy(parts.hostname or "", parts.port, headers)


def _header(name: str, value: str) -> bytes:
    """A header's value. Raises `ConfigError` without showing it: it may be a secret."""
    if any(character < " " and character != "\t" for character in value):
        raise ConfigError(
            f"The value for the HTTP header {name} has a line break or another control character.",
            hint="Correct it; a file with a secret may end in an empty line.",
        )
    return value.encode("utf-8", "surrogateescape")


def in_words(error: object) -> str:
    """Why a server could not be reached, as the end of a sentence, without anything that was sent."""
    if isinstance(error, http.client.HTTPException):
        return "it closed the connection, or did not answer in HTTP"
    if isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError):
        return "it closed the connection, or did not answer in HTTP"
    return tcp.in_words(error)


def basic_authorization(user: str, password: str) -> dict[str, str]:
    """The header for an account. Contains the password."""
    pair = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}
