"""Turns a source's refusals to send its log into errors with hints."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pymysql

from penstock.errors import ConfigError, LogDiverged, LogPurged, PenstockError, TransientError
from penstock.sources.mysql.options import MySqlOptions
from penstock.sources.mysql.server_identity import Server
from penstock.sources.mysql.start_position import DIVERGED_HINT, PURGED_HINT

_NO_PRIVILEGE = (1045, 1142, 1227, 3118)
_DIVERGED = (
    "has more gtids", "impossible position", "> file size",
    # MariaDB: the GTID is not in its log, or the log has a later one of the same domain instead.
    "which is not in the master's binlog", "diverged",
)  # fmt: skip

_NO_EVENT = ("max_allowed_packet", "bogus data", "corrupt")
"""Parts of the server's messages that say that no event begins at the requested position."""


@contextlib.contextmanager
def of_replication(config: MySqlOptions) -> Iterator[None]:
    """Turns missing privileges inside the block into a `ConfigError` with the GRANT."""
    try:
        yield
    except pymysql.Error as error:
        if error.args and error.args[0] in _NO_PRIVILEGE:
            raise no_privilege(config, str(error.args[1])) from error
        raise


def no_privilege(config: MySqlOptions, text: str) -> ConfigError:
    return ConfigError(
        f"The user {config.user!r} may not read the source's log: {text}.",
        hint=f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{config.user}'@'%';",
    )


def of_stream(
    error: tuple[int, str, str], server: Server, config: MySqlOptions, *, unproven: bool
) -> PenstockError:
    """The error for the ERR packet that ended a stream. `unproven`: the last stored transaction was requested
    again and has not arrived."""
    code, _, text = error
    lower = text.lower()
    if code in _NO_PRIVILEGE:
        return no_privilege(config, text)
    if code != 1236:
        return TransientError(f"The source ended the stream: {text} ({code}).", code=code)
    if "purged" in lower or "could not find first log" in lower or "have been deleted" in lower:
        oldest = server.files[0][0] if server.files else "unknown"
        return LogPurged(
            f"The source no longer has the log we need: {text}", hint=PURGED_HINT, needed=text, oldest=oldest
        )
    if "same server_uuid/server_id" in lower or "same server_id" in lower:
        return ConfigError(
            "Another replica with our server id or our relay log's identity has connected to the source, "
            f"which then threw this one out: {text}",
            hint="Is a copy of this relay log in use on another machine? If not, give source.server_id a "
            "number of its own.",
        )
    garbage = unproven and any(telling in lower for telling in _NO_EVENT)
    if garbage or any(telling in lower for telling in _DIVERGED):
        return LogDiverged(f"The source does not continue the relay log: {text}", hint=DIVERGED_HINT)
    # An unreadable event, a packet that is too large …: it may go away, so the receiver tries again.
    return TransientError(f"The source ended the stream: {text} (1236).", code=code, offset=0)
