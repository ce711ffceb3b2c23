"""Connections over HTTP to one server, which stay open between requests. Any thread may make requests.

A connection that was idle may have been closed by the server. Then the request is made once more over a new
one, so every request must be one that may arrive twice.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from penstock.sinks import tcp_connection

PART_BYTES = 1024**2
"""Bytes of a long answer that are read at once."""
IDLE_MAX = 16  # as many tables as are written side by side


class NoAnswer(Exception):
    """The server could not be reached, or did not answer in time. Its text has no values of rows."""


class HttpConnection:
    """A kept connection to a server. `url`: `http://host:port/prefix`, or https. `ca`: a file with
    certificates to trust instead of the system's."""

    def __init__(self, url: str, headers: Mapping[str, str], *, timeout_s: float, ca: Path | None) -> None:
        parts = urlsplit(url)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port
        self._prefix = parts.path.rstrip("/")
        self._headers = dict(headers)
        self._timeout_s = timeout_s
        self._tls = tcp_connection.tls_context(ca) if self._secure else None
        self._idle: list[http.client.HTTPConnection] = []
        self._guard = threading.Lock()

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Sends a request. Returns the status and the body of the answer. Raises `NoAnswer`."""
        wanted = {**self._headers, **(headers or {})}
        while True:
            with self._guard:
                connection, reused = (self._idle.pop(), True) if self._idle else (self._new(), False)
            try:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    connection.request(method, self._prefix + path, body, wanted)
                # A server that does not want all of a large body answers, and closes the connection.
                answer = connection.getresponse()
                found = answer.status, answer.read()
            except TimeoutError:
                connection.close()
                raise NoAnswer(in_words(TimeoutError())) from None
            except (http.client.HTTPException, OSError) as error:
                connection.close()
                if not reused:
                    raise NoAnswer(in_words(error)) from None
                continue
            except BaseException:
                connection.close()
                raise
            with self._guard:
                if answer.will_close or len(self._idle) >= IDLE_MAX:
                    connection.close()
                else:
                    self._idle.append(connection)
            return found

    def stream(self, method: str, path: str, body: bytes, *, timeout_s: float) -> tuple[int, Iterator[bytes]]:
        """Sends a request over a connection of its own. Returns the status, and the parts of a long answer.
        The call and the parts raise `NoAnswer`."""
        connection = self._new()
        connection.timeout = timeout_s
        try:
            connection.request(method, self._prefix + path, body, self._headers)
            answer = connection.getresponse()
        except (http.client.HTTPException, OSError) as error:
            connection.close()
            raise NoAnswer(type(error).__name__) from None

        def parts() -> Iterator[bytes]:
            try:
                while part := answer.read(PART_BYTES):
                    yield part
            except (http.client.HTTPException, OSError) as error:
                raise NoAnswer(type(error).__name__) from None
            finally:
                connection.close()

        return answer.status, parts()

    def _new(self) -> http.client.HTTPConnection:
        if not self._secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=self._tls)

    def close(self) -> None:
        with self._guard:
            idle, self._idle = self._idle, []
        for one in idle:
            with contextlib.suppress(OSError):
                one.close()


def in_words(error: object) -> str:
    """Why a server could not be reached, as the end of a sentence, without anything that was sent."""
    if isinstance(error, http.client.HTTPException):
        return "it closed the connection, or did not answer in HTTP"
    if isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError):
        return "it closed the connection, or did not answer in HTTP"
    return tcp_connection.in_words(error)


def basic_authorization(user: str, password: str) -> dict[str, str]:
    """The header for an account. Contains the password."""
    pair = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}
