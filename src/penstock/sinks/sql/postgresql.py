"""PostgreSQL, by psycopg. Rows travel as CSV through COPY."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import psycopg
import pyarrow as pa
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
from penstock.errors import ConfigError, PenstockError, TableError, TargetRefused, TransientError
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.refusals import refusal
from penstock.sinks.rows import Incomplete, pieces
from penstock.sinks.sql import arrow_text, refused_definitions
from penstock.sinks.sql.codes import POSTGRESQL
from penstock.sinks.sql.dialect import STAGE, Dialect, Place, Session, shortened
from penstock.sinks.sql.options import NAME_BYTES_MAX, JdbcOptions
from penstock.sinks.sql.silence import SilenceWatch
from penstock.sinks.texts import Unfit, csv_batches

ANALYZE_ROWS = 5000
"""A stage with more rows is analysed, so that the planner does not join it row by row."""
_TYPES: dict[type[DataType], str] = {
    BooleanType: "boolean",
    ByteType: "smallint",
    ShortType: "smallint",
    IntegerType: "integer",
    LongType: "bigint",
    FloatType: "real",
    DoubleType: "double precision",
    StringType: "text",
    BinaryType: "bytea",
    DateType: "date",
    TimestampNTZType: "timestamp(6) without time zone",
    TimestampType: "timestamp(6) with time zone",
}
_RANGES: dict[type[DataType], tuple[int, int]] = {
    ByteType: (-(2**15), 2**15 - 1),
    ShortType: (-(2**15), 2**15 - 1),
    IntegerType: (-(2**31), 2**31 - 1),
    LongType: (-(2**63), 2**63 - 1),
}
_NUMBER = r"^\s*[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,2})?\s*$"
_INDEX_ROW_TOO_LONG = "54000"
_READ_ONLY = "25006"


class PostgreSql(Dialect):
    name = "postgresql"
    errors = (psycopg.Error,)

    def __init__(self, options: JdbcOptions) -> None:
        self._options = options
        self._address = options.address
        seconds = options.read_timeout / 1000
        self._silence = SilenceWatch(str(self._address), seconds, self._answers, self._socket_of)

    # sessions

    def _answers(self) -> bool:
        try:
            self._connected().close()
        except psycopg.Error as error:
            return error.sqlstate is not None or _is_login(error)
        return True

    @staticmethod
    def _socket_of(session: Session) -> int:
        return int(session.fileno())

    def watched(self, session: Session) -> AbstractContextManager[None]:
        return self._silence.watched(session)

    def _connected(self) -> psycopg.Connection[Any]:
        options, address = self._options, self._address
        more: dict[str, Any] = {
            "application_name": "penstock",
            "keepalives_idle": "30",
            "keepalives_interval": "10",
            "keepalives_count": "6",
            "tcp_user_timeout": "90000",
            **address.parameters,
        }
        return psycopg.connect(
            host=address.host,
            port=address.port,
            dbname=address.database,
            user=options.user or None,
            password=options.password.reveal() or None,
            connect_timeout=max(1, options.connect_timeout // 1000),
            autocommit=True,
            prepare_threshold=None,  # poolers such as PgBouncer lose prepared statements
            **more,
        )

    def connect(self) -> Session:
        session = self._connected()
        with self.watched(session):
            self._prepare(session)
        return session

    def _prepare(self, connection: psycopg.Connection[Any]) -> None:
        for name, value in (
            ("client_encoding", "UTF8"),
            ("standard_conforming_strings", "on"),
            ("DateStyle", "ISO, YMD"),
            ("TimeZone", "UTC"),
            ("bytea_output", "hex"),
            ("client_min_messages", "warning"),
            ("lock_timeout", str(self._options.lock_timeout)),
        ):
            connection.execute(f"SET {name} = '{value}'")
        # What is recorded as applied must not be lost when the server crashes.
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) "
            "WHERE current_setting('synchronous_commit') = 'off'"
        )

    def begin_reading(self, session: Session) -> None:
        self.run(session, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        self.run(session, "SELECT 1")  # now it sees what it sees

    def explained(self, error: Exception, what: str, table: TableId | None) -> PenstockError:
        assert isinstance(error, psycopg.Error)
        state = error.sqlstate or ("28000" if _is_login(error) else "08000")
        verdict = POSTGRESQL.verdict(state, state[:2])
        if verdict is Verdict.CONFIGURATION and state != "42501":
            return TargetRefused(
                f"{what}: {self._address} refuses the account or has no such database"
                + (f" (SQLSTATE {state})." if error.sqlstate else "."),
                hint="Check `sink.url`, `sink.user` and `sink.password`.",
            )
        if state == "42501":
            kind, details = refusal(table, of_table=True)
            return kind(
                f"{what}: {error.diag.message_primary}.",
                hint="GRANT CREATE ON DATABASE … to the account, so that it can make schemas; or make the "
                "schemas for it, and GRANT USAGE, CREATE ON SCHEMA ….",
                **details,
            )
        if verdict is Verdict.OUTAGE:
            why = f"answers SQLSTATE {state}" if error.sqlstate else "refused or lost the connection"
            if state == _READ_ONLY:
                why += ", it is read only now, as a standby or in maintenance"
            hint = "It is tried again until the database takes it."
            return TransientError(f"{what}: {self._address} {why}.", hint=hint)
        if table is None:
            return ConfigError(f"{what}: {error.diag.message_primary}.", hint="Check the section `sink`.")
        if (cure := refused_definitions.POSTGRESQL.get(state)) is not None:
            said = f"{error.diag.message_primary} ({error.diag.message_detail or f'SQLSTATE {state}'})"
            return refused_definitions.refused(what, said, cure, table)
        constraint = error.diag.constraint_name
        about = f", constraint {constraint}" if constraint else ""
        if state == _INDEX_ROW_TOO_LONG and constraint:
            drop = f"ALTER TABLE … DROP CONSTRAINT {self.quoted(constraint)}"
            return TableError(
                f"{what}: a key is too long for an index of PostgreSQL (SQLSTATE {state}{about}).",
                hint=f"Penstock needs indexes for speed only. Run `{drop}` on the target, make another "
                f"index if you like (USING hash), then run `penstock unpark FILE {argument(table)}`.",
                table=str(table),
            )
        return TableError(
            f"{what}: the database refuses it (SQLSTATE {state}{about}).",
            hint="Look the code up in PostgreSQL's list of errors. Remove what refuses rows (a constraint or "
            f"trigger of your own), then run `penstock unpark FILE {argument(table)}`.",
            table=str(table),
        )

    # names

    def place(self, names: Sequence[str]) -> Place:
        schema, name = (shortened(one, NAME_BYTES_MAX, unit=_bytes) for one in names)
        return Place(schema, name)

    def folded(self, name: str) -> str:
        return name

    # definitions

    def has_schema(self, session: Session, schema: str) -> bool:
        return bool(self.run(session, "SELECT 1 FROM pg_namespace WHERE nspname = %s", [schema]))

    def columns(self, session: Session, place: Place) -> dict[str, str]:
        rows = self.run(
            session,
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a "
            "JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped "
            "ORDER BY a.attnum",
            [place.schema, place.name],
        )
        return dict(rows)

    def type_of(self, kind: DataType) -> str:
        if isinstance(kind, DecimalType):
            return f"numeric({kind.precision},{kind.scale})"
        return _TYPES[type(kind)]

    def make_key(self, session: Session, place: Place, key: Mapping[str, str], *, unique: bool) -> None:
        columns = ", ".join(map(self.quoted, key))
        if unique:
            self.run(session, f"ALTER TABLE {self.target(place)} ADD PRIMARY KEY ({columns})")
        else:
            self.run(session, f"CREATE INDEX ON {self.target(place)} ({columns})")

    def converted(self, column: str, old: DataType, kind: DataType) -> str:
        if isinstance(kind, StringType):
            return "NULL" if isinstance(old, BinaryType) else f"{column}::text"
        if isinstance(old, DateType) and isinstance(kind, TimestampNTZType):
            return f"{column}::timestamp"
        if isinstance(old, BooleanType) and isinstance(kind, NumericType):
            column, old = f"{column}::integer", IntegerType()
        if not isinstance(kind, (NumericType, BooleanType)) or not isinstance(old, (StringType, NumericType)):
            return "NULL"
        number = f"{column}::numeric"
        is_number = f"{column} ~ '{_NUMBER}'" if isinstance(old, StringType) else f"{column} IS NOT NULL"
        if isinstance(old, (FloatType, DoubleType)):
            is_number = f"{column} NOT IN ('NaN', 'Infinity', '-Infinity')"
        if isinstance(kind, BooleanType):
            return f"CASE WHEN {is_number} THEN {number} <> 0 END"
        fits = "true"
        if type(kind) in _RANGES:
            low, high = _RANGES[type(kind)]
            number = f"trunc({number})"
            fits = f"{number} BETWEEN {low} AND {high}"
        elif isinstance(kind, DecimalType):
            number = f"round({number}, {kind.scale})"
            fits = f"abs({number}) < 1e{kind.precision - kind.scale}"
        return f"CASE WHEN {is_number} THEN CASE WHEN {fits} THEN {number}::{self.type_of(kind)} END END"

    # rows

    def scanned(self, session: Session, target: str, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
        columns = ", ".join(map(self.quoted, fields.names))
        sql = f"COPY (SELECT {columns} FROM {target}) TO STDOUT (FORMAT csv)"
        with session.cursor() as cursor, cursor.copy(sql) as copy:
            try:
                yield from csv_batches(copy, fields, null="")
            except Unfit:
                for _ in copy:  # else the transaction would end
                    pass
                raise

    def make_stage(self, session: Session, columns: Mapping[str, str]) -> str:
        parts = ", ".join(f"{self.quoted(name)} {kind}" for name, kind in columns.items())
        self.run(session, f"DROP TABLE IF EXISTS pg_temp.{STAGE}")
        self.run(session, f"CREATE TEMPORARY TABLE {STAGE} ({parts})")
        return STAGE

    def load(self, session: Session, into: str, batches: Iterable[pa.RecordBatch], table: TableId) -> int:
        rows, cursor = 0, session.cursor()
        batches = iter(batches)
        first = next(batches, None)
        if first is None:
            return 0
        columns = ", ".join(map(self.quoted, first.schema.names))

        def all_batches() -> Iterable[pa.RecordBatch]:
            yield first
            yield from batches

        with cursor, cursor.copy(f"COPY {into} ({columns}) FROM STDIN (FORMAT csv)") as copy:
            for batch in pieces(all_batches()):
                copy.write(arrow_text.as_csv(self._without_nul(batch, table)))
                rows += batch.num_rows
        return rows

    def _without_nul(self, batch: pa.RecordBatch, table: TableId) -> pa.RecordBatch:
        name = arrow_text.column_with_nul(batch)
        if name is None:
            return batch
        if self._options.nul_characters == "remove":
            return arrow_text.without_nul(batch)
        raise TableError(
            f"A text in column {name} of {table} contains the character NUL, which PostgreSQL cannot store.",
            hint="Correct the value at the source and run "
            f"`penstock resnapshot FILE {argument(table)}`, or set `sink.nul_characters: remove` and run "
            f"`penstock unpark FILE {argument(table)}`.",
            table=str(table),
        )

    def loaded(self, session: Session, rows: int) -> None:
        if rows > ANALYZE_ROWS:
            self.run(session, f"ANALYZE {STAGE}")

    def delete_sql(self, target: str, match: str, names: Sequence[str]) -> str:
        return f"DELETE FROM {target} t USING {STAGE} s WHERE {match} AND NOT ({self.live}) AND {self.newer}"

    def update_sql(self, target: str, match: str, names: Sequence[str], incomplete: Incomplete | None) -> str:
        values = ", ".join(f"{self.quoted(name)} = {self.new_value(name, incomplete)}" for name in names)
        return f"UPDATE {target} t SET {values} FROM {STAGE} s WHERE {match} AND {self.live} AND {self.newer}"


def _is_login(error: psycopg.Error) -> bool:
    """Whether an error of connecting, which has no SQLSTATE, is about the account or the database."""
    text = str(error)
    return any(one in text for one in ("authentication failed", "no password supplied", "does not exist"))


def _bytes(name: str) -> int:
    return len(name.encode("utf-8", "replace"))
