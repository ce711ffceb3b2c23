"""The sink `jdbc`: a `TableSink` for SQL databases.

**Why each change counts once.** A write is one transaction of the database. It locks the target's row in the
control table, looks for the commit there, changes the rows, and records the commit. So either all of it
happened or nothing, and a write that is repeated is recognised.

**Merges.** Rows are first loaded into a temporary table of the session, outside of the transaction, which is
therefore short. Three statements then delete, update and insert, and each compares `_sequence`. Nothing
depends on the target's indexes but speed.

**Definitions.** PostgreSQL and SQLite change them in the same transaction. For MySQL see `mysql.py`.

Rows go through the driver, on one connection a table. Small epochs are decoded there anyway. Larger ones are
decoded by Spark's tasks, and collected from one task after the other.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from penstock.errors import ConfigError, TableError, TransientError
from penstock.model.change import DELETED, PRESENT, SEQUENCE
from penstock.model.schema import TableId, TableSchema
from penstock.printable import argument
from penstock.sinks.base import (
    Commit,
    Compacted,
    EvolvedColumn,
    Foreign,
    Missing,
    Narrowing,
    Ours,
    TargetState,
)
from penstock.sinks.collected import batches_of
from penstock.sinks.names import refuse_own_names, source_columns
from penstock.sinks.recorded import Recorded
from penstock.sinks.refusals import (
    check_pipeline,
    is_recorded,
    missing_row,
    of_other_pipeline,
    refuse_foreign,
    refuse_replaced,
    refuse_shared,
)
from penstock.sinks.rows import Rows
from penstock.sinks.spark_sql import target_type
from penstock.sinks.sql.columns import alter_once, evolution, evolve
from penstock.sinks.sql.control import Control, Record
from penstock.sinks.sql.dialect import Dialect, Place, Session, nullable
from penstock.sinks.sql.options import JdbcOptions
from penstock.sinks.sql.scan import SqlScan

Act = Callable[[Session, Place, Record], "Record | None"]


class SqlSink(Recorded):
    """The sink of one pipeline, whose uuid is `pipeline`."""

    def __init__(self, dialect: Dialect, options: JdbcOptions, spark: SparkSession, pipeline: str) -> None:
        super().__init__(pipeline)
        self._dialect = dialect
        self._options = options
        self._spark = spark
        self._control = Control(dialect, options.control)
        self._prepared = False
        """Whether the control table is known to be there."""
        self._idle: list[Session] = []
        self._guard = threading.Lock()
        self._creating = threading.Lock()

    # Sink ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        try:
            with self._session(f"The database {self._options.address} cannot be used"):
                return
        except TransientError as error:
            raise ConfigError(error.message, hint="Start it, or correct `sink.url`.") from None

    def open(self, table: TableId) -> TargetState:
        place = self._place(table)
        with self._session(f"The target of {table} cannot be looked at", table) as session:
            present, record = self._dialect.columns(session, place), self._control.find(session, place)
            if not present:
                return Missing()
            cure = "Name another `sink.namespace`, or drop the table if nobody needs it."
            if record is None:
                return Foreign(str(place), "a table that Penstock did not create", cure)
            if record.pipeline != self._pipeline:
                cure += f" Then delete its row in {self._control.place}, too."
                return of_other_pipeline(str(place), "table", record.pipeline, cure)
            found = self._dialect.run(session, f"SELECT 1 FROM {self._dialect.target(place)} LIMIT 1")
        made = source_columns(tuple(record.columns.names))
        names = tuple(name for name in made if name in present)
        lost = tuple(name for name in made if name not in present)
        return Ours(record.last, names, empty=not found, lost_columns=lost)

    def create(self, schema: TableSchema, arrow: pa.Schema) -> None:
        refuse_own_names(schema, self._options.reserved)
        with self._creating:  # two names may mean one table
            self._create(schema, arrow)

    def _create(self, schema: TableSchema, arrow: pa.Schema) -> None:
        table = schema.table
        found = self.open(table)
        refuse_foreign(table, found)
        place, dialect = self._place(table), self._dialect
        columns = target_type(arrow)
        record = Record(self._pipeline, str(table), columns, schema.key, None, self._generation)
        types = {field.name: dialect.type_of(field.dataType) for field in columns}
        kinds = {name: columns[name].dataType for name in schema.key}
        types |= dialect.key_types(kinds, {column.name: column for column in schema.columns})
        key = {name: types[name] for name in schema.key}
        unique = not any(nullable(kind) for kind in kinds.values())
        with self._session(f"The target of {table} cannot be created", table) as session:
            if not isinstance(found, Missing):
                refuse_shared(table, str(place), self._record(session, table, place).source)
                return
            dialect.make_schema(session, place.schema)
            self._seen.pop(table, None)
            self._dialect.begin(session)
            self._control.put(session, place, record)
            if not dialect.ddl_in_transactions:
                dialect.commit(session)
            dialect.make_new(session, place, types, key, unique=unique)
            if dialect.ddl_in_transactions:
                dialect.commit(session)

    def truncate(
        self, table: TableId, commit: Commit, *, sequence: int, timestamp_us: int | None = None
    ) -> bool:
        return self._delete(table, "", commit)

    def evolve(
        self, table: TableId, columns: Sequence[EvolvedColumn], commit: Commit, *, narrowing: Narrowing
    ) -> bool:
        dialect = self._dialect

        def act(session: Session, place: Place, record: Record) -> Record:
            present = dialect.columns(session, place)
            work = evolution(
                dialect, table, place, present, record, columns, narrowing, self._options.reserved
            )
            if dialect.ddl_in_transactions:
                evolve(dialect, session, self._spark, work)
            else:
                dialect.commit(session)
                alter_once(dialect, session, self._spark, work, commit)  # type: ignore[arg-type]
                dialect.begin(session)
            return work.record

        return self._change(table, commit, act)

    def close(self) -> None:
        with self._guard:
            idle, self._idle = self._idle, []
        for session in idle:
            self._drop_session(session)

    # Fencing ------------------------------------------------------------------------------------------------

    def fence(self, table: TableId) -> None:
        place = self._place(table)
        with self._session(f"The target of {table} cannot be fenced", table) as session:
            self._dialect.begin(session)
            record = self._control.find(session, place, lock=True)
            if record is not None and record.pipeline == self._pipeline:
                refuse_replaced(table, record.generation, self._generation)
                self._control.fence(session, place, self._generation)
            self._dialect.commit(session)

    # TableSink ----------------------------------------------------------------------------------------------

    def append(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        def act(session: Session, place: Place, record: Record) -> None:
            self._dialect.load(session, self._dialect.target(place), _live(batches_of(rows)), table)

        return self._change(table, commit, act)

    def merge(self, table: TableId, rows: Rows, key: tuple[str, ...], commit: Commit) -> bool:
        place = self._place(table)
        check_pipeline(commit, self._pipeline)
        with self._session(f"Rows of {table} were not written", table) as session:
            record = self._record(session, table, place)
            refuse_replaced(table, record.generation, self._generation)
            if is_recorded(commit, record.last):
                return False
            names = self._stage(session, table, place, rows)
            self._dialect.begin(session)
            record = self._record(session, table, place, lock=True)
            refuse_replaced(table, record.generation, self._generation)
            if is_recorded(commit, record.last):  # by another driver, while rows were loaded
                self._dialect.commit(session)
                return False
            if names:
                self._merge_staged(session, table, place, record.columns, names, rows, key)
            self._finish(session, table, place, commit, None)
            return True

    def _stage(self, session: Session, table: TableId, place: Place, rows: Rows) -> list[str]:
        """Loads the rows into the stage. Returns the columns that the target gets. Empty: no rows."""
        dialect = self._dialect
        batches = iter(_staged(batches_of(rows)))
        first = next(batches, None)
        if first is None:
            return []
        names = [*source_columns(first.schema.names), SEQUENCE]
        present = dialect.columns(session, place)
        self._refuse_lacking(table, names, present)
        own = {DELETED: dialect.flag_type, PRESENT: dialect.text_type}
        types = {name: own.get(name) or present[name] for name in first.schema.names}
        stage = dialect.make_stage(session, types)
        dialect.loaded(session, dialect.load(session, stage, chain([first], batches), table))
        return names

    def _merge_staged(
        self,
        session: Session,
        table: TableId,
        place: Place,
        columns: StructType,
        names: Sequence[str],
        rows: Rows,
        key: tuple[str, ...],
    ) -> None:
        dialect, incomplete = self._dialect, rows.incomplete
        target, match = dialect.target(place), dialect.match(key, columns)
        if incomplete is not None and incomplete.target_is_complete:
            lacking = dialect.run(session, dialect.lacking_sql(target, match))
            if lacking:
                raise missing_row(table, int(lacking[0][0]))
        dialect.run(session, dialect.delete_sql(target, match, names))
        dialect.update(session, place, match, names, incomplete)
        dialect.run(session, dialect.insert_sql(target, match, names, incomplete))

    def delete_older(self, table: TableId, sequence: int, commit: Commit) -> bool:
        return self._delete(table, f" WHERE {self._dialect.quoted(SEQUENCE)} < {int(sequence)}", commit)

    def _delete(self, table: TableId, condition: str, commit: Commit) -> bool:
        def act(session: Session, place: Place, record: Record) -> None:
            self._dialect.run(session, f"DELETE FROM {self._dialect.target(place)}{condition}")

        return self._change(table, commit, act)

    def _place_and_source(self, table: TableId) -> tuple[str, str | None]:
        place = self._place(table)
        with self._session(f"The target of {table} cannot be looked at", table) as session:
            record = self._control.find(session, place)
        return str(place), None if record is None else record.source

    def _remove(self, table: TableId) -> None:
        place, dialect = self._place(table), self._dialect
        with self._session(f"The target of {table} cannot be removed", table) as session:
            self._dialect.begin(session)  # in MySQL, DROP TABLE ends the transaction
            dialect.run(session, f"DROP TABLE {dialect.target(place)}")
            self._control.remove(session, place)
            dialect.commit(session)

    def compact(self, table: TableId) -> Compacted:
        return Compacted(1, 1)  # the database does that by itself

    # Scannable ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def scan(self) -> Iterator[SqlScan]:
        with self._session("The targets cannot be read") as session:
            self._dialect.begin_reading(session)
            yield SqlScan(self._dialect, session, self._own_place)
            self._dialect.commit(session)

    def _own_place(self, session: Session, table: TableId) -> Place:
        place = self._place(table)
        if self._record(session, table, place).pipeline != self._pipeline:
            raise self._lost(table, place)
        return place

    # --------------------------------------------------------------------------------------------------------

    def _place(self, table: TableId) -> Place:
        names = self._options.place(table)
        assert names is not None
        return self._dialect.place(names)

    def _record(self, session: Session, table: TableId, place: Place, *, lock: bool = False) -> Record:
        """What the control table has of a target that exists. Raises `TableError` if it has gone or belongs
        to another pipeline, and if it is older than what this sink has written: a database may lose the last
        second in a crash."""
        record = self._control.find(session, place, lock=lock)
        if record is None or record.pipeline != self._pipeline:
            what = "is gone from" if record is None else "is now another pipeline's, says"
            raise TableError(
                f"The target of {table}, {place}, {what} {self._control.place}.",
                hint=f"Run `penstock resnapshot FILE {argument(table)}`.",
                table=str(table),
            )
        last = (0, 0) if record.last is None else record.last.place
        if record.lost or last < self._seen.get(table, (0, 0)):
            self._control.note_lost(session, place)
            if lock:
                self._dialect.commit(session)
            raise self._lost(table, place)
        return record

    def _lost(self, table: TableId, place: Place) -> TableError:
        return TableError(
            f"The database has lost changes that were written to the target of {table}, {place}.",
            hint="It was restored, or crashed and does not sync each commit. Run "
            f"`penstock resnapshot --recreate FILE {argument(table)}`.",
            table=str(table),
        )

    def _refuse_lacking(self, table: TableId, names: Iterable[str], present: Mapping[str, str]) -> None:
        lacking = [name for name in names if name not in present]
        if lacking:
            raise TableError(
                f"The target of {table} has no column {lacking[0]}: somebody else has changed it.",
                hint=f"Bring it back, or run `penstock resnapshot {_recreate(lacking)}FILE "
                f"{argument(table)}`.",
                table=str(table),
            )

    def _change(self, table: TableId, commit: Commit, act: Act) -> bool:
        """A write as one transaction. `act` returns what is recorded of the target from now on, if that
        changes."""
        check_pipeline(commit, self._pipeline)
        place = self._place(table)
        with self._session(f"Epoch {commit.epoch} was not written to {table}", table) as session:
            self._dialect.begin(session)
            record = self._record(session, table, place, lock=True)
            refuse_replaced(table, record.generation, self._generation)
            if is_recorded(commit, record.last):
                self._dialect.commit(session)
                return False
            after = act(session, place, record)
            self._finish(session, table, place, commit, after)
        return True

    def _finish(
        self, session: Session, table: TableId, place: Place, commit: Commit, record: Record | None
    ) -> None:
        self._control.commit(session, place, commit, record)
        self._dialect.commit(session)
        self._seen[table] = commit.place

    @contextlib.contextmanager
    def _session(self, what: str, table: TableId | None = None) -> Iterator[Session]:
        """A session for this thread. After an error it is closed, which ends its transaction. `what`: for
        messages, if it fails."""
        session: Session = None
        try:
            with self._guard:
                session = self._idle.pop() if self._idle else None
            session = session or self._dialect.connect()
            with self._dialect.watched(session):
                if not self._prepared:
                    self._control.prepare(session)
                    self._prepared = True
                yield session
        except BaseException as error:
            if session is not None:
                self._drop_session(session)
            if isinstance(error, self._dialect.errors):
                explained = self._dialect.explained(error, what, table)
                if isinstance(explained, TransientError):
                    self.close()  # the others are probably lost, too
                raise explained from None  # the driver's own text may have values of rows
            raise
        if not self._dialect.keeps_sessions:
            self._drop_session(session)
            return
        with self._guard:
            self._idle.append(session)

    def _drop_session(self, session: Session) -> None:
        with contextlib.suppress(*self._dialect.errors):
            session.close()


def _recreate(lacking: Iterable[str]) -> str:
    """The option of `penstock resnapshot` without which these columns do not come back."""
    return "--recreate " if SEQUENCE in lacking else ""


def _live(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows that a target should hold, with the target's columns."""
    for batch in batches:
        if DELETED in batch.schema.names:
            batch = batch.filter(pc.invert(batch.column(DELETED)))
        if batch.num_rows:
            yield batch.select([*source_columns(batch.schema.names), SEQUENCE])


def _staged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows with the columns that a merge looks at."""
    for batch in batches:
        if batch.num_rows:
            own = [name for name in (SEQUENCE, DELETED, PRESENT) if name in batch.schema.names]
            yield batch.select([*source_columns(batch.schema.names), *own])
