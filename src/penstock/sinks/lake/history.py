"""Targets that keep every version of a row (`history`), in front of a `LakeSink`.

With `changelog`, their rows are changes: `kept_changes.py`. The rest is about `scd2`.

To its callers, such a target is a copy of its table, of which this sink wants every change. Its rows are
*versions*: the columns of the source, `_sequence` of the change that began the version, and
`_valid_from`, `_valid_to` and `_is_current`. At most one version of a key is current. It is the row that the
source has. A version ends when the next one of its key begins, or when the row is deleted.

**One commit for each write**, by a MERGE, or for small epochs by the key index (`versions.py`). It closes
the current versions of the keys that have changes, adds the versions that the changes begin, and records the
write. So a reader never sees a key without a current version between two of them, and a write that is
repeated changes nothing.

**Changes that the target has already** are left out: those of a key whose newest version is as new. That
happens while a table catches up.

**Rows that are read**, for the first time or again, begin a version only if the target's current one has
other values. Otherwise its `_sequence` becomes that of the read, so that rows which were not found again can
be told (`delete_older`), and are closed.

**Times** are commit times at the source. What has none gets the time at which it is written: rows that are
read, and rows that a resnapshot does not find. It is written once, because the write is recorded with it.

A version never begins before the one that it follows. A row that was read may begin later than changes that
were still in the log, and after a failover another server's clock may be behind. Then two versions of a row
would be valid at one time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from penstock.model.change import CHANGE_TYPE, COMMIT_TIMESTAMP, SEQUENCE
from penstock.model.history import HISTORY_COLUMNS, IS_CURRENT, VALID_FROM, VALID_TO, History
from penstock.model.plan import Move
from penstock.model.schema import TableId, TableSchema
from penstock.sinks.base import Commit, Compacted, EvolvedColumn, Narrowing, Ours, TargetState
from penstock.sinks.lake import kept_changes
from penstock.sinks.lake.sink import LakeSink
from penstock.sinks.names import (
    Reserved,
    refuse_columns,
    refuse_own_names,
    source_columns,
    which_penstock_adds,
)
from penstock.sinks.rows import Rows
from penstock.sinks.spark_sessions import shared_view
from penstock.sinks.spark_sql import quoted

_FIELDS = (
    pa.field(VALID_FROM, pa.timestamp("us", "UTC")),
    pa.field(VALID_TO, pa.timestamp("us", "UTC")),
    pa.field(IS_CURRENT, pa.bool_()),
)
KEY = "penstock.key"
"""Property of a target that keeps changes: the source's key, as a JSON list."""
_ACTION, _AT = "_penstock_action", "_penstock_at"
_BEGINS = ("insert", "update_postimage", "read")


class HistorySink:
    """See the module's docstring. Tables without history are passed on to the `LakeSink`."""

    def __init__(self, lake: LakeSink, history: History) -> None:
        self._lake = lake
        self._history = history

    # targets ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        self._lake.check()

    def open(self, table: TableId) -> TargetState:
        found = self._lake.open(table)
        if self._history.kind(table) == "scd2" and isinstance(found, Ours):
            return replace(found, columns=_without_history(found.columns))
        return found

    def create(self, schema: TableSchema, arrow: pa.Schema) -> None:
        kind = self._history.kind(schema.table)
        if kind is None:
            self._lake.create(schema, arrow)
            return
        refuse_own_names(schema, self._reserved(schema.table))
        # A key has several versions, so it identifies no row of the target.
        if kind == "changelog":
            key = {KEY: json.dumps(schema.key, ensure_ascii=False)}
            self._lake.create(replace(schema, key=()), arrow, own=kept_changes.FIELDS, properties=key)
            return
        fields = [arrow.field(name) for name in source_columns(tuple(arrow.names))]
        self._lake.create(replace(schema, key=()), pa.schema([*fields, *_FIELDS]))

    def evolve(
        self, table: TableId, columns: Sequence[EvolvedColumn], commit: Commit, *, narrowing: Narrowing
    ) -> bool:
        kind = self._history.kind(table)
        if kind is None:
            return self._lake.evolve(table, columns, commit, narrowing=narrowing)
        refuse_columns(table, [one.field.name for one in columns], self._reserved(table))
        if kind == "changelog":
            key = [one.field.name for one in columns if one.key]
            properties = {KEY: json.dumps(key, ensure_ascii=False)} if key else {}
            return self._lake.evolve(table, columns, commit, narrowing=narrowing, properties=properties)
        own = [EvolvedColumn(field, field.name) for field in _FIELDS]
        return self._lake.evolve(table, [*columns, *own], commit, narrowing=narrowing)

    def _reserved(self, table: TableId) -> Reserved:
        return partial(which_penstock_adds, own=self._history.adds(table))

    def drop(self, table: TableId) -> None:
        self._lake.drop(table)

    def clear(self, table: TableId) -> None:
        self._lake.clear(table)

    def identity(self, table: TableId) -> str | None:
        return None if table in self._history else self._lake.identity(table)

    def move(self, moves: Sequence[Move]) -> list[Move]:
        lost = [move for move in moves if move.target in self._history]
        return lost + self._lake.move([move for move in moves if move not in lost])

    def begin(self, generation: int) -> None:
        self._lake.begin(generation)

    def fence(self, table: TableId) -> None:
        self._lake.fence(table)

    def compact(self, table: TableId) -> Compacted:
        return self._lake.compact(table)

    def close(self) -> None:
        self._lake.close()

    # reads --------------------------------------------------------------------------------------------------

    def version(self, table: TableId) -> str | None:
        return self._lake.version(table)

    def target_id(self, table: TableId) -> str:
        return self._lake.target_id(table)

    def hold(self, table: TableId) -> str | None:
        return self._lake.hold(table)

    def read(self, table: TableId, version: str | None = None) -> DataFrame:
        """The present rows."""
        frame = self._lake.read(table, version)
        match self._history.kind(table):
            case "scd2":
                return frame.where(IS_CURRENT).drop(*HISTORY_COLUMNS)
            case "changelog":
                return kept_changes.present_rows(frame, self._key(table))
            case _:
                return frame

    def _key(self, table: TableId) -> tuple[str, ...]:
        """The columns that identify a row at the source."""
        return tuple(json.loads(self._lake.properties(table)[KEY]))

    def read_whole(self, table: TableId) -> DataFrame:
        """All versions."""
        return self._lake.read(table)

    # writes -------------------------------------------------------------------------------------------------

    def append(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        return self._lake.append(table, rows, commit)

    def merge(self, table: TableId, rows: Rows, key: tuple[str, ...], commit: Commit) -> bool:
        return self._lake.merge(table, rows, key, commit)

    def truncate(
        self, table: TableId, commit: Commit, *, sequence: int, timestamp_us: int | None = None
    ) -> bool:
        kind = self._history.kind(table)
        if kind is None:
            return self._lake.truncate(table, commit, sequence=sequence, timestamp_us=timestamp_us)
        if kind == "changelog":
            return kept_changes.truncate(self._lake, table, commit, sequence, timestamp_us)
        at = "current_timestamp()" if timestamp_us is None else f"timestamp_micros({int(timestamp_us)})"
        return self._close(table, commit, "true", at)

    def delete_older(self, table: TableId, sequence: int, commit: Commit) -> bool:
        kind = self._history.kind(table)
        if kind is None:
            return self._lake.delete_older(table, sequence, commit)
        if kind == "changelog":
            return kept_changes.delete_older(self._lake, table, self._key(table), sequence, commit)
        return self._close(table, commit, f"{SEQUENCE} < {int(sequence)}", "current_timestamp()")

    def _close(self, table: TableId, commit: Commit, condition: str, at: str) -> bool:
        """Ends the current versions for which the condition is true."""

        def update(session: SparkSession, target: str) -> None:
            session.sql(
                f"UPDATE {target} SET {VALID_TO} = greatest({at}, {VALID_FROM}), {IS_CURRENT} = false "
                f"WHERE {IS_CURRENT} AND {condition}"
            )

        return self._lake.write_by_sql(table, commit, update)

    def write_versions(self, table: TableId, rows: Rows, key: tuple[str, ...], commit: Commit) -> bool:
        if self._history.kind(table) == "changelog":
            return kept_changes.write_changes(self._lake, table, rows, commit)

        def write(session: SparkSession, target: str) -> None:
            # They are used several times. Not `persist`: Delta's MERGE refuses a source that is cached.
            with shared_view(rows.frame.localCheckpoint()) as view:
                found = versions(session.table(view), session.sql(f"SELECT * FROM {target}"), key)
                with shared_view(found) as made:
                    session.sql(_merge_sql(target, made, key, found.columns))

        return self._lake.write_versions(table, rows, key, commit, write)


def versions(changes: DataFrame, target: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """What changes in the layout `changelog` do to a target. `_penstock_action`: `begin` adds a version;
    `end` ends the current version of the key; `same` gives it another `_sequence`."""
    columns = source_columns(tuple(changes.columns))
    keys = [f"_penstock_k{number}" for number in range(len(key))]
    kinds = {field.name.lower(): field.dataType for field in target.schema}
    values = [f.col(quoted(name)).cast(kinds[name.lower()]).alias(name) for name in columns]
    is_kind = f.col(CHANGE_TYPE)
    events = changes.select(
        *values,
        SEQUENCE,
        f.coalesce(COMMIT_TIMESTAMP, f.current_timestamp()).alias(_AT),
        is_kind.isin(*_BEGINS).alias("_penstock_begins"),
        (is_kind == "read").alias("_penstock_read"),
    ).select("*", *_named(key, keys))
    whole = f.struct(*[f.col(quoted(name)) for name in columns])
    known = target.select("*", *_named(key, keys)).alias("t")
    touched = events.select(*[f.col(name).alias("e" + name) for name in keys]).distinct()
    known = known.join(touched, [f.col(name).eqNullSafe(f.col("e" + name)) for name in keys], "left_semi")
    present = known.groupBy(*keys).agg(
        f.max(SEQUENCE).alias("_penstock_newest"),
        f.max(f.when(f.col(IS_CURRENT), whole)).alias("_penstock_present"),
        f.max(f.greatest(VALID_FROM, VALID_TO)).alias("_penstock_until"),
    )
    present = present.select(
        "_penstock_newest",
        "_penstock_present",
        "_penstock_until",
        *[f.col(name).alias("e" + name) for name in keys],
    )
    fresh = events.join(present, [f.col(name).eqNullSafe(f.col("e" + name)) for name in keys], "left").where(
        f.col("_penstock_newest").isNull() | (f.col(SEQUENCE) > f.col("_penstock_newest"))
    )
    is_same = (
        f.col("_penstock_read")
        & f.col("_penstock_present").isNotNull()
        & f.col("_penstock_present").eqNullSafe(whole)
    )
    order = Window.partitionBy(*keys).orderBy(SEQUENCE, f.col("_penstock_begins").cast("int"))
    before = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    never_back = f.greatest(f.max(_AT).over(before), "_penstock_until")
    rest = (
        fresh.where(~is_same)
        .withColumn(_AT, never_back)
        .select(
            "*",
            f.lead(_AT).over(order).alias("_penstock_next"),
            f.row_number().over(order).alias("_penstock_number"),
        )
    )
    nothing = f.lit(None).cast("timestamp")
    begins = _actions(rest.where("_penstock_begins"), columns, "begin", f.col(_AT), f.col("_penstock_next"))
    ends = rest.where("_penstock_number = 1 AND _penstock_present IS NOT NULL")
    return begins.unionByName(_actions(ends, columns, "end", nothing, f.col(_AT))).unionByName(
        _actions(fresh.where(is_same), columns, "same", nothing, nothing)
    )


def _named(key: tuple[str, ...], names: list[str]) -> list[Column]:
    return [f.col(quoted(name)).alias(other) for name, other in zip(key, names, strict=True)]


def _actions(rows: DataFrame, columns: Sequence[str], action: str, start: Column, end: Column) -> DataFrame:
    return rows.select(
        *[f.col(quoted(name)) for name in columns],
        SEQUENCE,
        start.alias(VALID_FROM),
        end.alias(VALID_TO),
        end.isNull().alias(IS_CURRENT),
        f.lit(action).alias(_ACTION),
    )


def _merge_sql(target: str, made: str, key: tuple[str, ...], columns: Sequence[str]) -> str:
    match = " AND ".join(f"t.{quoted(name)} <=> s.{quoted(name)}" for name in key)
    written = [quoted(name) for name in columns if name != _ACTION]
    values = ", ".join(f"s.{name}" for name in written)
    return (
        f"MERGE INTO {target} AS t USING {made} AS s "
        f"ON s.{_ACTION} <> 'begin' AND t.{IS_CURRENT} AND {match} "
        f"WHEN MATCHED AND s.{_ACTION} = 'end' THEN UPDATE SET t.{VALID_TO} = s.{VALID_TO}, "
        f"t.{IS_CURRENT} = false "
        f"WHEN MATCHED THEN UPDATE SET t.{SEQUENCE} = s.{SEQUENCE} "
        f"WHEN NOT MATCHED AND s.{_ACTION} = 'begin' THEN INSERT ({', '.join(written)}) VALUES ({values})"
    )


def _without_history(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in HISTORY_COLUMNS)
