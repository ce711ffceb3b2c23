"""A sink of another package, as docs/add-a-sink.md tells to write one: tables as Arrow files, one file a
version.

A table is a directory. `target.json` in it is the commit: it names the versions there are, and says what was
committed last. It is replaced by one rename, so a version that it does not name does not exist.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from penstock.model.change import DELETED, PRESENT, SEQUENCE
from penstock.model.plan import Move
from penstock.model.schema import TableId, TableSchema
from penstock.model.shards import Shards
from penstock.sinks.base import (
    Commit,
    Compacted,
    EvolvedColumn,
    Missing,
    Narrowing,
    Ours,
    TargetState,
)
from penstock.sinks.kind import SinkKind, SinkOptions
from penstock.sinks.names import directory_name, refuse_columns, refuse_own_names, source_columns
from penstock.sinks.refusals import (
    check_directory,
    check_pipeline,
    is_recorded,
    of_other_pipeline,
    refuse_foreign,
)
from penstock.sinks.rows import Rows, converted

STATE = "target.json"


class ArrowOptions(SinkOptions):
    """Tables as Arrow files."""

    type: Literal["arrow"]
    """Name of the sink."""
    path: Path
    """Directory of the tables."""

    @property
    def directory(self) -> Path | None:
        return self.path


class ArrowTables:
    """`TableSink`."""

    def __init__(self, options: ArrowOptions, spark: SparkSession, pipeline: str) -> None:
        self._root = options.path
        self._spark = spark
        self._pipeline = pipeline
        self._lock = threading.Lock()

    # what every sink has

    def check(self) -> None:
        check_directory(self._root)

    def open(self, table: TableId) -> TargetState:
        state = self._state(table)
        if state is None:
            return Missing()
        if state["pipeline"] != self._pipeline:
            cure = "Name another `sink.path`."
            return of_other_pipeline(str(self._path(table)), "table", state["pipeline"], cure)
        rows = self._rows(table, state["versions"][-1])
        last = Commit.parse(state["last"]) if state["last"] else None
        return Ours(last, source_columns(rows.column_names), rows.num_rows == 0)

    def create(self, schema: TableSchema, arrow: pa.Schema) -> None:
        refuse_own_names(schema)
        found = self.open(schema.table)
        refuse_foreign(schema.table, found)
        if isinstance(found, Missing):
            fields = [arrow.field(name).with_nullable(True) for name in source_columns(arrow.names)]
            empty = pa.schema([*fields, pa.field(SEQUENCE, pa.int64())]).empty_table()
            state = {"pipeline": self._pipeline, "last": "", "versions": []}
            self._publish(schema.table, state, empty, None)

    def truncate(
        self, table: TableId, commit: Commit, *, sequence: int, timestamp_us: int | None = None
    ) -> bool:
        return self._change(table, commit, lambda rows: rows.slice(0, 0))

    def evolve(
        self, table: TableId, columns: Sequence[EvolvedColumn], commit: Commit, *, narrowing: Narrowing
    ) -> bool:
        refuse_columns(table, [column.field.name for column in columns])
        return self._change(table, commit, lambda rows: self._evolved(rows, columns))

    def close(self) -> None:
        """Nothing goes on in the background."""

    # a table sink

    def append(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        return self._change(table, commit, lambda held: _appended(held, rows.frame.toArrow()))

    def merge(self, table: TableId, rows: Rows, key: tuple[str, ...], commit: Commit) -> bool:
        return self._change(table, commit, lambda held: _merged(held, rows, key))

    def delete_older(self, table: TableId, sequence: int, commit: Commit) -> bool:
        return self._change(table, commit, lambda rows: rows.filter(pc.field(SEQUENCE) >= sequence))

    def drop(self, table: TableId) -> None:
        if isinstance(self.open(table), Ours):
            shutil.rmtree(self._path(table))

    def clear(self, table: TableId) -> None:
        with contextlib.suppress(OSError, ValueError, KeyError, IndexError):  # it cannot be opened
            refuse_foreign(table, self.open(table))
        shutil.rmtree(self._path(table), ignore_errors=True)

    def identity(self, table: TableId) -> str | None:
        return None

    def move(self, moves: Sequence[Move]) -> list[Move]:
        return list(moves)  # none is ever asked for: there is no identity

    def compact(self, table: TableId) -> Compacted:
        return Compacted(1, 1)

    # --------------------------------------------------------------------------------------------------------

    def _path(self, table: TableId) -> Path:
        return self._root / directory_name(table.database) / directory_name(table.table)

    def _state(self, table: TableId) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads((self._path(table) / STATE).read_text("utf-8"))
        except FileNotFoundError:
            return None
        return found

    def _rows(self, table: TableId, version: str) -> pa.Table:
        with pa.ipc.open_file(self._path(table) / f"{version}.arrow") as file:
            return file.read_all()

    def _change(self, table: TableId, commit: Commit, change: Callable[[pa.Table], pa.Table]) -> bool:
        check_pipeline(commit, self._pipeline)
        state = self._state(table)
        assert state is not None
        if is_recorded(commit, Commit.parse(state["last"]) if state["last"] else None):
            return False
        self._publish(table, state, change(self._rows(table, state["versions"][-1])), commit)
        return True

    def _publish(self, table: TableId, state: dict[str, Any], rows: pa.Table, commit: Commit | None) -> None:
        path = self._path(table)
        path.mkdir(parents=True, exist_ok=True)
        version = f"v{len(state['versions']):08d}"
        with (path / f"{version}.arrow").open("wb") as out:
            with pa.ipc.new_file(out, rows.schema) as writer:
                writer.write_table(rows)
            os.fsync(out.fileno())
        changed = {**state, "versions": [*state["versions"], version], "last": str(commit or state["last"])}
        draft = path / f"{STATE}.draft"
        draft.write_text(json.dumps(changed), "utf-8")
        draft.replace(path / STATE)

    def _evolved(self, rows: pa.Table, columns: Sequence[EvolvedColumn]) -> pa.Table:
        arrays = []
        for column in columns:
            kind = column.field.type
            if column.before is not None and column.before in rows.column_names:
                held = rows.column(column.before).combine_chunks()
                arrays.append(converted(_plain(held), kind))
            else:
                arrays.append(pa.array([self._default(column)] * rows.num_rows, kind))
        fields = [column.field.with_nullable(True) for column in columns]
        schema = pa.schema([*fields, rows.schema.field(SEQUENCE)])
        return pa.Table.from_arrays([*arrays, rows.column(SEQUENCE)], schema=schema)

    def _default(self, column: EvolvedColumn) -> Any:
        if column.default is None:
            return None
        return self._spark.sql(f"SELECT {column.default}").toArrow().column(0)[0].as_py()


class ArrowSink(ArrowTables):
    """It is `Readable`, too."""

    def version(self, table: TableId) -> str | None:
        state = self._state(table)
        return None if state is None else state["versions"][-1]

    def hold(self, table: TableId) -> str | None:
        return self.version(table)  # versions are kept

    def read(self, table: TableId, version: str | None = None) -> DataFrame:
        version = version or self.version(table)
        assert version is not None
        return self._spark.createDataFrame(self._rows(table, version))


def _plain(array: Any) -> pa.Array:
    return pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array


def _fitted(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)


def _appended(held: pa.Table, rows: pa.Table) -> pa.Table:
    live = [row for row in rows.to_pylist() if not row.get(DELETED)]
    return pa.concat_tables([held, _fitted(live, held.schema)])


def _merged(held: pa.Table, rows: Rows, key: tuple[str, ...]) -> pa.Table:
    """Reads all of the table into memory: it is an example."""
    found = {tuple(row[name] for name in key): row for row in held.to_pylist()}
    for row in rows.frame.toArrow().to_pylist():
        at = tuple(row[name] for name in key)
        old, said = found.get(at), row.get(PRESENT)
        if old is not None and old[SEQUENCE] >= row[SEQUENCE]:
            continue
        if row[DELETED]:
            found.pop(at, None)
        elif said is None:
            found[at] = row
        elif old is not None:
            assert rows.incomplete is not None
            has = {name for name, place in rows.incomplete.places.items() if said[place] == "1"}
            found[at] = old | {name: row[name] for name in (*has, SEQUENCE)}
    return _fitted(list(found.values()), held.schema)


def _open(options: ArrowOptions, spark: SparkSession, pipeline: str, shards: Shards) -> ArrowSink:
    return ArrowSink(options, spark, pipeline)


ARROW = SinkKind(
    name="arrow",
    options=ArrowOptions,
    open=_open,
    example=lambda folder: ArrowOptions(type="arrow", path=folder),
    keeps_tables=True,
)


# The same for a sink that is not `Readable`, as one of a database that keeps no older versions is not.


class UnreadableOptions(ArrowOptions):
    """Tables as Arrow files that Penstock does not read back."""

    type: Literal["arrow_unreadable"]  # type: ignore[assignment]
    """Name of the sink."""


def _open_unreadable(
    options: UnreadableOptions, spark: SparkSession, pipeline: str, shards: Shards
) -> ArrowTables:
    return ArrowTables(options, spark, pipeline)


def written_rows(options: UnreadableOptions, spark: SparkSession, table: TableId) -> DataFrame:
    """The present rows of the table's target, for the conformance suite."""
    return ArrowSink(options, spark, pipeline="").read(table)


ARROW_UNREADABLE = SinkKind(
    name="arrow_unreadable",
    options=UnreadableOptions,
    open=_open_unreadable,
    example=lambda folder: UnreadableOptions(type="arrow_unreadable", path=folder),
    keeps_tables=True,
)
