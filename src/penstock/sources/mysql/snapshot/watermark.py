"""Takes the low and high watermark of a chunk: what was committed right before and right after its SELECT.

A chunk needs the promise `low ⊆ V ⊆ prefix(high)` (`snapshot/placement.py`), where V is what the SELECT saw.
A commit has three stages. The transaction is written to the binary log, then the engine makes it visible,
then its GTID is added to `gtid_executed`. There are three ways to take watermarks.

**MySQL with GTIDs** (`GtidWatermarks`). The low watermark is `@@gtid_executed`, read before the SELECT. Every
later view sees the whole set. The end of the binary log would be wrong here, because it advances *first*: a
view that is opened right after it may not see its last transactions. Measured with eight writers and durable
settings, 79 % (8.0) to 87 % (9.7) of such watermarks claimed a transaction that was not visible. With
`gtid_executed` it was none of more than 900,000, also with `binlog_order_commits=OFF` and on replicas with
parallel appliers. The set may have gaps in the order of the log, so it is used only as a set. The high
watermark is the end of the binary log (file and position), read after the SELECT. Here `gtid_executed` would
be wrong, because a transaction is visible before it is in the set: 0.1 to 0.5 % of such watermarks missed
one. Everything visible is already in the binary log (0 misses of more than 95,000). The position is one of
the server whose log is followed; it means nothing on a replica.

**MySQL without GTIDs** (`TableWatermarks`). Before the SELECT, the end of the binary log is read, and then a
row of a table of the operator is changed. With `binlog_order_commits = ON`, the engine commits in the order
of the log. So when this change is committed, everything before it in the log is visible, and the low
watermark is the end that was read before the change. The setting is checked before and after each chunk. A
change without effect would not be logged and would not wait, so each writes a new value. The high watermark
is taken as above.

**MariaDB** (`SnapshotWatermarks`). `START TRANSACTION WITH CONSISTENT SNAPSHOT` opens the view at a position
of the binary log, which the status variables `Binlog_snapshot_file` and `_position` show. This is the low and
the high watermark at once, and V is the prefix. The variables belong to the process, so for a moment they may
show another session's values. They are read until three reads agree (0 wrong of 110,769). With another
isolation level than REPEATABLE READ, the server opens no snapshot and only warns. So any warning is an error.

All of this requires that one server answers the watermarks and the SELECT, whatever proxy is between. So the
identity of the server is read with each watermark and compared.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

import pymysql
from pymysql.connections import Connection

from penstock._core import GtidSet
from penstock.errors import ConfigError, SourceError, TransientError
from penstock.model.schema import TableId
from penstock.sources.mysql.binlog_position import UNKNOWN, BinlogPosition
from penstock.sources.mysql.dialect import Dialect
from penstock.sources.mysql.identifiers import quoted
from penstock.sources.mysql.snapshot.window import MySqlWindow

_ER_SPECIFIC_ACCESS_DENIED = 1227
_ER_OPTION_PREVENTS_STATEMENT = 1290
_ACCESS_DENIED = (1044, 1142, 1143)
_READS_MAX = 200
"""Reads of MariaDB's status variables until three in a row are equal."""
_OPEN_VIEW = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
_SLOTS = 256
"""Rows of a watermark table. With this many, sessions rarely wait for each other."""


class SessionWatermarks(Protocol):
    """Takes the watermarks of one session's chunks, one after the other."""

    @property
    def server_uuid(self) -> str:
        """The server of all watermarks so far."""

    def require(self, gtids: str, *, timeout_s: float) -> None:
        """Waits until later views contain `gtids` (a table's start). Raises `TransientError` if that takes
        too long."""

    def begin(self) -> None:
        """Takes the low watermark. Called right before the SELECT."""

    def end(self) -> MySqlWindow:
        """Takes the high watermark. Called right after the last row."""

    def open_view(self) -> MySqlWindow:
        """Opens one read view, which lasts until the session's transaction ends."""


def watermarks_of(connection: Connection[Any], watermark_table: str | None) -> SessionWatermarks:
    """The kind of watermarks for this server. Raises `ConfigError` if there is none."""
    dialect = Dialect.detect(connection)
    if dialect.mariadb:
        return SnapshotWatermarks(connection, dialect)
    if str(_row(connection, "SELECT @@GLOBAL.gtid_mode")[0]).upper() == "ON":
        return GtidWatermarks(connection, dialect)
    if watermark_table is None:
        raise ConfigError(
            "The source has gtid_mode other than ON, and a chunk of a snapshot finds its place in the log by "
            "GTIDs or by writes to a table of yours.",
            hint="Turn GTIDs on, or name a table in source.watermark_table (`penstock docs delivery` has its "
            "definition), or set snapshot.mode: never.",
        )
    return TableWatermarks(connection, dialect, watermark_table)


class LogEnd:
    """The end of the binary log. The first answer decides which server it is."""

    def __init__(self, connection: Connection[Any], dialect: Dialect | None = None) -> None:
        self._connection = connection
        self.dialect = dialect or Dialect.detect(connection)
        self._server_uuid: str | None = None

    @property
    def server_uuid(self) -> str:
        if self._server_uuid is None:
            self.same_server(_row(self._connection, f"SELECT {self.dialect.identity}")[0])
        assert self._server_uuid is not None
        return self._server_uuid

    def high(self) -> BinlogPosition:
        """A position in the binary log behind everything that any earlier view contained."""
        try:
            row = _row(self._connection, self.dialect.log_status)
        except pymysql.MySQLError as error:
            if error.args[0] != _ER_SPECIFIC_ACCESS_DENIED:
                raise
            raise ConfigError(
                f"The account may not read the end of the binary log: {error.args[1]}.",
                hint=f"GRANT {self.dialect.log_privileges[1]} ON *.* TO the account.",
            ) from error
        self.same_server(_row(self._connection, f"SELECT {self.dialect.identity}")[0])
        return BinlogPosition(row[0], int(row[1]))

    def same_server(self, uuid: str) -> None:
        if self._server_uuid is None:
            self._server_uuid = uuid
        elif uuid != self._server_uuid:
            raise TransientError(
                "Two statements of one session were answered by different servers"
                f" ({self._server_uuid}, {uuid}).",
                hint="Connect to the source itself, or through a proxy that keeps a session on one server.",
            )


class GtidWatermarks:
    """Watermarks of MySQL with GTIDs."""

    def __init__(self, connection: Connection[Any], dialect: Dialect) -> None:
        self._connection = connection
        self._end = LogEnd(connection, dialect)
        self._low = ""

    @property
    def server_uuid(self) -> str:
        return self._end.server_uuid

    def require(self, gtids: str, *, timeout_s: float) -> None:
        ensure_executed(self._connection, gtids, timeout_s=timeout_s)

    def begin(self) -> None:
        self._low = self.low()

    def end(self) -> MySqlWindow:
        return MySqlWindow(self._low, self.high())

    def open_view(self) -> MySqlWindow:
        self.begin()
        _execute(self._connection, _OPEN_VIEW)
        return self.end()

    def low(self) -> str:
        """The GTIDs whose effects every later view contains. It claims no others."""
        gtids, uuid = _row(self._connection, "SELECT @@GLOBAL.gtid_executed, @@GLOBAL.server_uuid")
        self._end.same_server(uuid)
        return "".join(gtids.split())

    def high(self) -> BinlogPosition:
        return self._end.high()


class TableWatermarks:
    """Watermarks of MySQL without GTIDs, by writes to a table with columns `slot` (key) and `mark`."""

    def __init__(self, connection: Connection[Any], dialect: Dialect, table: str) -> None:
        self._connection = connection
        self._end = LogEnd(connection, dialect)
        self._table = TableId.parse(table)
        self._low = UNKNOWN
        self._check_engine()

    @property
    def server_uuid(self) -> str:
        return self._end.server_uuid

    def require(self, gtids: str, *, timeout_s: float) -> None:
        """Does not wait. The start came from the log of this same server, and each low watermark lies behind
        all that its log held before."""

    def begin(self) -> None:
        self._check_order()
        self._low = self._end.high()
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(
                    f"INSERT INTO {quoted(self._table)} (slot, mark)"
                    f" VALUES (CONNECTION_ID() MOD {_SLOTS}, UUID()) ON DUPLICATE KEY UPDATE mark = UUID()"
                )
        except pymysql.MySQLError as error:
            if error.args[0] not in (*_ACCESS_DENIED, 1054, 1146, _ER_OPTION_PREVENTS_STATEMENT):
                raise
            raise self._unusable(f"cannot be written: {error.args[1]}") from error

    def end(self) -> MySqlWindow:
        high = self._end.high()
        self._check_order()
        return MySqlWindow("", high, self._low)

    def open_view(self) -> MySqlWindow:
        self.begin()
        _execute(self._connection, _OPEN_VIEW)
        return self.end()

    def _check_order(self) -> None:
        if _row(self._connection, "SELECT @@GLOBAL.binlog_order_commits")[0] != "1":
            raise ConfigError(
                "The source has binlog_order_commits = OFF: a write to the watermark table does not "
                "show which transactions are visible.",
                hint="SET GLOBAL binlog_order_commits = ON;",
            )

    def _check_engine(self) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(
                "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
                (self._table.database, self._table.table),
            )
            row = cursor.fetchone()
        if row is None:
            raise self._unusable("does not exist, or the account may not see it")
        if text(row[0]) != "InnoDB":
            raise self._unusable(f"has the engine {text(row[0])}, whose writes do not wait for other commits")

    def _unusable(self, why: str) -> ConfigError:
        return ConfigError(
            f"The watermark table {self._table} {why}.",
            hint=f"CREATE TABLE {quoted(self._table)} (slot SMALLINT UNSIGNED PRIMARY KEY, "
            f"mark CHAR(36) NOT NULL) ENGINE = InnoDB; "
            f"GRANT SELECT, INSERT, UPDATE ON {quoted(self._table)} TO the account.",
        )


class SnapshotWatermarks:
    """Watermarks of MariaDB."""

    def __init__(self, connection: Connection[Any], dialect: Dialect) -> None:
        self._connection = connection
        self._end = LogEnd(connection, dialect)
        self._place = UNKNOWN
        self._proven = ""

    @property
    def server_uuid(self) -> str:
        return self._end.server_uuid

    def require(self, gtids: str, *, timeout_s: float) -> None:
        """Opens views until one contains `gtids`. Later views of the session contain everything that an
        earlier one did."""
        deadline = time.monotonic() + timeout_s
        while gtids != self._proven:
            place = self._open()
            _execute(self._connection, "ROLLBACK")
            sql = "SELECT BINLOG_GTID_POS(%s, %s)"
            with self._connection.cursor() as cursor:
                cursor.execute(sql, (place.file, place.position))
                seen = text((cursor.fetchone() or ("",))[0] or "")
            if GtidSet(gtids).issubset(GtidSet(seen)):
                self._proven = gtids
            elif time.monotonic() > deadline:
                raise _replica_is_behind(self._connection, timeout_s)
            else:
                time.sleep(0.02)  # the commit that is missing is under way

    def begin(self) -> None:
        self._end.same_server(_row(self._connection, f"SELECT {self._end.dialect.identity}")[0])
        self._place = self._open()

    def end(self) -> MySqlWindow:
        _execute(self._connection, "COMMIT")
        self._end.same_server(_row(self._connection, f"SELECT {self._end.dialect.identity}")[0])
        return MySqlWindow(self._proven, self._place, self._place)

    def open_view(self) -> MySqlWindow:
        self.begin()
        self._end.same_server(_row(self._connection, f"SELECT {self._end.dialect.identity}")[0])
        return MySqlWindow(self._proven, self._place, self._place)

    def _open(self) -> BinlogPosition:
        """Opens a view, and returns its position in the binary log."""
        _execute(self._connection, _OPEN_VIEW)
        with self._connection.cursor() as cursor:
            cursor.execute("SHOW WARNINGS")
            if warning := cursor.fetchone():
                raise SourceError(f"The source opens no consistent snapshot: {text(warning[2])}.")
        agreed: list[BinlogPosition] = []
        for _ in range(_READS_MAX):
            place = self._read_place()
            agreed = [*agreed, place] if agreed and agreed[-1] == place else [place]
            if len(agreed) == 3:
                return place
        raise TransientError("MariaDB's Binlog_snapshot_position never stood still for three reads.")

    def _read_place(self) -> BinlogPosition:
        with self._connection.cursor() as cursor:
            cursor.execute("SHOW STATUS LIKE 'Binlog\\_snapshot\\_%'")
            fields = {text(name).lower(): text(value) for name, value in cursor.fetchall()}
        if not fields.get("binlog_snapshot_file"):
            raise _no_log()
        return BinlogPosition(fields["binlog_snapshot_file"], int(fields["binlog_snapshot_position"]))


def require_executed(connection: Connection[Any], gtids: str, *, timeout_s: float) -> None:
    """`SessionWatermarks.require` for callers that take no watermarks. Without GTIDs it does not wait: see
    `TableWatermarks`."""
    dialect = Dialect.detect(connection)
    if dialect.mariadb:
        SnapshotWatermarks(connection, dialect).require(gtids, timeout_s=timeout_s)
    else:
        ensure_executed(connection, gtids, timeout_s=timeout_s)


def ensure_executed(connection: Connection[Any], gtids: str, *, timeout_s: float) -> None:
    """Waits until MySQL's `gtid_executed` contains `gtids`, which the source had executed at the table's
    start. Raises `TransientError` if that takes too long.

    Nothing of a table is read before this is true on the reading connection, neither a chunk nor MIN and MAX.
    Otherwise a row that changed before the start would be missing both in the chunk and in the stream.
    `gtid_executed` never shrinks, so one check per server is enough.
    """
    if not gtids:
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", (gtids, timeout_s))
        row = cursor.fetchone()
    if row is None or int(row[0]) != 0:
        raise _replica_is_behind(connection, timeout_s)


def _replica_is_behind(connection: Connection[Any], timeout_s: float) -> TransientError:
    return TransientError(
        f"The server {connection.host!r} has not executed everything up to the table's start"
        f" within {timeout_s:g} s.",
        hint="Read from the source itself, or wait until the replica has caught up.",
    )


def _no_log() -> SourceError:
    return SourceError(
        "The source has no binary log.",
        hint="Start the server with log_bin, and connect to the server whose log is read.",
    )


def _execute(connection: Connection[Any], sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


def _row(connection: Connection[Any], sql: str) -> tuple[str, ...]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        row = cursor.fetchone()
    if row is None:
        raise _no_log()
    return tuple(text(value) for value in row)


def text(value: Any) -> str:
    """Decodes a value of a text result in a session without `character_set_results`."""
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)
