"""Errors of the server and of the connection, as Penstock's: who acts, and what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from penstock.connections.answers import NoAnswer
from penstock.connections.verdicts import Codes, Verdict
from penstock.errors import ConfigError, PenstockError, TableError, TargetRefused, TransientError
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.nats.connection import NoResponder, Refused
from penstock.sinks.nats.jetstream import WRONG_LAST, ApiError

_NOT_ENABLED = frozenset({10039, 10076})
_FULL = frozenset({10002, 10023, 10026, 10028, 10047, 10077, 10122, 10167})
CODES = Codes(
    "https://github.com/nats-io/nats-server/blob/main/server/errors.json",
    outage=frozenset({
        *_FULL,  # streams, storage, memory, limits of an account
        *WRONG_LAST,  # the newest message is another one
        10004, 10005, 10006, 10007, 10008, 10009, 10041,  # the cluster, its leader
        408, 429, *range(500, 600),
    }),
    configuration=_NOT_ENABLED,
    other=Verdict.CONFIGURATION,
)  # fmt: skip
"""By JetStream's number of an error, and by its status. No error of JetStream is about one row only."""
_AGAIN = "It is tried again."


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Turns errors of the connection and of JetStream in the block into Penstock's. `what` begins the
    message."""
    try:
        yield
    except (NoAnswer, Refused, NoResponder, ApiError) as error:
        raise of(error, what) from None


def of(error: Exception, what: str) -> PenstockError:
    if isinstance(error, NoAnswer):
        return TransientError(f"{what}: {error}.", hint="It is tried again until the server answers.")
    if isinstance(error, Refused):
        return TargetRefused(
            f"{what}: the server refuses this client ({error}).",
            hint="Check `sink.user`, `sink.password`, `sink.token` and `sink.credentials`, whether the URL "
            "wants tls://, and what the account may do (`penstock docs nats` lists it).",
        )
    if isinstance(error, NoResponder):
        return TransientError(
            f"{what}: JetStream does not answer. It is switched off, or has switched itself off because its "
            "storage is full, or the stream has no leader.",
            hint=f"See the server's log. {_AGAIN}",
        )
    assert isinstance(error, ApiError)
    if error.code in _NOT_ENABLED:
        return ConfigError(
            f"{what}: the server has no JetStream for this account.",
            hint="Start it with `-js`, or switch JetStream on in its configuration.",
        )
    full = "maximum" in str(error)  # of a limit that has no number of its own
    if error.code in _FULL or full:
        return TransientError(
            f"{what}: the stream or its storage is full ({error}).",
            hint=f"Make room, or raise the limits of the stream or of JetStream. {_AGAIN}",
        )
    if error.code in WRONG_LAST:
        return TransientError(
            f"{what}: others publish into the stream all the time, and come in between.",
            hint=f"Give the pipeline a stream of its own (`sink.stream`). {_AGAIN}",
        )
    if CODES.verdict(error.code, error.status) is Verdict.OUTAGE:
        return TransientError(f"{what}: {error}.", hint=_AGAIN)
    return ConfigError(f"{what}: {error}.", hint="Check the section `sink`.")


def too_large(table: TableId, size: int, limit: int) -> TableError:
    return TableError(
        f"A message of {table} has {size} bytes with its headers, but the server takes at most {limit}.",
        hint="Raise `max_payload` of the server (and the stream's maximum message size). Then run "
        f"`penstock unpark FILE {argument(table)}`.",
        table=str(table),
    )


def forgotten(url: str, key: str) -> ConfigError:
    return ConfigError(
        f"The server {url} has lost what this pipeline has written, or a part of it: the key {key} is gone.",
        hint="Was its bucket deleted (`sink.control`)? Restore it, or begin again with a new `state`.",
    )


def lost(url: str, stream: str) -> ConfigError:
    return ConfigError(
        f"The server {url} has lost what this pipeline has written, or a part of it: the stream {stream} "
        "ends before it.",
        hint="Was the stream deleted, or is it in memory? Restore it, or begin again with a new `state`.",
    )
