"""Marks of a chunk that is read from a replica, while the log comes from its source.

A place in the replica's binary log says nothing about the source's, so both marks are GTID sets.

**Low** is the replica's `gtid_executed` before the SELECT. The replica commits like any server: engine first,
GTID last (`watermark.py`), so all of the set is visible. Appliers that work in parallel make it a set with
gaps, and with `replica_preserve_commit_order = OFF` also one in another order than the log's. It is only used
as a set. The same row's transactions are never reordered.

**High** is what the replica has received (`Retrieved_Gtid_Set` of its channels) and executed, after the
SELECT. `gtid_executed` alone would miss what is visible and not in it yet, as on the source. But what a
replica makes visible it has received before: the receiver adds a GTID to the set when the transaction's last
event is in the relay log, before it tells the applier of it. The set of received ones is emptied only while
the appliers are stopped (RESET REPLICA), when all that is visible is in `gtid_executed`: so the received are
asked for first, the executed after them, and their union holds all that was visible. (SHOW REPLICA STATUS
gives the set that `performance_schema.replication_connection_status` has, for a privilege that we have.)

This holds for what came by replication. What is written on the replica itself never comes to our log, so
it is left out of the high mark: all of its own `server_uuid`, but for what the source has (from a time when
the replica was the source). Somebody may make the replica a source while a chunk is being read; then marks of
this kind mean nothing. So at both marks it must replicate, and `read_only` be the same: else the chunk is
read again.
"""

from __future__ import annotations

from typing import Any

from pymysql.connections import Connection

from penstock._core import GtidSet
from penstock.errors import InternalError, TransientError
from penstock.model.offset import SourcePosition
from penstock.sources.mysql.connection import query, query_named
from penstock.sources.mysql.dialect import Dialect
from penstock.sources.mysql.snapshot.replicas import ReplicaOf, of_server
from penstock.sources.mysql.snapshot.watermark import ensure_executed, text
from penstock.sources.mysql.snapshot.window import MySqlWindow

NOWHERE = SourcePosition("", 0)


class ReplicaMarks:
    """One session's, at a replica. `server_uuid` is that of the server whose log the marks speak of."""

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
        return MySqlWindow(self._low, NOWHERE, high_gtids=str(all_.difference(local)))

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
