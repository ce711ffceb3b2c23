"""Errors of the server and of the connection, as Penstock's: who acts, and what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from penstock.connections.answers import NoAnswer
from penstock.connections.verdicts import Codes, Verdict
from penstock.errors import PenstockError, TableError, TargetRefused, TransientError
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.rabbitmq_streams import wire
from penstock.sinks.rabbitmq_streams.connection import Failed

_IN_WORDS = {
    wire.NO_STREAM: "the stream does not exist",
    wire.STREAM_NOT_AVAILABLE: "the stream is not available",
    wire.AUTHENTICATION_FAILED: "the server refuses this account",
    wire.ONLY_FROM_LOOPBACK: "the server accepts this account only from its own machine",
    wire.NO_VIRTUAL_HOST: "the account has no access to the virtual host, or there is none",
    wire.INTERNAL_ERROR: "an error inside the server, see its log",
    wire.ACCESS_REFUSED: "the account has not the rights for this",
    wire.PRECONDITION_FAILED: "there is a queue, or a stream with other settings, of this name",
}
CODES = Codes(
    "https://github.com/rabbitmq/rabbitmq-server/blob/main/deps/rabbitmq_stream/docs/PROTOCOL.adoc"
    "#response-codes",
    outage=frozenset({
        wire.NO_STREAM, wire.STREAM_NOT_AVAILABLE, wire.INTERNAL_ERROR,
        13, 14, 18,  # a frame too large, an unknown frame, a publisher that is gone: of this connection
    }),
    other=Verdict.CONFIGURATION,
)  # fmt: skip
"""By the code of an answer. The sink parks the table if it is about its stream only."""


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Turns errors of the connection and of the server in the block into Penstock's. `what` begins the
    message."""
    try:
        yield
    except (NoAnswer, Failed) as error:
        raise of(error, what) from None


def of(error: Exception, what: str) -> PenstockError:
    if isinstance(error, NoAnswer):
        return TransientError(
            f"{what}: {error}.",
            hint="It is tried again until the server answers. One that has reached its limit for memory or "
            "disk takes no messages.",
        )
    assert isinstance(error, Failed)
    text = f"{what}: {in_words(error)}."
    if CODES.verdict(error.code) is Verdict.OUTAGE:
        return TransientError(text, hint="It is tried again.")
    return TargetRefused(
        text,
        hint="Check `sink.url`, `sink.user` and `sink.password`. The account needs the rights to configure, "
        "write and read the streams of its tables and `penstock-*`.",
    )


def in_words(error: Failed) -> str:
    return f"{error}: {_IN_WORDS.get(error.code, f'the server answers with the code {error.code}')}"


def too_large(table: TableId, size: int, limit: int) -> TableError:
    return TableError(
        f"A message of {table} has {size} bytes, but the server takes at most {limit}.",
        hint=f"Raise `stream.frame_max` of the server. Then run `penstock unpark FILE {argument(table)}`.",
        table=str(table),
    )
