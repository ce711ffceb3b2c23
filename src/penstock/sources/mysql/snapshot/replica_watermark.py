"""Takes the watermarks of a chunk that is read from a replica, while the log comes from its source.

A position in the replica's binary log says nothing about the source's log, so both watermarks are GTID sets.

**Low** is the replica's `gtid_executed` before the SELECT. The replica commits like any server: the engine
first, the GTID last (`watermark.py`). So the whole set is visible. With parallel appliers the set has gaps,
and with `replica_preserve_commit_order = OFF` it also has another order than the log. It is used only as a
set. Transactions of one row are never reordered.

**High** is everything that the replica has received (`Retrieved_Gtid_Set` of its channels) or executed, read
after the SELECT. `gtid_executed` alone would miss transactions that are visible and not in the set yet. But
the replica has received a transaction before it makes it visible: the receiver adds the GTID when the last
event is in the relay log, before the applier learns of it. The set of received transactions is emptied only
while the appliers are stopped (RESET REPLICA). Then everything visible is in `gtid_executed`. So the received
ones are read first and the executed ones second, and their union has everything that was visible. (SHOW
REPLICA STATUS shows the same set as `performance_schema.replication_connection_status`, and needs only a
privilege that the account has.)

This is true for replicated transactions. What is written on the replica itself never comes to the followed
log, so it is left out of the high watermark: all transactions of the replica's own `server_uuid`, except
those that the source has (from a time when the replica was the source). If somebody promotes the replica
while a chunk is read, such watermarks are wrong. So at both watermarks the server must replicate, and
`read_only` must be the same. Otherwise the chunk is read again.
"""

from __future__ import annotations

from typing import Any

from pymysql.connections import Connection

from penstock._core import GtidSet
from penstock.errors import InternalError, TransientError
from penstock.sources.mysql.binlog_position import UNKNOWN
from penstock.sources.mysql.connection import query, query_named
from penstock.sources.mysql.dialect import Dialect
from penstock.sources.mysql.snapshot.replicas import ReplicaOf, of_server
from penstock.sources.mysql.snapshot.watermark import ensure_executed, text
from penstock.sources.mysql.snapshot.window import MySqlWindow


class ReplicaWatermarks:
    """The watermarks of one session at a replica. `server_uuid`: the server whose log is followed."""

    def __init__(self, connection: Connection[Any], replica_of: ReplicaOf) -> None:
        self._connection = connection
        self._dialect = Dialect.detect(connection)
        self._replica_of = replica_of
        self._uuid = ""
        self._read_only = ""
        self._low = ""

    @property
    def server_uuid(self) -> str:
        return self._replica_of.source_uuid

    def require(self, gtids: str, *, timeout_s: float) -> None:
        ensure_executed(self._connection, gtids, timeout_s=timeout_s)

    def begin(self) -> None:
        self._received()
        self._uuid, self._read_only, self._low = self._state()

    def end(self) -> MySqlWindow:
        received = self._received()
        uuid, read_only, executed = self._state()
        if (uuid, read_only) != (self._uuid, self._read_only):
            raise self._changed("it is another server now, or read_only was changed")
        all_ = received.union(GtidSet(executed))
        local = of_server(all_, uuid).difference(GtidSet(self._replica_of.own))
        return MySqlWindow(self._low, UNKNOWN, high_gtids=str(all_.difference(local)))

    def open_view(self) -> MySqlWindow:
        raise InternalError("Views for several statements are not read from replicas.")

    def _received(self) -> GtidSet:
        rows = query_named(self._connection, self._dialect.replica_status)
        if not rows:
            raise self._changed("it replicates from no server")
        found = GtidSet()
        for row in rows:
            found = found.union(GtidSet("".join(text(row["Retrieved_Gtid_Set"] or "").split())))
        return found

    def _state(self) -> tuple[str, str, str]:
        [row] = query(
            self._connection,
            "SELECT @@GLOBAL.server_uuid, CAST(@@GLOBAL.read_only AS CHAR), @@GLOBAL.gtid_executed",
        )
        uuid, read_only, executed = (text(value) for value in row)
        return uuid, read_only, "".join(executed.split())

    def _changed(self, why: str) -> TransientError:
        return TransientError(
            f"Chunks cannot be read from {self._connection.host!r} as from a replica any more: {why}."
        )
