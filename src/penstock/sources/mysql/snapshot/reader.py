"""Reads one chunk from MySQL: low watermark, SELECT and high watermark in one session.

The SELECT uses the binary protocol (COM_STMT_PREPARE, COM_STMT_EXECUTE). It costs mysqld about half the CPU
of the text protocol, and values need no parsing. PyMySQL sends the commands. The answer is read from its
socket in large pieces and decoded by the core, so no Python runs per row. TCP slows the server down while
this process is busy (for at most `net_write_timeout`), so memory holds one batch.

The session's settings make values mean the same as in the log: time zone +00:00 (TIMESTAMP is stored in UTC),
no `character_set_results` (text in the column's own character set), an empty `sql_mode` (CHAR without
padding, `"` and `||` as usual), no limits of rows or time, and REPEATABLE READ with autocommit. With
autocommit each statement opens a view of its own; on MariaDB, the watermark belongs to the view.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pymysql
from pymysql.connections import Connection

from penstock import _core
from penstock.errors import ChunkOutdated, InternalError, PenstockError, TableError, TransientError
from penstock.model.chunk import Chunk
from penstock.model.offset import Offset
from penstock.model.schema import DEFAULT_TYPES, TableId, TableSchema, TypeOptions
from penstock.printable import argument
from penstock.sources.chunks import ReadResult, ViewChoice
from penstock.sources.mysql.broken_tables import OPENING, broken_hint
from penstock.sources.mysql.connection import address, hang_up
from penstock.sources.mysql.faults import NOT_AN_ANSWER
from penstock.sources.mysql.identifiers import quote, quoted
from penstock.sources.mysql.snapshot.keys import key_condition
from penstock.sources.mysql.snapshot.replica_watermark import ReplicaWatermarks
from penstock.sources.mysql.snapshot.replicas import ReplicaOf
from penstock.sources.mysql.snapshot.split import range_condition
from penstock.sources.mysql.snapshot.watermark import SessionWatermarks, watermarks_of

# Commands of the client protocol.
_COM_STMT_PREPARE = 0x16
_COM_STMT_EXECUTE = 0x17
_COM_STMT_CLOSE = 0x19
_RECEIVE_BYTES = 1024 * 1024
"""Bytes of a result that are read at once: few calls, and little memory."""
_NET_WRITE_TIMEOUT_S = 3600
"""How long the server waits for a reader that is slow to take rows, in seconds. By default it gives up after
a minute, and Spark may be busy for longer."""
_GTID_WAIT_S = 30
"""How long a chunk waits for a server to execute the log up to the table's start, in seconds. Then it is
tried again, maybe on another host."""

_SESSION = (
    "SET NAMES utf8mb4",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    (
        "SET SESSION character_set_results = NULL, time_zone = '+00:00', sql_mode = '', autocommit = 1, "
        f"net_write_timeout = {_NET_WRITE_TIMEOUT_S}"
    ),
)

_OUTDATED = {
    1049: "its database is gone",  # ER_BAD_DB_ERROR
    1054: "a column is gone",  # ER_BAD_FIELD_ERROR
    1146: "it is gone",  # ER_NO_SUCH_TABLE
    1412: "its definition changed",  # ER_TABLE_DEF_CHANGED
    1615: "its definition changed",  # ER_NEED_REPREPARE
}
_ACCESS_DENIED = {1044, 1142, 1143, 1227}
_PASSING = {
    1040, 1053, 1079, 1158, 1159, 1160, 1161, 1203, 1205, 1213, 1226, 1317, 2006, 2013, 2014, 2027, 3024,
}  # fmt: skip
"""Error codes of temporary problems: connection lost, too many connections, shutdown, kill, lock waits,
read-only, time-outs."""


class MySqlChunkReader:
    """A session that reads chunks. It owns the connection: it changes its settings, and `close` closes it."""

    def __init__(
        self,
        connection: Connection[Any],
        *,
        types: TypeOptions = DEFAULT_TYPES,
        watermark_table: str | None = None,
        replica_of: ReplicaOf | None = None,
        view: ViewChoice | None = None,
    ) -> None:
        """`view`: chooses the read view of each chunk, at one offset of the log."""
        self._connection = connection
        self._types = types
        self._view = view
        with guarded("the session of a chunk reader", address(connection)):
            prepare_session(connection)
            self._watermarks: SessionWatermarks = (
                watermarks_of(connection, watermark_table)
                if replica_of is None
                else ReplicaWatermarks(connection, replica_of)
            )

    def require(self, executed: str) -> None:
        """See `ChunkReader.require`. `executed` is a set of GTIDs."""
        with guarded("the wait for the table's start", address(self._connection)):
            self._watermarks.require(executed, timeout_s=_GTID_WAIT_S)

    def read(self, schema: TableSchema, chunk: Chunk) -> MySqlChunkRead:
        """Begins one attempt. The attempt before it must have been read to its end."""
        return MySqlChunkRead(self._connection, self._watermarks, schema, chunk, self._types, self._view)

    def leave(self) -> None:
        """Ends the session between two chunks. Returns when the server has ended it, too."""
        hang_up(self._connection)

    def close(self) -> None:
        """Closes the connection at once, even in the middle of a result. May be called twice."""
        self._connection._force_close()  # type: ignore[attr-defined]


class MySqlChunkRead:
    """One attempt to read one chunk. After the last batch, `result` is available."""

    def __init__(
        self,
        connection: Connection[Any],
        watermarks: SessionWatermarks,
        schema: TableSchema,
        chunk: Chunk,
        types: TypeOptions,
        view: ViewChoice | None,
    ) -> None:
        self._connection = connection
        self._watermarks = watermarks
        self._view = view
        self._schema = schema
        self._chunk = chunk
        self._types = types
        self._result: ReadResult | None = None

    @property
    def result(self) -> ReadResult:
        if self._result is None:
            raise InternalError(
                f"The watermarks of a chunk of {self._chunk.table} were asked for before its rows."
            )
        return self._result

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        what = f"the read of chunk {self._chunk.number} of {self._chunk.table}"
        with guarded(what, address(self._connection), self._chunk):
            at: Offset | None = None
            if self._view is None:
                self._watermarks.begin()
            else:
                window, at = self._view.open(self._watermarks)
            decoder = _core.ResultSetDecoder(self._schema.to_json(), types=self._types.to_json())
            received = Received()
            try:
                sql = select_sql(self._schema, self._chunk)
                yield from execute(self._connection, sql, decoder, received)
            except _core.SchemaMismatch as error:
                if not decoder.columns_fit:
                    raise
                raise TableError(
                    f"A row of {self._chunk.table} cannot be read: {error.reason}.",
                    hint=f"Mend the value at the source, then {_unpark(self._chunk.table)}",
                    table=str(self._chunk.table),
                ) from error
            if self._view is None:
                window = self._watermarks.end()
            else:
                self._connection.rollback()
        self._result = ReadResult(
            window.watermarks, self._watermarks.server_uuid, decoder.rows, received.bytes, at
        )


def prepare_session(connection: Connection[Any]) -> None:
    """Sets the session up so that values mean the same as in the log."""
    with connection.cursor() as cursor:
        for statement in _SESSION:
            cursor.execute(statement)


def select_sql(schema: TableSchema, chunk: Chunk) -> str:
    """The SELECT of a chunk, with the columns of the schema in order, including invisible ones.

    A column with the name `*` cannot be selected by name: MySQL 5.7 and 8.0.15 take even a quoted `*` for all
    columns (9.7 and MariaDB do not).
    """
    names = [column.name for column in schema.columns]
    columns = "*" if "*" in names else ", ".join(map(quote, names))
    parts = [range_condition(schema.key, chunk.lower, chunk.upper), chunk.condition]
    parts.append(key_condition(schema, chunk.keys) if chunk.keys else "")
    where = " AND ".join(f"({part})" for part in parts if part)
    return f"SELECT {columns} FROM {quoted(schema.table)}" + (f" WHERE {where}" if where else "")


@dataclass
class Received:
    """Counts what a server sends."""

    bytes: int = 0


def execute(
    connection: Connection[Any], sql: str, decoder: _core.ResultSetDecoder, received: Received | None = None
) -> Iterator[pa.RecordBatch]:
    """Runs a SELECT with the binary protocol, and yields the decoder's batches.

    If the caller stops iterating before the end, the connection is closed, because rows are still arriving.
    """
    wire: Any = connection
    done = False
    try:
        wire._execute_command(_COM_STMT_PREPARE, sql)
        statement = _read_prepared(wire)
        wire._execute_command(_COM_STMT_EXECUTE, statement + b"\x00" + struct.pack("<I", 1))
        while not decoder.done:
            data = wire._rfile.read1(_RECEIVE_BYTES)
            if not data:
                raise pymysql.err.OperationalError(
                    2013, "the server closed the connection in the middle of a result"
                )
            if received is not None:
                received.bytes += len(data)
            yield from decoder.feed(data)
        if (last := decoder.finish()) is not None:
            yield last
        wire._execute_command(_COM_STMT_CLOSE, statement)
        done = True
    finally:
        if not done:
            wire._force_close()


def _read_prepared(wire: Any) -> bytes:
    """Reads the answer to COM_STMT_PREPARE and returns the statement id as it goes over the wire.

    OK packet: status 0, id (4), columns (2), parameters (2). Then the definitions of parameters and of
    columns, each list, if not empty, followed by EOF. The definitions come again with the result, so these
    are passed over.
    """
    packet = wire._read_packet().get_all_data()
    columns, parameters = struct.unpack_from("<HH", packet, 5)
    if parameters:
        raise InternalError("A chunk's SELECT was read as having parameters.")
    for _ in range(columns + 1 if columns else 0):
        wire._read_packet()
    return bytes(packet[1:5])


class guarded:
    """Turns errors of PyMySQL, the socket and the core into errors that say who acts."""

    def __init__(self, what: str, server: str, chunk: Chunk | None = None) -> None:
        self._what = what
        self._server = server
        self._chunk = chunk

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        known = (pymysql.MySQLError, OSError, _core.DecodeError, _core.ServerError, *NOT_AN_ANSWER)
        if isinstance(error, known):
            raise self._translate(error) from error

    def _translate(self, error: Exception) -> PenstockError:
        if isinstance(error, _core.SchemaMismatch):
            return self._outdated("the result does not fit the columns it was planned with")
        if isinstance(error, _core.DecodeError):
            return self._malformed(str(error))
        if isinstance(error, NOT_AN_ANSWER):  # whose text may contain what the server sent
            return self._malformed(type(error).__name__)
        code, message = _code(error)
        if code in _OUTDATED and self._chunk is not None:
            return self._outdated(_OUTDATED[code])
        if isinstance(error, OSError) or code in _PASSING or code == 0:
            return TransientError(
                f"The source {self._server} failed during {self._what}: {message} (error {code}).", code=code
            )
        details = {} if self._chunk is None else {"table": str(self._chunk.table)}
        hint = ""
        if code in _ACCESS_DENIED and self._chunk is not None:
            table = self._chunk.table
            hint = f"GRANT SELECT ON {quoted(table)} TO the account, then {_unpark(table)}"
        elif code in OPENING and self._chunk is not None:
            hint = broken_hint(self._chunk.table, code)
        return TableError(
            f"The source {self._server} refused {self._what}: {message} (error {code}).",
            hint=hint,
            code=code,
            **details,
        )

    def _malformed(self, why: str) -> TransientError:
        return TransientError(f"The source {self._server} sent a malformed answer to {self._what}: {why}.")

    def _outdated(self, why: str) -> ChunkOutdated:
        table = "a table" if self._chunk is None else str(self._chunk.table)
        return ChunkOutdated(f"{table} changed while a chunk of it was read: {why}.", table=table)


def _code(error: Exception) -> tuple[int, str]:
    if isinstance(error, _core.ServerError):
        return error.code, error.message
    if isinstance(error, pymysql.MySQLError) and len(error.args) >= 2:
        return int(error.args[0]), str(error.args[1])
    return 0, str(error)


def _unpark(table: TableId) -> str:
    return f"run `penstock unpark FILE {argument(table)}`."
