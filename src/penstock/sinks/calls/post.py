"""Posts changes to a URL, as JSON lines."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote

from penstock.errors import ConfigError, PenstockError, TableError, TransientError
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.calls.lines import lines_of
from penstock.sinks.calls.options import HttpOptions
from penstock.sinks.calls.sink import Changes
from penstock.sinks.http_connection import in_words


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Treats a redirection as an error. To follow it would send a GET without the changes, and a success
    would count."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)
PASSING = frozenset({408, 425, 429})
"""Answers below 500 after which the same request may succeed."""


class Post:
    """A function for `CallSink`. Each request has about `body_bytes`, and a header `Idempotency-Key` that is
    the same when the request is made again."""

    def __init__(self, options: HttpOptions) -> None:
        self._options = options

    def __call__(self, changes: Changes) -> None:
        lines: list[str] = []
        size = number = 0
        for batch in changes.batches:
            for line in lines_of(changes.table, batch):
                if lines and size + len(line) > self._options.body_bytes:
                    self._post(changes, number, lines)
                    lines, size, number = [], 0, number + 1
                lines.append(line)
                size += len(line) + 1
        if lines:
            self._post(changes, number, lines)

    def _post(self, changes: Changes, number: int, lines: list[str]) -> None:
        options, table = self._options, TableId.parse(changes.table)
        url = options.url.replace("{database}", quote(table.database, safe=""))
        request = urllib.request.Request(
            url.replace("{table}", quote(table.table, safe="")),
            data=("\n".join(lines) + "\n").encode("utf-8", "replace"),
            headers={
                "Content-Type": "application/x-ndjson",
                "Idempotency-Key": quote(f"{changes.key}/{number}", safe="/"),
                **{name: value.reveal() for name, value in options.headers.items()},
            },
            method="POST",
        )
        try:
            with _OPENER.open(request, timeout=options.timeout / 1000) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            raise _refused(table, error.code) from None
        except (urllib.error.URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise TransientError(
                f"Changes of {table} were not taken by the server of `sink.url`: {in_words(reason)}.",
                hint="Start the server, or correct `sink.url`. It is tried again until the server answers.",
            ) from None


def _refused(table: TableId, code: int) -> PenstockError:
    what = f"Changes of {table} were not taken: the server answers {code}"
    if code in (401, 403):
        return ConfigError(f"{what}.", hint="Check `sink.headers`.")
    if 300 <= code < 400:
        return ConfigError(
            f"{what}, which sends the request to another address.", hint="Write that address as `sink.url`."
        )
    if code >= 500 or code in PASSING:
        return TransientError(f"{what}.", hint="It is tried again.")
    return TableError(
        f"{what}.",
        hint="Let the server take them, then run "
        f"`penstock unpark FILE {argument(table)}`: the table continues from here.",
        table=str(table),
    )
