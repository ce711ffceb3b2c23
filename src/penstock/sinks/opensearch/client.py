"""Requests to OpenSearch or Elasticsearch. Every request may arrive twice."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import quote

from penstock.connections import tcp
from penstock.connections.answers import NoAnswer
from penstock.connections.http import Answer, HttpConnection, basic_authorization, is_outage
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


_NEGATIVE = ({"error": (str, {"type": str})}, {"_index": str}, {"succeeded": bool})
"""Answers with a status of 400 and more: an error; a document, or a scroll, that is not there."""
_OF_OTHERS = frozenset({401, 403, 413})
"""Errors that count, whoever answers them: also a proxy."""
Errors = (Refused, NoAnswer)


class Client:
    def __init__(self, options: OpenSearchOptions) -> None:
        def headers() -> dict[str, str]:
            if key := options.api_key.reveal():
                return {"Authorization": f"ApiKey {key}"}
            return basic_authorization(options.user, options.password.reveal()) if options.user else {}

        self._connection = HttpConnection(
            options.url, headers, timeout_s=options.timeout / 1000, tls=tcp.tls_context(options.ca)
        )

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        accept: Collection[int] = (),
        shape: Any = dict,
    ) -> Any:
        """Sends a request, and returns the answer. `shape`: what of it the caller relies on
        (`answers.fits`). None: the status is one of `accept`. Raises `Refused` for other errors."""
        data = None if body is None else as_line(body)
        answer = self._connection.request(method, path, data, JSON if data is not None else {})
        if method == "HEAD" and (answer.done or answer.status in accept):
            return {} if answer.done else None
        return _read(answer, accept, shape)

    def bulk(self, index: str, lines: bytes, *, alias: bool) -> list[dict[str, Any]]:
        """Sends operations, and returns the server's answer to each. `alias`: only if the index is an
        alias."""
        path = f"/{quoted(index)}/_bulk" + ("?require_alias=true" if alias else "")
        answer = self._connection.request("POST", path, lines, LINES)
        items = _read(answer, (), {"items": [{...: {"status": int}}]})["items"]
        return [next(iter(one.values())) for one in items if one]

    def close(self) -> None:
        self._connection.close()


def quoted(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="")


def _read(answer: Answer, accept: Collection[int], shape: Any) -> Any:
    if answer.done:
        return answer.json(shape)
    if is_outage(answer.status) or answer.status in _OF_OTHERS:
        raise Refused(answer.status, _kind(answer))
    answer.json(_NEGATIVE)  # else a proxy's 404 would mean that there is no such index
    if answer.status in accept:
        return None
    raise Refused(answer.status, _kind(answer))


def _kind(answer: Answer) -> str:
    with contextlib.suppress(NoAnswer):
        return str(answer.json({"error": {"type": str}})["error"]["type"])
    return ""
