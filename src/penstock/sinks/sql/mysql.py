"""MySQL and MariaDB, by PyMySQL. Rows travel as INSERTs of many rows: `LOAD DATA LOCAL` is off in most
servers.

A statement that changes a definition ends the transaction that it is in. So a change of columns is one ALTER
TABLE, whose COMMENT has the commit: who finds it there knows that all of it is done.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
import pymysql
import pymysql.cursors
from pymysql.constants import ER
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NumericType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from penstock.connections.verdicts import Verdict
from penstock.errors import ConfigError, PenstockError, TableError, TransientError
from penstock.model.schema import Column, TableId
from penstock.printable import argument
from penstock.sinks.refusals import refusal
from penstock.sinks.rows import Incomplete, pieces
from penstock.sinks.sql import arrow_text, refused_definitions
from penstock.sinks.sql.codes import MYSQL, MYSQL_RIGHTS
from penstock.sinks.sql.dialect import STAGE, Dialect, Place, Session, shortened
from penstock.sinks.sql.mysql_session import MySqlConnection
from penstock.sinks.sql.options import JdbcOptions
from penstock.sinks.sql.silence import SilenceWatch
from penstock.sinks.texts import ROWS_AT_ONCE, row_batch

_NO_ANSWER = frozenset({0, *range(2000, 3000)})
"""Errors of the client: the server has not said anything, or something else than a server does."""
NAME_CHARACTERS_MAX = 64
"""MySQL's limit for names."""
KEY_BYTES_MAX = 3072
"""InnoDB's limit for an index."""
FIXED_BYTES = 24
"""Bytes of a key that a column without text may need."""
PREFIX = 191
"""Characters of a long text that an index takes."""
STATEMENT_BYTES = 4 * 1024**2
"""Rows are put together into statements of about this size."""
_TYPES: dict[type[DataType], str] = {
    BooleanType: "tinyint(1)",
    ByteType: "tinyint",
    ShortType: "smallint",
    IntegerType: "int",
    LongType: "bigint",
    FloatType: "float",
    DoubleType: "double",
    BinaryType: "longblob",
    DateType: "date",
    TimestampNTZType: "datetime(6)",
    TimestampType: "timestamp(6)",
}
_RANGES: dict[type[DataType], tuple[int, int]] = {
    ByteType: (-128, 127),
    ShortType: (-(2**15), 2**15 - 1),
    IntegerType: (-(2**31), 2**31 - 1),
    LongType: (-(2**63), 2**63 - 1),
}
_NUMBER = r"^[[:space:]]*[-+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][-+]?[0-9]{1,2})?[[:space:]]*$"
_COLUMN = re.compile(r"for column '(?:`.*`\.)?`?(.{1,64}?)`?' at row")
_READ_ONLY = frozenset({1290, 1792, 1836})
_TOO_LARGE = frozenset({1153, 1301, 2020})
_TOO_NARROW = frozenset({ER.DATA_TOO_LONG, ER.WARN_DATA_OUT_OF_RANGE})


_WITHOUT_LIMITS = (
    "SET SESSION sql_select_limit = 18446744073709551615, sql_big_selects = 1, completion_type = NO_CHAIN"
    " /*!50708 , max_execution_time = 0 */ /*M! , max_statement_time = 0 */"
)
"""Undoes what a server, or its `init_connect`, may set for every session: it would hide rows from the sink.
The comments are for the server: each executes its own."""


class MySql(Dialect):
    name = "mysql"
    errors = (pymysql.err.MySQLError,)
    ddl_in_transactions = False
    text_type = "longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    flag_type = "tinyint(1)"
    control_key_type = "varchar(640) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"

    def __init__(self, options: JdbcOptions) -> None:
        self._options = options
        self._address = options.address
        seconds = options.read_timeout / 1000
        self._silence = SilenceWatch(str(self._address), seconds, self._answers, self._socket_of)
        self._collation = ""
        self._lower_case = False
        """The server takes names of tables that differ only in letter case for one."""
        self._packet = 0
        self._updates_by_insert = False
        """MySQL 5.7 joins by way of a table with the target's primary key, of which it takes 1024 bytes."""

    # sessions

    def _answers(self) -> bool:
        try:
            self._connected().close()
        except pymysql.Error as error:
            return bool(error.args) and error.args[0] not in _NO_ANSWER
        return True

    @staticmethod
    def _socket_of(session: Session) -> int:
        return int(session._sock.fileno())

    def watched(self, session: Session) -> AbstractContextManager[None]:
        return self._silence.watched(session)

    def _connected(self) -> MySqlConnection:
        options = self._options
        return MySqlConnection(
            host=self._address.host,
            port=self._address.port,
            user=options.user,
            password=options.password.reveal(),
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=max(1, options.connect_timeout // 1000),
            **self._ssl(),
        )

    def connect(self) -> Session:
        session = self._connected()
        with self.watched(session):
            self._prepare(session)
        return session

    def _prepare(self, session: Session) -> None:
        seconds = max(1, self._options.lock_timeout // 1000)
        self.run(session, "SET sql_mode = 'STRICT_ALL_TABLES', time_zone = '+00:00', "
                          f"innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds}")  # fmt: skip
        self.run(session, _WITHOUT_LIMITS)
        if not self._collation:
            self._lower_case = self.run(session, "SELECT @@lower_case_table_names") != [(0,)]
            rows = self.run(
                session,
                "SELECT COLLATION_NAME FROM information_schema.COLLATIONS "
                "WHERE COLLATION_NAME IN ('utf8mb4_0900_bin', 'utf8mb4_nopad_bin')",
            )
            self._collation = rows[0][0] if rows else "utf8mb4_bin"
            [(packet, version)] = self.run(session, "SELECT @@max_allowed_packet, VERSION()")
            self._packet, self._updates_by_insert = int(packet), str(version).startswith("5.")

    def begin_reading(self, session: Session) -> None:
        self.run(session, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self.run(session, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")

    def _ssl(self) -> dict[str, Any]:
        parameters = self._address.parameters
        mode = (parameters.get("ssl-mode") or parameters.get("sslMode") or "preferred").lower()
        ca = parameters.get("ssl-ca")
        if mode == "disabled":
            return {"ssl_disabled": True}
        if mode == "preferred" and ca is None:
            return {}
        return {
            "ssl": {"ca": ca} if ca else {},
            "ssl_ca": ca,
            "ssl_verify_cert": mode.startswith("verify"),
            "ssl_verify_identity": mode == "verify_identity",
        }

    def explained(self, error: Exception, what: str, table: TableId | None) -> PenstockError:
        code = int(error.args[0]) if error.args and isinstance(error.args[0], int) else 0
        verdict = MYSQL.verdict(code)
        if verdict is Verdict.CONFIGURATION:
            kind, details = refusal(table, of_table=code in MYSQL_RIGHTS)
            return kind(
                f"{what}: {self._address} refuses this account (error {code}).",
                hint="Check `sink.user` and `sink.password`. The account needs CREATE, ALTER, DROP, INDEX, "
                "SELECT, INSERT, UPDATE, DELETE and CREATE TEMPORARY TABLES on the targets' databases and on "
                f"`{self._options.control}`.",
                **details,
            )
        if verdict is Verdict.OUTAGE:
            read_only = ", which is read only now" if code in _READ_ONLY else ""
            return TransientError(
                f"{what}: error {code} of {self._address}{read_only}.",
                hint="It is tried again until the database takes it.",
            )
        if table is None:
            return ConfigError(f"{what}: error {code} of {self._address}.", hint="Check the section `sink`.")
        said = str(error.args[1]) if len(error.args) > 1 else ""
        if (cure := refused_definitions.MYSQL.get(code)) is not None:
            return refused_definitions.refused(what, f"{said} (error {code})", cure, table)
        column = _COLUMN.search(said)
        about = f", column {column[1]}" if column else ""
        if code in _TOO_NARROW:
            return TableError(
                f"{what}: a value does not fit into the target (error {code}{about}).",
                hint="The column was made for a key of shorter values, or somebody has changed it. Run "
                f"`penstock resnapshot --recreate FILE {argument(table)}`, which makes the target again.",
                table=str(table),
            )
        cure = "Remove what refuses rows (a unique index, constraint or trigger of your own)"
        if code in _TOO_LARGE:
            cure = "Raise the server's max_allowed_packet"
        elif code == ER.DUP_ENTRY and self._collation == "utf8mb4_bin":
            cure = (
                "Two keys may differ only in spaces at their ends, which this server cannot keep apart "
                "(MySQL 8.0.17 and later, and MariaDB, can)"
            )
        return TableError(
            f"{what}: the database refuses it (error {code}{about}).",
            hint=f"{cure}, then run `penstock unpark FILE {argument(table)}`.",
            table=str(table),
        )

    # names

    def quoted(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def place(self, names: Sequence[str]) -> Place:
        schema, name = (shortened(one, NAME_CHARACTERS_MAX, unit=lambda character: 1) for one in names)
        return Place(schema, name)

    def table_folded(self, name: str) -> str:
        return name.lower() if self._lower_case else name

    # definitions

    def has_schema(self, session: Session, schema: str) -> bool:
        sql = "SELECT 1 FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = %s"
        return bool(self.run(session, sql, [schema]))

    def columns(self, session: Session, place: Place) -> dict[str, str]:
        rows = self.run(
            session,
            "SELECT COLUMN_NAME, COLUMN_TYPE, CHARACTER_SET_NAME, COLLATION_NAME "
            "FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s "
            "ORDER BY ORDINAL_POSITION",
            [place.schema, place.name],
        )
        found = {}
        for name, kind, charset, collation in rows:
            text = "" if charset is None else f" CHARACTER SET {charset} COLLATE {collation}"
            found[str(name)] = _text(kind) + text
        return found

    def type_of(self, kind: DataType) -> str:
        if isinstance(kind, DecimalType):
            return f"decimal({kind.precision},{kind.scale})"
        if isinstance(kind, StringType):
            return self._texts("longtext")
        return _TYPES[type(kind)]

    def _texts(self, kind: str) -> str:
        return f"{kind} CHARACTER SET utf8mb4 COLLATE {self._collation}"

    def key_types(self, kinds: Mapping[str, DataType], columns: Mapping[str, Column]) -> dict[str, str]:
        """Texts and bytes get all the length that an index can have, so that their columns may grow at the
        source."""
        found = super().key_types(kinds, columns)
        long = [name for name, kind in kinds.items() if isinstance(kind, (StringType, BinaryType))]
        room = KEY_BYTES_MAX - FIXED_BYTES * (len(kinds) - len(long))
        for name in long:
            share = room // len(long)
            is_text = isinstance(kinds[name], StringType)
            length = share // 4 if is_text else share
            wanted = columns[name].length if name in columns else None
            if length >= (wanted or 0):
                found[name] = self._texts(f"varchar({length})") if is_text else f"varbinary({length})"
        return found

    def make_new(
        self,
        session: Session,
        place: Place,
        columns: Mapping[str, str],
        key: Mapping[str, str],
        *,
        unique: bool,
    ) -> None:
        clause, whole = self._index(key)
        primary = whole and unique
        parts = [
            f"{self.quoted(name)} {kind} {'NOT NULL' if primary and name in key else 'NULL'}"
            for name, kind in columns.items()
        ]
        if key:
            parts.append(f"PRIMARY KEY ({clause})" if primary else f"INDEX penstock_key ({clause})")
        self.run(session, f"CREATE TABLE {self.target(place)} ({', '.join(parts)}) ENGINE = InnoDB "
                          "DEFAULT CHARACTER SET utf8mb4")  # fmt: skip

    def index_clause(self, key: Mapping[str, str]) -> str:
        """The clause of ALTER TABLE that adds an index for a key whose rows need not be unique."""
        return f"ADD INDEX penstock_key ({self._index(key)[0]})"

    def _index(self, key: Mapping[str, str]) -> tuple[str, bool]:
        """The columns of an index, and whether it has them as a whole. Texts and bytes that are too long for
        it are indexed by their beginning: also those of an earlier key, which had all the room."""
        lengths = {name: length for name, kind in key.items() if (length := _bytes_max(kind)) is not None}
        room = KEY_BYTES_MAX - FIXED_BYTES * (len(key) - len(lengths))
        share = room // max(1, len(lengths))
        parts, whole = [], True
        for name, kind in key.items():
            prefix = ""
            if lengths.get(name, 0) > share:
                whole, width = False, _character_bytes(kind)
                prefix = f"({min(PREFIX, share // width) if kind.startswith('long') else share // width})"
            parts.append(self.quoted(name) + prefix)
        return ", ".join(parts), whole

    def keys(self, session: Session, place: Place) -> set[str]:
        """Which of `PRIMARY` and `penstock_key` the table has."""
        rows = self.run(
            session,
            "SELECT DISTINCT INDEX_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = %s "
            "AND TABLE_NAME = %s",
            [place.schema, place.name],
        )
        return {row[0] for row in rows} & {"PRIMARY", "penstock_key"}

    def comment(self, session: Session, place: Place) -> str:
        sql = (
            "SELECT TABLE_COMMENT FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
        )
        rows = self.run(session, sql, [place.schema, place.name])
        return _text(rows[0][0]) if rows else ""

    def converted(self, column: str, old: DataType, kind: DataType) -> str:
        if isinstance(kind, StringType):
            return "NULL" if isinstance(old, BinaryType) else f"CAST({column} AS CHAR CHARACTER SET utf8mb4)"
        if isinstance(old, DateType) and isinstance(kind, TimestampNTZType):
            return f"CAST({column} AS DATETIME(6))"
        if not isinstance(kind, (NumericType, BooleanType)) or not isinstance(
            old, (StringType, NumericType, BooleanType)
        ):
            return "NULL"
        is_number = f"{column} REGEXP '{_NUMBER}'" if isinstance(old, StringType) else f"{column} IS NOT NULL"
        if isinstance(kind, (FloatType, DoubleType)):
            return f"CASE WHEN {is_number} THEN {column} + 0e0 END"
        number = f"CAST({column} AS DECIMAL(65,20))"
        fits = "1"
        if isinstance(kind, BooleanType):
            number = f"{number} <> 0"
        elif type(kind) in _RANGES:
            low, high = _RANGES[type(kind)]
            number = f"TRUNCATE({number}, 0)"
            fits = f"{number} BETWEEN {low} AND {high}"
        elif isinstance(kind, DecimalType):
            number = f"ROUND({number}, {kind.scale})"
            fits = f"ABS({number}) < 1e{kind.precision - kind.scale}"
        return f"CASE WHEN {is_number} THEN CASE WHEN {fits} THEN {number} END END"

    # rows

    def scanned(self, session: Session, target: str, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
        """A FLOAT alone would be shown with six digits."""
        columns = ", ".join(
            self.quoted(one.name) + (" + 0e0" if pa.types.is_float32(one.type) else "") for one in fields
        )
        decoders, session.decoders = session.decoders, {}  # texts, as the server sends them
        cursor = session.cursor(pymysql.cursors.SSCursor)
        try:
            cursor.execute(f"SELECT {columns} FROM {target}")
            while rows := cursor.fetchmany(ROWS_AT_ONCE):
                yield row_batch(rows, fields)
        finally:
            session.decoders = decoders
            cursor.close()

    def make_stage(self, session: Session, columns: Mapping[str, str]) -> str:
        parts = ", ".join(f"{self.quoted(name)} {_with_null(kind)}" for name, kind in columns.items())
        place = f"{self.quoted(self._options.control)}.{STAGE}"
        self.run(session, f"USE {self.quoted(self._options.control)}")
        self.run(session, f"DROP TEMPORARY TABLE IF EXISTS {place}")
        self.run(session, f"CREATE TEMPORARY TABLE {place} ({parts}) ENGINE = InnoDB")
        return place

    def load(self, session: Session, into: str, batches: Iterable[pa.RecordBatch], table: TableId) -> int:
        rows = 0
        for batch in pieces(batches):
            arrow_text.refuse_no_numbers(batch, table, "MySQL", infinities=True)
            columns = ", ".join(map(self.quoted, batch.schema.names))
            head = f"INSERT INTO {into} ({columns}) VALUES "
            for values in _statements(arrow_text.as_tuples(batch), min(STATEMENT_BYTES, self._packet // 2)):
                self._refuse_too_large(head + values, table)
                self.run(session, head + values)
            rows += batch.num_rows
        return rows

    def _refuse_too_large(self, statement: str, table: TableId) -> None:
        """The server would close the connection, which looks like an outage."""
        if len(statement) * 4 > self._packet and len(statement.encode()) >= self._packet:
            raise TableError(
                f"A row of {table} is larger than the database takes ({self._packet:,} bytes).",
                hint="Raise its max_allowed_packet (bytes need twice their size), restart the pipeline, and "
                f"run `penstock unpark FILE {argument(table)}`.",
                table=str(table),
            )

    def equal(self, name: str, kind: DataType) -> str:
        condition = super().equal(name, kind)
        if (
            isinstance(kind, StringType) and self._collation == "utf8mb4_bin"
        ):  # spaces at ends are nothing to it
            one, other = f"t.{self.quoted(name)}", f"s.{self.quoted(name)}"
            condition += f" AND CAST({one} AS BINARY) = CAST({other} AS BINARY)"
        return condition

    def delete_sql(self, target: str, match: str, names: Sequence[str]) -> str:
        return (
            f"DELETE t FROM {STAGE} s STRAIGHT_JOIN {target} t ON {match} "
            f"WHERE NOT ({self.live}) AND {self.newer}"
        )

    def update(
        self, session: Session, place: Place, match: str, names: Sequence[str], incomplete: Incomplete | None
    ) -> None:
        if not self._updates_by_insert or "PRIMARY" not in self.keys(session, place):
            super().update(session, place, match, names, incomplete)
            return
        target, columns = self.target(place), list(map(self.quoted, names))
        values = ", ".join(self.new_value(name, incomplete) for name in names)
        # Each row is there: the primary key is looked at first, so this one is updated and no other.
        self.run(
            session,
            f"INSERT INTO {target} ({', '.join(columns)}) SELECT {values} FROM {STAGE} s "
            f"STRAIGHT_JOIN {target} t ON {match} WHERE {self.live} AND {self.newer} "
            f"ON DUPLICATE KEY UPDATE {', '.join(f'{one} = VALUES({one})' for one in columns)}",
        )

    def update_sql(self, target: str, match: str, names: Sequence[str], incomplete: Incomplete | None) -> str:
        values = ", ".join(f"t.{self.quoted(name)} = {self.new_value(name, incomplete)}" for name in names)
        return (
            f"UPDATE {STAGE} s STRAIGHT_JOIN {target} t ON {match} SET {values} "
            f"WHERE {self.live} AND {self.newer}"
        )


def _bytes_max(kind: str) -> int | None:
    """The longest value of a text or of bytes. None: the type has a fixed length."""
    if kind.startswith("long"):
        return 2**32
    declared = re.match(r"var(?:char|binary)\((\d+)\)", kind)
    return None if declared is None else int(declared[1]) * _character_bytes(kind)


def _character_bytes(kind: str) -> int:
    return 4 if kind.startswith(("longtext", "varchar")) else 1


def _with_null(kind: str) -> str:
    """A TIMESTAMP is NOT NULL by default on some servers."""
    return f"{kind} NULL"


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _statements(rows: Sequence[str], size_max: int) -> Iterable[str]:
    """The rows, joined so that no statement becomes longer than it must."""
    part: list[str] = []
    size = 0
    for row in rows:
        if part and size + len(row) > size_max:
            yield ",".join(part)
            part, size = [], 0
        part.append(row)
        size += len(row) + 1
    if part:
        yield ",".join(part)
