"""The sink's own table in the database: what each target is, and its last commit.

It is in the same database as the targets, so one transaction changes both.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StructType

from penstock.sinks.base import FORMAT, Commit
from penstock.sinks.sql.dialect import Dialect, Place, Session

LOST = "lost"
"""Stands where the format's version stands otherwise: see `Record.lost`."""
_COLUMNS = "target, pipeline, source, format, definition, epoch, step, generation"


@dataclass(frozen=True)
class Record:
    """The record of a target. `columns`: the source's, and `_sequence`, in their order, in Spark's types. The
    database may have them in another order, and columns of others beside them."""

    pipeline: str
    source: str
    columns: StructType
    key: tuple[str, ...]
    last: Commit | None = None
    generation: int = 0
    lost: bool = False
    """The database has lost changes, so nothing is written until the target is created again."""


class Control:
    """The control table, with a record of each target. `schema`: the schema that it is in. Empty in
    SQLite."""

    def __init__(self, dialect: Dialect, schema: str) -> None:
        self._dialect = dialect
        self._schema = schema
        sqlite = dialect.name == "sqlite"
        self.place = dialect.place(("penstock_targets",) if sqlite else (schema, "targets"))
        self._table = dialect.target(self.place)

    def prepare(self, session: Session) -> None:
        """Creates the table if it is missing."""
        run, text = self._dialect.run, self._dialect.text_type
        if self._dialect.columns(session, self.place):
            return
        if self.place.schema:
            self._dialect.make_schema(session, self._schema)
        key = self._dialect.control_key_type
        run(
            session,
            f"CREATE TABLE IF NOT EXISTS {self._table} (target {key} NOT NULL PRIMARY KEY, pipeline {text} "
            f"NOT NULL, source {text} NOT NULL, format {text} NOT NULL, definition {text} NOT NULL, "
            "epoch BIGINT, step BIGINT, generation BIGINT NOT NULL)",
        )

    def find(self, session: Session, place: Place, *, lock: bool = False) -> Record | None:
        """The record of a target. `lock`: nobody else may write it until the end of the transaction."""
        locked = " FOR UPDATE" if lock and self._dialect.locks_rows else ""
        sql = f"SELECT {_COLUMNS} FROM {self._table} WHERE target = %s{locked}"
        rows = self._dialect.run(session, sql, [self._dialect.key(place)])
        if not rows:
            return None
        _, pipeline, source, form, definition, epoch, step, generation = rows[0]
        found = json.loads(definition)
        return Record(
            pipeline,
            source,
            StructType.fromJson(found["columns"]),
            tuple(found["key"]),
            None if epoch is None else Commit(pipeline, int(epoch), int(step)),
            int(generation),
            form == LOST,
        )

    def put(self, session: Session, place: Place, record: Record) -> None:
        """Replaces the record of a target."""
        self.remove(session, place)
        last = record.last
        values: list[Any] = [
            self._dialect.key(place),
            record.pipeline,
            record.source,
            FORMAT,
            _definition(record),
        ]
        values += [None, None] if last is None else [last.epoch, last.step]
        marks = ", ".join(["%s"] * 8)
        sql = f"INSERT INTO {self._table} ({_COLUMNS}) VALUES ({marks})"
        self._dialect.run(session, sql, [*values, record.generation])

    def commit(self, session: Session, place: Place, commit: Commit, record: Record | None = None) -> None:
        """Records a commit, and with `record` also other columns."""
        values: list[Any] = [commit.epoch, commit.step]
        more = ""
        if record is not None:
            values.append(_definition(record))
            more = ", definition = %s"
        sql = f"UPDATE {self._table} SET epoch = %s, step = %s{more} WHERE target = %s"
        self._dialect.run(session, sql, [*values, self._dialect.key(place)])

    def fence(self, session: Session, place: Place, generation: int) -> None:
        sql = f"UPDATE {self._table} SET generation = %s WHERE target = %s"
        self._dialect.run(session, sql, [generation, self._dialect.key(place)])

    def note_lost(self, session: Session, place: Place) -> None:
        sql = f"UPDATE {self._table} SET format = %s WHERE target = %s"
        self._dialect.run(session, sql, [LOST, self._dialect.key(place)])

    def remove(self, session: Session, place: Place) -> None:
        self._dialect.run(session, f"DELETE FROM {self._table} WHERE target = %s", [self._dialect.key(place)])


def _definition(record: Record) -> str:
    return json.dumps({"columns": record.columns.jsonValue(), "key": list(record.key)}, ensure_ascii=False)
