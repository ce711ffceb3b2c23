"""Posts changes to a URL, as JSON lines."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from penstock.connections.answers import NoAnswer
from penstock.connections.http import Answer, HttpConnection, is_outage
from penstock.errors import PenstockError, TableError, TargetRefused, TransientError
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.calls.lines import lines_of
from penstock.sinks.calls.options import HttpOptions
from penstock.sinks.calls.sink import Changes

_ANSWER_BYTES_MAX = 1024**2
"""Of an answer, only the status counts, and whether it is a page."""


class Post:
    """A function for `CallSink`. Each request has about `body_bytes`, and a header `Idempotency-Key` that is
    the same when the request is made again."""

    def __init__(self, options: HttpOptions) -> None:
        self._options = options
        self._connections: dict[str, HttpConnection] = {}
        """By scheme and host, which may depend on the table."""

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
        parts = urlsplit(url.replace("{table}", quote(table.table, safe="")))
        address = parts.netloc.rpartition("@")[2]
        try:
            answer = self._connection(f"{parts.scheme}://{parts.netloc}").request(
                "POST",
                parts._replace(scheme="", netloc="", path=parts.path or "/", fragment="").geturl(),
                ("\n".join(lines) + "\n").encode("utf-8", "replace"),
                {
                    "Content-Type": "application/x-ndjson",
                    "Idempotency-Key": quote(f"{changes.key}/{number}", safe="/"),
                    **{name: value.reveal() for name, value in options.headers.items()},
                },
                bytes_max=_ANSWER_BYTES_MAX,
            )
        except NoAnswer as error:
            raise TransientError(
                f"Changes of {table} were not taken by {address}: {error}.",
                hint="Start that server, or correct `sink.url`. It is tried again until the server answers.",
            ) from None
        if not answer.done or answer.is_page:
            raise _refused(table, answer, address)

    def _connection(self, url: str) -> HttpConnection:
        if url not in self._connections:
            self._connections[url] = HttpConnection(
                url, dict, timeout_s=self._options.timeout / 1000, through_proxy=True
            )
        return self._connections[url]


def _refused(table: TableId, answer: Answer, address: str) -> PenstockError:
    status = answer.status
    what = f"Changes of {table} were not taken: {address} answers {status}"
    if status in (401, 403):
        return TargetRefused(f"{what}.", hint="Check `sink.headers`.")
    if answer.done:
        return TransientError(
            f"{what} with a page of HTML, as a proxy or a login does.",
            hint="It is tried again. If this lasts, correct `sink.url` or `sink.headers`: a receiver "
            "answers no page.",
        )
    if 300 <= status < 400:
        return TransientError(
            f"{what}, which sends the request to another address.",
            hint="It is tried again. If this lasts, write that address as `sink.url`.",
        )
    if is_outage(status):
        return TransientError(f"{what}.", hint="It is tried again.")
    return TableError(
        f"{what}.",
        hint="Let the server take them, then run "
        f"`penstock unpark FILE {argument(table)}`: the table continues from here.",
        table=str(table),
    )
