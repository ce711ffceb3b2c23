"""Statements for ClickHouse, over HTTP. Every one may arrive twice."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from penstock.sinks.clickhouse.options import ClickHouseOptions
from penstock.sinks.http_connection import HttpConnection, NoAnswer

NATIVE_DATES_FROM = (21, 9)
"""The first release with Date32 and DateTime64 of the whole range, and with Bool soon after."""


STREAM_SECONDS_MAX = 3600
"""How long a query of a whole table may take to begin to answer."""
_WHOLE = "/?wait_end_of_query=1"
"""The server answers when everything is done. Otherwise an error in the middle would not be reported."""


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
        headers = {"X-ClickHouse-User": options.user, "X-ClickHouse-Key": options.password.reveal()}
        self._connection = HttpConnection(
            options.url, headers, timeout_s=options.timeout / 1000, ca=options.ca
        )

    @cached_property
    def version(self) -> tuple[int, int]:
        text = str(self.rows("SELECT version()")[0][0])
        major, minor = map(int, text.split(".")[:2])
        return major, minor

    @property
    def is_modern(self) -> bool:
        return self.version >= NATIVE_DATES_FROM

    def run(self, statement: str, data: bytes = b"") -> bytes:
        """Runs a statement. `data`: rows, after an INSERT that ends in its format."""
        body = statement.encode("utf-8", "surrogatepass") + (b"\n" + data if data else b"")
        status, answer = self._connection.request("POST", _WHOLE, body)
        if status != 200:
            raise _refused(status, answer)
        return answer

    def stream(self, query: str) -> Iterator[bytes]:
        """The parts of a long answer."""
        status, parts = self._connection.stream("POST", _WHOLE, query.encode(), timeout_s=STREAM_SECONDS_MAX)
        if status != 200:
            raise _refused(status, b"".join(parts))
        yield from parts

    def rows(self, query: str) -> list[list[Any]]:
        """The rows of a query. Large integers come as texts."""
        found: list[list[Any]] = json.loads(self.run(f"{query} FORMAT JSONCompact"))["data"]
        return found

    def close(self) -> None:
        self._connection.close()


def _refused(status: int, answer: bytes) -> Refused:
    match = re.search(rb"Code: (\d+)", answer)
    return Refused(status, int(match[1]) if match else 0)


def quoted(name: str) -> str:
    """A name as SQL."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def text(value: str) -> str:
    """A text as SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0") + "'"
