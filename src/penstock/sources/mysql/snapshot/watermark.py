"""Low and high watermarks of a chunk: what was committed just before and just after its SELECT.

The promise a chunk needs (`snapshot/placement.py`) is `low ⊆ V ⊆ prefix(high)`, V being what the SELECT saw.
A commit goes through three stages: the transaction is written to the binary log, then the engine makes it
visible, then its GTID is added to `gtid_executed`. There are three ways to take marks.

**MySQL with GTIDs** (`GtidMarks`). Low is `@@gtid_executed`, read before the SELECT: whatever is in the set
is visible to every view opened later. The position in the binary log moves *first*: a low mark taken from
`SHOW MASTER STATUS` claims transactions that a view opened right after it does not see. Measured with eight
writers: 79 % (8.0) to 87 % (9.7) of such marks lost a visible transaction with durable settings; with
`gtid_executed` none of more than 900,000, also with `binlog_order_commits=OFF` and on replicas with parallel
appliers. As a set it may have gaps against the order of the log, so it is only ever used as a set. High is
the end of the binary log (file and position of the status), read after the SELECT. For the same reason the
other way round: a transaction is visible before it is in `gtid_executed`, so a high mark from the set misses
some (0.1–0.5 %), while everything visible has been in the binary log before (0 misses of more than 95,000).
It holds for the server that wrote the log we follow; its position means nothing on a replica.

**MySQL without GTIDs** (`TableMarks`). Before the SELECT the end of the binary log is read, then a row of a
table of the operator's is changed. With `binlog_order_commits = ON` the engine commits in the order of the
log, so when our own commit is done, all that the log held before it is visible: low is the place read before
the write. The setting is checked before and after each chunk; a write that changes nothing would not be in
the log and wait for nobody, so each writes a new value. High as above.

**MariaDB** (`SnapshotMarks`). `START TRANSACTION WITH CONSISTENT SNAPSHOT` opens the view at a place of the
binary log, which the status variables `Binlog_snapshot_file` and `_position` tell: low and high at once, V is
the prefix. The variables are the process's, so another session's may show through for a moment; they are read
until three reads agree (0 wrong of 110,769). Under another isolation level than REPEATABLE READ there is no
snapshot and only a warning: any warning is an error.

All of it only holds if marks and SELECT are answered by the same server, whatever proxy stands between. So
its identity is asked for beside each mark and compared.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

import pymysql
from pymysql.connections import Connection

from penstock._core import GtidSet
from penstock.errors import ConfigError, SourceError, TransientError
from penstock.model.offset import SourcePosition
from penstock.model.schema import TableId
from penstock.sources.mysql.dialect import Dialect
from penstock.sources.mysql.snapshot.window import MySqlWindow

_ER_SPECIFIC_ACCESS_DENIED = 1227
_ER_OPTION_PREVENTS_STATEMENT = 1290
_ACCESS_DENIED = (1044, 1142, 1143)
_READS_MAX = 200
"""Of MariaDB's status variables until three in a row agree."""
_OPEN_VIEW = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
_SLOTS = 256
"""Rows of a watermark table: sessions rarely wait for each other's."""


class Marks(Protocol):
    """Takes the marks of one session's chunks, one after the other."""

    @property
    def server_uuid(self) -> str:
        """The server all marks so far came from."""

    def require(self, gtids: str, *, timeout_s: float) -> None:
        """Returns once a view opened from now on contains `gtids` (a table's start); else
        `TransientError`."""

    def begin(self) -> None:
        """Right before the SELECT."""

    def end(self) -> MySqlWindow:
        """Right after its last row."""

    def open_view(self) -> MySqlWindow:
        """Opens one view for all that is read until the session's transaction ends."""


def marks_of(connection: Connection[Any], watermark_table: str | None) -> Marks:
    """The way for this server. `ConfigError` when there is none."""
    dialect = Dialect.detect(connection)
    if dialect.mariadb:
        return SnapshotMarks(connection, dialect)
    if str(_row(connection, "SELECT @@GLOBAL.gtid_mode")[0]).upper() == "ON":
        return GtidMarks(connection, dialect)
    if watermark_table is None:
        raise ConfigError(
            "The source has gtid_mode other than ON, and a chunk of a snapshot finds its place in the log by "
            "GTIDs or by writes to a table of yours.",
            hint="Turn GTIDs on, or name a table in snapshot.watermark_table (docs/delivery.md has its "
            "definition), or set snapshot.mode: never.",
        )
    return TableMarks(connection, dialect, watermark_table)


class LogEnd:
    """The end of the binary log. The first answer settles which server it is."""

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

    def high(self) -> SourcePosition:
        """A place in the binary log behind everything that any view opened before now contained."""
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
        return SourcePosition(row[0], int(row[1]))

    def same_server(self, uuid: str) -> None:
        if self._server_uuid is None:
            self._server_uuid = uuid
        elif uuid != self._server_uuid:
            raise TransientError(
                "Two statements of one session were answered by different servers"
                f" ({self._server_uuid}, {uuid}).",
                hint="Connect to the source itself, or through a proxy that keeps a session on one server.",
            )


class GtidMarks:
    """MySQL with GTIDs."""

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
        """GTIDs whose effects every view opened from now on contains; claims no more than that."""
        gtids, uuid = _row(self._connection, "SELECT @@GLOBAL.gtid_executed, @@GLOBAL.server_uuid")
        self._end.same_server(uuid)
        return "".join(gtids.split())

    def high(self) -> SourcePosition:
        return self._end.high()


class TableMarks:
    """MySQL without GTIDs, by writes to a table `database.table` with columns `slot` (key) and `mark`."""

    def __init__(self, connection: Connection[Any], dialect: Dialect, table: str) -> None:
        self._connection = connection
        self._end = LogEnd(connection, dialect)
        self._table = TableId.parse(table)
        self._low = SourcePosition("", 0)
        self._check_engine()

    @property
    def server_uuid(self) -> str:
        return self._end.server_uuid

    def require(self, gtids: str, *, timeout_s: float) -> None:
        """The log of this very server told where the start is, and each low mark lies behind all that its log
        held before."""

    def begin(self) -> None:
        self._check_order()
        self._low = self._end.high()
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(
                    f"INSERT INTO {self._table.quoted} (slot, mark)"
                    f" VALUES (CONNECTION_ID() MOD {_SLOTS}, UUID()) ON DUPLICATE KEY UPDATE mark = UUID()"
                )
        except pymysql.MySQLError as error:
            if error.args[0] not in (*_ACCESS_DENIED, 1054, 1146, _ER_OPTION_PREVENTS_STATEMENT):
                raise
            raise self._unfit(f"cannot be written: {error.args[1]}") from error

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
                "The source has binlog_order_commits = OFF: a write to the watermark table does not tell "
                "what is visible.",
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
            raise self._unfit("does not exist, or the account may not see it")
        if text(row[0]) != "InnoDB":
            raise self._unfit(f"has the engine {text(row[0])}, whose writes do not wait for other commits")

    def _unfit(self, why: str) -> ConfigError:
        return ConfigError(
            f"The watermark table {self._table} {why}.",
            hint=f"CREATE TABLE {self._table.quoted} (slot SMALLINT UNSIGNED PRIMARY KEY, "
            f"mark CHAR(36) NOT NULL) ENGINE = InnoDB; "
            f"GRANT SELECT, INSERT, UPDATE ON {self._table.quoted} TO the account.",
        )


class SnapshotMarks:
    """MariaDB."""

    def __init__(self, connection: Connection[Any], dialect: Dialect) -> None:
        self._connection = connection
        self._end = LogEnd(connection, dialect)
        self._place = SourcePosition("", 0)
        self._proven = ""

    @property
    def server_uuid(self) -> str:
        return self._end.server_uuid

    def require(self, gtids: str, *, timeout_s: float) -> None:
        """Views only move on: what one of this session's contained, all later ones contain."""
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
                raise _behind(self._connection, timeout_s)
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

    def _open(self) -> SourcePosition:
        """Opens a view, and tells its place in the binary log."""
        _execute(self._connection, _OPEN_VIEW)
        with self._connection.cursor() as cursor:
            cursor.execute("SHOW WARNINGS")
            if warning := cursor.fetchone():
                raise SourceError(f"The source opens no consistent snapshot: {text(warning[2])}.")
        agreed: list[SourcePosition] = []
        for _ in range(_READS_MAX):
            place = self._read_place()
            agreed = [*agreed, place] if agreed and agreed[-1] == place else [place]
            if len(agreed) == 3:
                return place
        raise TransientError("MariaDB's Binlog_snapshot_position never stood still for three reads.")

    def _read_place(self) -> SourcePosition:
        with self._connection.cursor() as cursor:
            cursor.execute("SHOW STATUS LIKE 'Binlog\\_snapshot\\_%'")
            fields = {text(name).lower(): text(value) for name, value in cursor.fetchall()}
        if not fields.get("binlog_snapshot_file"):
            raise _no_log()
        return SourcePosition(fields["binlog_snapshot_file"], int(fields["binlog_snapshot_position"]))


def require_executed(connection: Connection[Any], gtids: str, *, timeout_s: float) -> None:
    """`Marks.require` for who takes no marks. Without GTIDs nothing is waited for: see `TableMarks`."""
    dialect = Dialect.detect(connection)
    if dialect.mariadb:
        SnapshotMarks(connection, dialect).require(gtids, timeout_s=timeout_s)
    else:
        ensure_executed(connection, gtids, timeout_s=timeout_s)


def ensure_executed(connection: Connection[Any], gtids: str, *, timeout_s: float) -> None:
    """Returns once MySQL's `gtid_executed` contains `gtids` (a table's start); else `TransientError`.

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
        raise _behind(connection, timeout_s)


def _behind(connection: Connection[Any], timeout_s: float) -> TransientError:
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
    """A value of a text result in a session without `character_set_results`."""
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)
