"""Requests to OpenSearch or Elasticsearch. Every request may arrive twice."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import quote

from penstock.sinks.http_connection import HttpConnection, NoAnswer, basic_authorization
from penstock.sinks.opensearch.options import OpenSearchOptions
from penstock.sinks.opensearch.values import as_line

JSON = {"Content-Type": "application/json"}
LINES = {"Content-Type": "application/x-ndjson"}


class Refused(Exception):
    """An answer that is an error. `kind`: the server's name for it. Its reason may have values of rows."""

    def __init__(self, status: int, kind: str) -> None:
        super().__init__(f"{status} {kind}")
        self.status = status
        self.kind = kind


Errors = (Refused, NoAnswer)


class Client:
    def __init__(self, options: OpenSearchOptions) -> None:
        headers: dict[str, str] = {}
        if key := options.api_key.reveal():
            headers = {"Authorization": f"ApiKey {key}"}
        elif options.user:
            headers = basic_authorization(options.user, options.password.reveal())
        self._connection = HttpConnection(
            options.url, headers, timeout_s=options.timeout / 1000, ca=options.ca
        )

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        accept: Collection[int] = (),
    ) -> Any:
        """Sends a request, and returns the answer. None: the status is one of `accept`. Raises `Refused` for
        other errors."""
        data = None if body is None else as_line(body)
        status, answer = self._connection.request(method, path, data, JSON if data is not None else {})
        if status in accept:
            return None
        return self._read(status, answer)

    def bulk(self, index: str, lines: bytes, *, alias: bool) -> list[dict[str, Any]]:
        """Sends operations, and returns the server's answer to each. `alias`: only if the index is an
        alias."""
        path = f"/{quoted(index)}/_bulk" + ("?require_alias=true" if alias else "")
        status, answer = self._connection.request("POST", path, lines, LINES)
        found = self._read(status, answer)
        return [next(iter(one.values())) for one in found["items"]]

    def _read(self, status: int, answer: bytes) -> Any:
        if status < 300:
            return json.loads(answer) if answer else {}
        raise Refused(status, _kind(answer))

    def close(self) -> None:
        self._connection.close()


def quoted(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="")


def _kind(answer: bytes) -> str:
    try:
        error = json.loads(answer)["error"]
        return str(error["type"])
    except (ValueError, KeyError, TypeError):
        return ""
