"""Statements for ClickHouse, over HTTP. Every one may arrive twice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

from penstock.connections import tcp
from penstock.connections.answers import STRANGE, NoAnswer, parsed, reading
from penstock.connections.http import HttpConnection
from penstock.sinks.clickhouse.options import ClickHouseOptions

NATIVE_DATES_FROM = (21, 9)
"""The first release with Date32 and DateTime64 of the whole range, and with Bool soon after."""


STREAM_SECONDS_MAX = 3600
"""How long a query of a whole table may take to begin to answer."""
_WHOLE = "/?wait_end_of_query=1"
"""The server answers when everything is done. Otherwise an error in the middle would not be reported."""
_OWN_HEADERS = "x-clickhouse-"
"""How headers begin of which every answer of the server has some. An empty answer of something else would
look as if a statement was done."""
_ERROR_BYTES_MAX = 64 * 1024
"""Bytes of an error in which its code is looked for."""


class Refused(Exception):
    """A statement that the server refuses. `code`: the number of the server's exception. The text may have
    values of rows."""

    def __init__(self, status: int, code: int) -> None:
        super().__init__(f"{status}, code {code}")
        self.status = status
        self.code = code


Errors = (Refused, NoAnswer)


class Client:
    def __init__(self, options: ClickHouseOptions) -> None:
        def headers() -> dict[str, str]:
            return {"X-ClickHouse-User": options.user, "X-ClickHouse-Key": options.password.reveal()}

        self._connection = HttpConnection(
            options.url, headers, timeout_s=options.timeout / 1000, tls=tcp.tls_context(options.ca)
        )

    @cached_property
    def version(self) -> tuple[int, int]:
        rows = self.rows("SELECT version()")
        with reading():
            major, minor = map(int, str(rows[0][0]).split(".")[:2])
        return major, minor

    @property
    def is_modern(self) -> bool:
        return self.version >= NATIVE_DATES_FROM

    def run(self, statement: str, data: bytes = b"") -> bytes:
        """Runs a statement. `data`: rows, after an INSERT that ends in its format."""
        body = statement.encode("utf-8", "surrogatepass") + (b"\n" + data if data else b"")
        answer = self._connection.request("POST", _WHOLE, body)
        _check(answer.status, answer.headers, answer.body)
        return answer.body

    def stream(self, query: str) -> Iterator[bytes]:
        """The parts of a long answer."""
        status, headers, parts = self._connection.stream(
            "POST", _WHOLE, query.encode(), timeout_s=STREAM_SECONDS_MAX
        )
        _check(status, headers, b"" if status == 200 else next(parts, b"")[:_ERROR_BYTES_MAX])
        yield from parts

    def rows(self, query: str) -> list[list[Any]]:
        """The rows of a query. Large integers come as texts."""
        answer = self.run(f"{query} FORMAT JSONCompact")
        found: list[list[Any]] = parsed(answer, {"data": [list]})["data"]
        return found

    def close(self) -> None:
        self._connection.close()


def _check(status: int, headers: Iterable[str], body: bytes) -> None:
    """Raises `Refused` for an error of the server, and `NoAnswer` for what only others answer."""
    match = re.search(rb"Code: (\d{1,9})", body)
    own = any(name.lower().startswith(_OWN_HEADERS) for name in headers)
    if status != 200 and match:
        raise Refused(status, int(match[1]))
    if status in (401, 403):
        raise Refused(status, 0)
    if status != 200 or not own:
        raise NoAnswer(f"{STRANGE} (HTTP {status})")


def quoted(name: str) -> str:
    """A name as SQL."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def text(value: str) -> str:
    """A text as SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0") + "'"
