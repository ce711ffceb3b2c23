"""SQLite: one file, written by one session at a time."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegralType,
    NumericType,
    StringType,
    TimestampNTZType,
)

from penstock.connections.verdicts import Verdict
from penstock.errors import ConfigError, PenstockError, TableError, TransientError
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.rows import Incomplete, pieces
from penstock.sinks.sql import arrow_text
from penstock.sinks.sql.codes import SQLITE, SQLITE_TEXTS
from penstock.sinks.sql.dialect import STAGE, Dialect, Place, Session
from penstock.sinks.sql.options import ROW_ID, JdbcOptions, folded
from penstock.sinks.texts import ROWS_AT_ONCE, row_batch


class Sqlite(Dialect):
    name = "sqlite"
    errors = (sqlite3.Error,)
    parameter = "?"
    text_type = "TEXT"
    flag_type = "INTEGER"
    control_key_type = "TEXT"
    locks_rows = False
    widens_columns = False

    def __init__(self, options: JdbcOptions) -> None:
        self._options = options
        self._path = options.address.database

    # sessions

    def connect(self) -> Session:
        if not Path(self._path).parent.is_dir():
            raise ConfigError(
                f"The folder of {self._path} does not exist.", hint="Create it, or correct `sink.url`."
            )
        session = sqlite3.connect(
            self._path,
            timeout=self._options.lock_timeout / 1000,
            isolation_level=None,
            check_same_thread=False,
        )
        session.execute("PRAGMA journal_mode = WAL")  # readers and the writer do not wait for each other
        session.execute("PRAGMA synchronous = FULL")
        session.execute("PRAGMA temp_store = FILE")
        session.create_function("penstock_number", 2, _number, deterministic=True)
        return session

    def fill(self, session: Session, sql: str, parameters: Sequence[Any]) -> None:
        plain = re.sub("%(%|s)", lambda found: "%" if found[1] == "%" else "?", sql)
        values = [str(one) if isinstance(one, Decimal) else one for one in parameters]
        self.run(session, plain, values)

    def begin(self, session: Session) -> None:
        self.run(session, "BEGIN IMMEDIATE")

    def begin_reading(self, session: Session) -> None:
        self.run(session, "BEGIN")
        self.run(session, "SELECT 1 FROM sqlite_master")  # now it sees what it sees

    def explained(self, error: Exception, what: str, table: TableId | None) -> PenstockError:
        code = _code(error)
        verdict = SQLITE.verdict(code)
        if code in ("SQLITE_BUSY", "SQLITE_LOCKED"):
            return TransientError(
                f"{what}: another program has locked {self._path}.", hint="It is tried again."
            )
        if verdict is Verdict.OUTAGE:
            return TransientError(
                f"{what}: {self._path}: {code}.",
                hint="It is tried again. Look at the disk, and whether this account may write the file.",
            )
        if table is not None and isinstance(error, (sqlite3.IntegrityError, sqlite3.DataError)):
            return TableError(
                f"{what}: SQLite refuses it ({type(error).__name__}).",
                hint="Remove what refuses rows (a constraint or trigger of your own), then run "
                f"`penstock unpark FILE {argument(table)}`.",
                table=str(table),
            )
        if table is not None and verdict is Verdict.POISON:
            return TableError(
                f"{what}: SQLite says `{error}`.",
                hint="Somebody else has changed the target, or a view or trigger of it. Mend that, then run "
                f"`penstock unpark FILE {argument(table)}`.",
                table=str(table),
            )
        return ConfigError(
            f"{what}: {self._path}: {code}.", hint="Is it a SQLite file that this account may write?"
        )

    # names

    def target(self, place: Place) -> str:
        return self.quoted(place.name)

    def place(self, names: Sequence[str]) -> Place:
        return Place("", names[0])

    def table_folded(self, name: str) -> str:
        return folded(name)

    # definitions

    def has_schema(self, session: Session, schema: str) -> bool:
        return True

    def make_schema(self, session: Session, schema: str) -> None:
        """Does nothing: SQLite has no schemas."""

    def columns(self, session: Session, place: Place) -> dict[str, str]:
        return dict(self.run(session, "SELECT name, type FROM pragma_table_info(%s, 'main')", [place.name]))

    def type_of(self, kind: DataType) -> str:
        if isinstance(kind, DecimalType) and (kind.scale or kind.precision > 18):
            return "TEXT"  # as a number it would be a binary one
        if isinstance(kind, (IntegralType, BooleanType, DecimalType)):
            return "INTEGER"
        if isinstance(kind, FractionalType):
            return "REAL"
        return "BLOB" if isinstance(kind, BinaryType) else "TEXT"

    def make_key(self, session: Session, place: Place, key: Mapping[str, str], *, unique: bool) -> None:
        columns = ", ".join(map(self.quoted, key))
        name, kind = self.quoted(self.key_name(place)), "UNIQUE INDEX" if unique else "INDEX"
        self.run(session, f"CREATE {kind} {name} ON {self.target(place)} ({columns})")

    def key_name(self, place: Place) -> str:
        return f"{place.name}_penstock_key"

    def converted(self, column: str, old: DataType, kind: DataType) -> str:
        if isinstance(kind, StringType):
            return "NULL" if isinstance(old, BinaryType) else f"CAST({column} AS TEXT)"
        if isinstance(old, DateType) and isinstance(kind, TimestampNTZType):
            return f"{column} || ' 00:00:00.000000'"  # times are texts
        if isinstance(kind, (NumericType, BooleanType)) and isinstance(
            old, (NumericType, BooleanType, StringType)
        ):
            return f"penstock_number({column}, '{kind.simpleString()}')"
        return "NULL"

    # rows

    def scanned(self, session: Session, target: str, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
        cursor = session.cursor()
        cursor.execute(f"SELECT {', '.join(map(self.quoted, fields.names))} FROM {target}")
        while rows := cursor.fetchmany(ROWS_AT_ONCE):
            yield row_batch(rows, fields)

    def make_stage(self, session: Session, columns: Mapping[str, str]) -> str:
        parts = ", ".join(f"{self.quoted(name)} {kind}" for name, kind in columns.items())
        self.run(session, f"DROP TABLE IF EXISTS temp.{STAGE}")
        self.run(session, f"CREATE TEMPORARY TABLE {STAGE} ({parts})")
        return f"temp.{STAGE}"

    def load(self, session: Session, into: str, batches: Iterable[pa.RecordBatch], table: TableId) -> int:
        rows = 0
        alone = not session.in_transaction
        if alone:  # else each row would be a transaction
            self.run(session, "BEGIN")
        for batch in pieces(batches):
            arrow_text.refuse_no_numbers(batch, table, "SQLite", infinities=False)
            columns = ", ".join(map(self.quoted, batch.schema.names))
            marks = ", ".join("?" * batch.num_columns)
            sql = f"INSERT INTO {into} ({columns}) VALUES ({marks})"
            session.executemany(sql, arrow_text.as_rows(batch))
            rows += batch.num_rows
        if alone:
            self.commit(session)
        return rows

    def delete_sql(self, target: str, match: str, names: Sequence[str]) -> str:
        return (
            f"DELETE FROM {target} WHERE {ROW_ID} IN (SELECT t.{ROW_ID} FROM {STAGE} s CROSS JOIN {target} t "
            f"WHERE {match} AND NOT ({self.live}) AND {self.newer})"
        )

    def update_sql(self, target: str, match: str, names: Sequence[str], incomplete: Incomplete | None) -> str:
        values = ", ".join(f"{self.quoted(name)} = {self.new_value(name, incomplete)}" for name in names)
        return (
            f"UPDATE {target} AS t SET {values} FROM {STAGE} s WHERE {match} AND {self.live} AND {self.newer}"
        )


def _code(error: Exception) -> str:
    """The name of the primary code of an error."""
    if name := getattr(error, "sqlite_errorname", ""):
        return "_".join(name.split("_")[:2])  # without the extended code, as in SQLITE_IOERR_WRITE
    text = str(error)
    return next((name for start, name in SQLITE_TEXTS.items() if text.startswith(start)), "SQLITE_ERROR")


def _number(value: object, kind: str) -> str | int | float | None:
    """A value as a number of a type, or NULL if it does not fit. SQLite calls it."""
    if value is None:
        return None
    try:
        number = Decimal(str(value).strip())
        if not number.is_finite():
            return None
        if kind == "boolean":
            return int(number != 0)
        if kind in ("float", "double"):
            return float(number)
        if kind.startswith("decimal("):
            precision, scale = map(int, kind[8:-1].split(","))
            number = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
            fits = abs(number) < Decimal(10) ** (precision - scale)
            plain = int(number) if scale == 0 and precision <= 18 else format(number, "f")
            return plain if fits else None
        bits = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}[kind]
        whole = int(number)
        return whole if -(2**bits) <= whole < 2**bits else None
    except InvalidOperation:
        return None
