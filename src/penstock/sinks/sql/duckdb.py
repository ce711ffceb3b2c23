"""DuckDB: one file, which one process at a time has open.

Sessions are closed after each write, so that others can read the file in between. There is no index: DuckDB
joins the stage with whole columns, and its indexes refuse updates of a key's columns.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
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
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from penstock.connections.verdicts import Verdict
from penstock.errors import ConfigError, PenstockError, TableError, TransientError
from penstock.model.schema import TableId
from penstock.printable import argument
from penstock.sinks.rows import Incomplete
from penstock.sinks.sql import refused_definitions
from penstock.sinks.sql.codes import DUCKDB
from penstock.sinks.sql.dialect import STAGE, Dialect, Place, Session
from penstock.sinks.sql.options import JdbcOptions, folded
from penstock.sinks.texts import ROWS_AT_ONCE, batch_of

VERSION_MIN = 2
"""The first major release that changes columns and rows in one transaction."""
MEMORY_MAX = "1GB"
"""DuckDB's own default is most of the machine's, which Spark has, too. It spills into a folder beside the
file."""
OPENED_WAIT_S = 5.0
"""How long it is tried to open a file that another process has open: pipeline and `penstock verify` have it
open for moments, by turns."""
_ROWS = "penstock_rows"
_TYPES: dict[type[DataType], str] = {
    BooleanType: "BOOLEAN",
    ByteType: "TINYINT",
    ShortType: "SMALLINT",
    IntegerType: "INTEGER",
    LongType: "BIGINT",
    FloatType: "FLOAT",
    DoubleType: "DOUBLE",
    StringType: "VARCHAR",
    BinaryType: "BLOB",
    DateType: "DATE",
    TimestampNTZType: "TIMESTAMP",
    TimestampType: "TIMESTAMP WITH TIME ZONE",
}


class DuckDb(Dialect):
    name = "duckdb"
    errors = (duckdb.Error,)
    parameter = "?"
    text_type = "VARCHAR"
    flag_type = "BOOLEAN"
    control_key_type = "VARCHAR"
    locks_rows = False
    keeps_sessions = False
    indexes_keys = False
    isolates = False

    def __init__(self, options: JdbcOptions) -> None:
        self._path = options.address.database
        if int(duckdb.__version__.split(".")[0]) < VERSION_MIN:
            raise ConfigError(
                f"The sink jdbc needs DuckDB {VERSION_MIN} or newer; {duckdb.__version__} is installed, "
                "which cannot change columns and rows in one transaction.",
                hint=f"pip install 'duckdb>={VERSION_MIN}' (it needs Python 3.11)",
            )

    # sessions

    def connect(self) -> Session:
        if not Path(self._path).parent.is_dir():
            raise ConfigError(
                f"The folder of {self._path} does not exist.", hint="Create it, or correct `sink.url`."
            )
        deadline = time.monotonic() + OPENED_WAIT_S
        while True:
            try:
                return duckdb.connect(self._path, config={"memory_limit": MEMORY_MAX})
            except duckdb.IOException as error:
                if "lock" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)  # polls, with a limit

    def begin_reading(self, session: Session) -> None:
        self.run(session, "SET TimeZone = 'UTC'")
        self.run(session, "BEGIN")

    def run(self, session: Session, sql: str, parameters: Sequence[Any] | None = None) -> list[Any]:
        if parameters is None:
            return list(session.execute(sql).fetchall())
        return list(session.execute(sql.replace("%s", "?"), list(parameters)).fetchall())

    def fill(self, session: Session, sql: str, parameters: Sequence[Any]) -> None:
        parts = sql.split("%%")
        session.execute("%".join(part.replace("%s", "?") for part in parts), list(parameters))

    def explained(self, error: Exception, what: str, table: TableId | None) -> PenstockError:
        kind = type(error).__name__
        if isinstance(error, duckdb.IOException) and "lock" in str(error):
            return TransientError(
                f"{what}: another program has opened {self._path}.",
                hint="It is tried again until that program closes the file.",
            )
        invalid = next((text for text in DUCKDB.configuration if str(text) in str(error)), kind)
        verdict = DUCKDB.verdict(invalid, *(one.__name__ for one in type(error).__mro__))
        if verdict is Verdict.OUTAGE:
            return TransientError(
                f"{what}: {kind} of DuckDB.", hint="It is tried again. Look at memory and disk."
            )
        if table is not None and isinstance(
            error, (duckdb.BinderException, duckdb.CatalogException, duckdb.DependencyException)
        ):
            return refused_definitions.refused(
                what, str(error).split("\n")[0], refused_definitions.DEPENDS, table
            )
        if table is not None and verdict is Verdict.POISON:
            return TableError(
                f"{what}: DuckDB refuses it ({kind}).",
                hint="Remove what refuses it (a constraint, view or change of your own), then run "
                f"`penstock unpark FILE {argument(table)}`.",
                table=str(table),
            )
        return ConfigError(
            f"{what}: {self._path}: {kind}.", hint="Is it a DuckDB file that this account may write?"
        )

    def table_folded(self, name: str) -> str:
        return folded(name)

    # definitions

    def has_schema(self, session: Session, schema: str) -> bool:
        sql = (
            "SELECT 1 FROM duckdb_schemas() WHERE database_name = current_database() "
            "AND lower(schema_name) = lower(%s)"
        )
        return bool(self.run(session, sql, [schema]))

    def columns(self, session: Session, place: Place) -> dict[str, str]:
        """Names of schemas and tables are the same in capital and small letters."""
        sql = (
            "SELECT column_name, data_type FROM duckdb_columns() WHERE database_name = current_database() "
            "AND lower(schema_name) = lower(%s) AND lower(table_name) = lower(%s) ORDER BY column_index"
        )
        return dict(self.run(session, sql, [place.schema, place.name]))

    def type_of(self, kind: DataType) -> str:
        if isinstance(kind, DecimalType):
            return f"DECIMAL({kind.precision},{kind.scale})"
        return _TYPES[type(kind)]

    def make_key(self, session: Session, place: Place, key: Mapping[str, str], *, unique: bool) -> None:
        """Does nothing: rows are found without an index."""

    def converted(self, column: str, old: DataType, kind: DataType) -> str:
        if isinstance(old, BinaryType) or isinstance(kind, BinaryType):
            return "NULL"
        value = f"trim({column})" if isinstance(old, StringType) else column
        return f"TRY_CAST({value} AS {self.type_of(kind)})"

    # rows

    def scanned(self, session: Session, target: str, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
        found = session.sql(f"SELECT {', '.join(map(self.quoted, fields.names))} FROM {target}")
        for batch in found.to_arrow_reader(ROWS_AT_ONCE):
            yield batch_of(batch.columns, fields)

    def make_stage(self, session: Session, columns: Mapping[str, str]) -> str:
        parts = ", ".join(f"{self.quoted(name)} {kind}" for name, kind in columns.items())
        self.run(session, f"CREATE OR REPLACE TEMPORARY TABLE {STAGE} ({parts})")
        return STAGE

    def load(self, session: Session, into: str, batches: Iterable[pa.RecordBatch], table: TableId) -> int:
        rows = 0
        for batch in batches:
            columns = ", ".join(map(self.quoted, batch.schema.names))
            session.register(_ROWS, pa.Table.from_batches([batch]))
            session.execute(f"INSERT INTO {into} ({columns}) SELECT {columns} FROM {_ROWS}")
            session.unregister(_ROWS)
            rows += batch.num_rows
        return rows

    def delete_sql(self, target: str, match: str, names: Sequence[str]) -> str:
        return (
            f"DELETE FROM {target} AS t USING {STAGE} AS s WHERE {match} AND NOT ({self.live}) "
            f"AND {self.newer}"
        )

    def update_sql(self, target: str, match: str, names: Sequence[str], incomplete: Incomplete | None) -> str:
        values = ", ".join(f"{self.quoted(name)} = {self.new_value(name, incomplete)}" for name in names)
        return (
            f"UPDATE {target} AS t SET {values} FROM {STAGE} AS s WHERE {match} AND {self.live} "
            f"AND {self.newer}"
        )
