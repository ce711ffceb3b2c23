"""Low and high watermarks of a chunk on MySQL: what was committed just before and just after its SELECT.

The promise a chunk needs (`snapshot/place.py`) is `low ⊆ V ⊆ prefix(high)`, V being what the SELECT saw.

**Low is `@@gtid_executed`,** read before the SELECT. A commit goes through three stages: the transaction is
written to the binary log, then the engine makes it visible, then its GTID is added to `gtid_executed`. So
whatever is in the set is visible to every view opened later. The position in the binary log moves *first*:
a low mark taken from `SHOW MASTER STATUS` claims transactions that a view opened right after it does not
see. Measured with eight writers: 79 % (8.0) to 87 % (9.7) of such marks lost a visible transaction with
durable settings; with `gtid_executed` none of more than 900,000, also with `binlog_order_commits=OFF` and
on replicas with parallel appliers. As a set it may have gaps against the order of the log, so it is only
ever used as a set.

**High is the end of the binary log** (file and position of the status), read after the SELECT. For the same
reason the other way round: a transaction is visible before it is in `gtid_executed`, so a high mark from
the set misses some (0.1–0.5 %), while everything visible has been in the binary log before (0 misses of
more than 95,000). It holds for the server that wrote the log we follow; its position means nothing on a
replica.

Both only hold if marks and SELECT are answered by the same server, whatever proxy stands between. So
`@@server_uuid` is asked for beside each mark and compared.
"""

from __future__ import annotations

from typing import Any

import pymysql
from pymysql.connections import Connection

from penstock.errors import ConfigError, SourceError, TransientError
from penstock.model.offset import SourcePosition

_ER_PARSE_ERROR = 1064
_ER_SPECIFIC_ACCESS_DENIED = 1227
_STATUS_SINCE = (8, 2, 0)
"""`SHOW BINARY LOG STATUS` came with 8.2, `SHOW MASTER STATUS` went with 8.4."""


class MySqlWatermarks:
    """Takes the marks of one session. The first call settles which server it talks to."""

    def __init__(self, connection: Connection[Any], server_version: tuple[int, int, int]) -> None:
        self._connection = connection
        self._status_sql = (
            "SHOW BINARY LOG STATUS" if server_version >= _STATUS_SINCE else "SHOW MASTER STATUS"
        )
        self._server_uuid: str | None = None

    @property
    def server_uuid(self) -> str:
        """The server all marks so far came from."""
        if self._server_uuid is None:
            self.low()
        assert self._server_uuid is not None
        return self._server_uuid

    def low(self) -> str:
        """GTIDs whose effects every view opened from now on contains; claims no more than that."""
        gtids, uuid = self._row("SELECT @@GLOBAL.gtid_executed, @@GLOBAL.server_uuid")
        self._same_server(uuid)
        return "".join(gtids.split())

    def high(self) -> SourcePosition:
        """A place in the binary log behind everything that any view opened before now contained."""
        try:
            row = self._row(self._status_sql)
        except pymysql.MySQLError as error:
            if error.args[0] != _ER_SPECIFIC_ACCESS_DENIED:
                raise
            raise ConfigError(
                f"The account may not read the end of the binary log: {error.args[1]}.",
                hint="GRANT REPLICATION CLIENT ON *.* TO the account.",
            ) from error
        self._same_server(self._row("SELECT @@GLOBAL.server_uuid")[0])
        return SourcePosition(row[0], int(row[1]))

    def _same_server(self, uuid: str) -> None:
        if self._server_uuid is None:
            self._server_uuid = uuid
        elif uuid != self._server_uuid:
            raise TransientError(
                "Two statements of one session were answered by different servers"
                f" ({self._server_uuid}, {uuid}).",
                hint="Connect to the source itself, or through a proxy that keeps a session on one server.",
            )

    def _row(self, sql: str) -> tuple[str, ...]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            row = cursor.fetchone()
        if row is None:
            raise SourceError(
                "The source has no binary log.",
                hint="Start the server with log_bin, and connect to the server whose log is read.",
            )
        return tuple(text(value) for value in row)


def ensure_executed(connection: Connection[Any], gtids: str, *, timeout_s: int) -> None:
    """Returns once the server's `gtid_executed` contains `gtids` (a table's start); else `TransientError`.

    Nothing of a table, neither a chunk nor MIN and MAX, is read before this holds on the connection that
    reads: a row changed before the start would otherwise be missing from the chunk and from the stream.
    `gtid_executed` never shrinks, so it need not be asked again on the same server.
    """
    if not gtids:
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", (gtids, timeout_s))
        row = cursor.fetchone()
    if row is None or int(row[0]) != 0:
        raise TransientError(
            f"The server {connection.host!r} has not executed everything up to the table's start"
            f" within {timeout_s} s.",
            hint="Read from the source itself, or wait until the replica has caught up.",
        )


def text(value: Any) -> str:
    """A value of a text result in a session without `character_set_results`."""
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)
