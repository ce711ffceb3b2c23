"""What the products have in common, and what each says for itself.

A `Dialect` writes SQL and speaks to one database. Sessions commit each statement by itself, unless `begin`
and `commit` are around it. Its methods raise the driver's own errors, which `explained` turns into
Penstock's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.types import DataType, DateType, StringType, StructType, TimestampNTZType, TimestampType

from penstock.errors import PenstockError
from penstock.model.change import DELETED, PRESENT, SEQUENCE
from penstock.model.schema import Column, TableId
from penstock.sinks.rows import Incomplete

STAGE = "penstock_stage"
"""The temporary table of a session with the rows of one merge."""
Session = Any
"""A connection of the product's driver."""


@dataclass(frozen=True)
class Place:
    """Names of a target. `schema` is empty in SQLite."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


class Dialect:
    """Base class. `table` names the table for errors."""

    name: ClassVar[str]
    errors: ClassVar[tuple[type[Exception], ...]]
    """The classes of the driver's errors."""
    ddl_in_transactions: ClassVar[bool] = True
    """Whether a transaction may change definitions, and take that back."""
    locks_rows: ClassVar[bool] = True
    """Whether `SELECT … FOR UPDATE` keeps others away. If not, one transaction at a time writes anyway."""
    keeps_sessions: ClassVar[bool] = True
    """Whether sessions stay open between writes."""
    indexes_keys: ClassVar[bool] = True
    """Whether targets have an index of their key."""
    widens_columns: ClassVar[bool] = True
    """Whether a column can get a wider type. If not, it stores the values of wider ones in the same way."""
    isolates: ClassVar[bool] = True
    """Whether a reading transaction sees nothing that is written meanwhile, and does not block writers."""
    parameter: ClassVar[str] = "%s"
    text_type: ClassVar[str] = "text"
    flag_type: ClassVar[str] = "boolean"
    control_key_type: ClassVar[str] = "text"

    # sessions -----------------------------------------------------------------------------------------------

    def connect(self) -> Session:
        raise NotImplementedError

    def watched(self, session: Session) -> AbstractContextManager[None]:
        """The block uses this session, and gets an error if the server does not answer any more
        (`silence.py`)."""
        return nullcontext()

    def run(self, session: Session, sql: str, parameters: Sequence[Any] | None = None) -> list[Any]:
        """Runs a statement, and returns its rows. Each `%s` of a statement with parameters is one of them."""
        cursor = session.cursor()
        try:
            if parameters is None:
                cursor.execute(sql)
            else:
                cursor.execute(sql.replace("%s", self.parameter), tuple(parameters))
            return list(cursor.fetchall()) if cursor.description else []
        finally:
            cursor.close()

    def fill(self, session: Session, sql: str, parameters: Sequence[Any]) -> None:
        """Runs a statement in which `%s` is a parameter and `%%` a percent sign."""
        cursor = session.cursor()
        try:
            cursor.execute(sql, tuple(parameters))
        finally:
            cursor.close()

    def begin(self, session: Session) -> None:
        self.run(session, "BEGIN")

    def commit(self, session: Session) -> None:
        self.run(session, "COMMIT")

    def begin_reading(self, session: Session) -> None:
        """Begins a transaction that sees the present rows of all tables until its end."""
        raise NotImplementedError

    def explained(self, error: Exception, what: str, table: TableId | None) -> PenstockError:
        """The error of the driver as Penstock's, without values of rows. `what` begins the message."""
        raise NotImplementedError

    # names --------------------------------------------------------------------------------------------------

    def quoted(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def target(self, place: Place) -> str:
        """The target's name as SQL."""
        return f"{self.quoted(place.schema)}.{self.quoted(place.name)}"

    def place(self, names: Sequence[str]) -> Place:
        """The place of a target that `SinkOptions.place` names."""
        schema, name = names
        return Place(schema, name)

    def folded(self, name: str) -> str:
        """A form of a name. Names with equal ones mean the same column."""
        return name.lower()

    def table_folded(self, name: str) -> str:
        """A form of a table's name or a schema's. Names with equal ones mean the same. Called after
        `connect`."""
        return name

    def key(self, place: Place) -> str:
        """The place as one text, by which the control table names it."""
        names = [self.table_folded(place.schema), self.table_folded(place.name)]
        return json.dumps(names, ensure_ascii=False)

    # definitions --------------------------------------------------------------------------------------------

    def has_schema(self, session: Session, schema: str) -> bool:
        raise NotImplementedError

    def make_schema(self, session: Session, schema: str) -> None:
        if not self.has_schema(session, schema):
            self.run(session, f"CREATE SCHEMA IF NOT EXISTS {self.quoted(schema)}")

    def columns(self, session: Session, place: Place) -> dict[str, str]:
        """The columns of a table with their types as SQL. Empty: there is no such table."""
        raise NotImplementedError

    def type_of(self, kind: DataType) -> str:
        """The type in which values are stored."""
        raise NotImplementedError

    def key_types(self, kinds: Mapping[str, DataType], columns: Mapping[str, Column]) -> dict[str, str]:
        """The types of a key's columns."""
        return {name: self.type_of(kind) for name, kind in kinds.items()}

    def make_new(
        self,
        session: Session,
        place: Place,
        columns: Mapping[str, str],
        key: Mapping[str, str],
        *,
        unique: bool,
    ) -> None:
        """Creates the target with the index of its key. `unique`: it has no NULL in it."""
        parts = ", ".join(f"{self.quoted(name)} {kind}" for name, kind in columns.items())
        self.run(session, f"CREATE TABLE {self.target(place)} ({parts})")
        if key:
            self.make_key(session, place, key, unique=unique)

    def make_key(self, session: Session, place: Place, key: Mapping[str, str], *, unique: bool) -> None:
        """Creates the index by which rows are found. `key`: columns and their types."""
        raise NotImplementedError

    def converted(self, column: str, old: DataType, kind: DataType) -> str:
        """SQL for a column's values in another type. A value that does not fit becomes NULL."""
        raise NotImplementedError

    # rows ---------------------------------------------------------------------------------------------------

    def scanned(self, session: Session, target: str, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
        """All rows of a table, with these columns in these types. Raises `Unfit`."""
        raise NotImplementedError

    def make_stage(self, session: Session, columns: Mapping[str, str]) -> str:
        """Creates an empty `STAGE` with these columns, and returns its name as SQL."""
        raise NotImplementedError

    def load(self, session: Session, into: str, batches: Iterable[pa.RecordBatch], table: TableId) -> int:
        """Adds rows to a table that has the columns of the batches. Returns how many."""
        raise NotImplementedError

    def loaded(self, session: Session, rows: int) -> None:
        """Called when the stage is complete."""

    def equal(self, name: str, kind: DataType) -> str:
        """The condition that the column `name` has equal values in the target `t` and the stage `s`. Key
        columns are NOT NULL at the source, but a zero date arrives as NULL."""
        one, other = f"t.{self.quoted(name)}", f"s.{self.quoted(name)}"
        if nullable(kind):
            return f"({one} = {other} OR ({one} IS NULL AND {other} IS NULL))"
        return f"{one} = {other}"

    def match(self, key: Sequence[str], columns: StructType) -> str:
        return " AND ".join(self.equal(name, columns[name].dataType) for name in key)

    def new_value(self, name: str, incomplete: Incomplete | None) -> str:
        """The value that an update gives to a column: the log's, or the target's own if the log has none."""
        value = f"s.{self.quoted(name)}"
        if incomplete is None or name == SEQUENCE:
            return value
        own = self.quoted(PRESENT)
        place = incomplete.places.get(name)
        present = "" if place is None else f" OR substr(s.{own}, {place + 1}, 1) = '1'"
        return f"CASE WHEN s.{own} IS NULL{present} THEN {value} ELSE t.{self.quoted(name)} END"

    def delete_sql(self, target: str, match: str, names: Sequence[str]) -> str:
        """Deletes the rows that newer ones of the stage delete. `names`: all columns of the target."""
        raise NotImplementedError

    def update_sql(self, target: str, match: str, names: Sequence[str], incomplete: Incomplete | None) -> str:
        """SQL that writes the newer rows of the stage to the target."""
        raise NotImplementedError

    def update(
        self, session: Session, place: Place, match: str, names: Sequence[str], incomplete: Incomplete | None
    ) -> None:
        self.run(session, self.update_sql(self.target(place), match, names, incomplete))

    def insert_sql(self, target: str, match: str, names: Sequence[str], incomplete: Incomplete | None) -> str:
        columns = ", ".join(self.quoted(name) for name in names)
        values = ", ".join(f"s.{self.quoted(name)}" for name in names)
        complete = "" if incomplete is None else f" AND s.{self.quoted(PRESENT)} IS NULL"
        return (
            f"INSERT INTO {target} ({columns}) SELECT {values} FROM {STAGE} s WHERE {self.live}{complete} "
            f"AND NOT EXISTS (SELECT 1 FROM {target} t WHERE {match})"
        )

    def lacking_sql(self, target: str, match: str) -> str:
        """Finds a row without all columns for which the target has none to take them from."""
        return (
            f"SELECT s.{self.quoted(SEQUENCE)} FROM {STAGE} s WHERE {self.live} "
            f"AND s.{self.quoted(PRESENT)} IS NOT NULL "
            f"AND NOT EXISTS (SELECT 1 FROM {target} t WHERE {match}) LIMIT 1"
        )

    @property
    def live(self) -> str:
        return f"NOT s.{self.quoted(DELETED)}"

    @property
    def newer(self) -> str:
        return f"s.{self.quoted(SEQUENCE)} > t.{self.quoted(SEQUENCE)}"


def nullable(kind: DataType) -> bool:
    """Whether a key's column of this type can be NULL."""
    return isinstance(kind, (DateType, TimestampType, TimestampNTZType))


def is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType)


def shortened(name: str, units_max: int, *, unit: Callable[[str], int]) -> str:
    """A name that the product takes. A longer one is cut, and ends in a digest of the whole. `unit`: what a
    character counts."""
    if sum(map(unit, name)) <= units_max:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    kept, room = "", units_max - 1 - len(digest)
    for character in name:
        room -= unit(character)
        if room < 0:
            break
        kept += character
    return f"{kept}~{digest}"
