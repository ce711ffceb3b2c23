"""Lets several source tables, the *shards*, share a target. A column of the target names each row's shard.

`ShardedSink` is a `TableSink` over a `LakeSink`. To its callers a shard is a table like any other, and the
shard's target is the part of the shared target with its rows. So every promise about a table also holds for a
shard:

- The condition of every MERGE, DELETE and UPDATE contains the shard's name. So no operation changes rows of
  another shard, and equal keys of two shards never collide.
- Every commit is recorded with its source table (`Commit.source`). So when an epoch is repeated, each shard
  finds its own commits.
- The columns of each shard are a property of the target (`Claim`). It is written in the transaction that
  changes the target's columns, which `union.py` works out.
- Two shards never write at once. Each target has a lock, from looking at its columns to the commit.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructField, StructType

from penstock.errors import ConfigError, InternalError, TableError
from penstock.model.change import SEQUENCE, own_columns
from penstock.model.plan import Move
from penstock.model.schema import TableId, TableSchema
from penstock.model.shards import ShardRule, Shards
from penstock.sinks.base import (
    Commit,
    Compacted,
    EvolvedColumn,
    Foreign,
    Missing,
    Narrowing,
    Ours,
    TableSink,
    TargetState,
)
from penstock.sinks.lake.sink import LakeSink
from penstock.sinks.lake.union import Claim, Joined, agree_on_key, joined
from penstock.sinks.names import refuse_own_names, source_columns
from penstock.sinks.refusals import is_recorded, refuse_foreign
from penstock.sinks.rows import Batches, Rows, ShardOf
from penstock.sinks.spark_sessions import Sessions
from penstock.sinks.spark_sql import has, quoted, spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CLAIM = "penstock.shard."
"""Prefix of the properties of a target that hold the shards' claims."""


@dataclass(frozen=True)
class Part:
    """The part of `target` with the rows of the table `shard`."""

    shard: TableId
    rule: ShardRule

    @property
    def target(self) -> TableId:
        return self.rule.target

    @property
    def condition(self) -> str:
        return has(self.rule.shard_column, str(self.shard))

    @property
    def property(self) -> str:
        return CLAIM + str(self.shard)

    def commit(self, commit: Commit) -> Commit:
        return replace(commit, source=str(self.shard))


def with_shards(lake: LakeSink, shards: Shards, spark: SparkSession) -> TableSink:
    """The sink for pipelines that may have shards. Without shards, it is `lake` itself."""
    return ShardedSink(lake, shards, spark) if shards else lake


class ShardedSink:
    """See the module's docstring. Tables that are not shards are passed on to the `LakeSink`."""

    def __init__(self, lake: LakeSink, shards: Shards, spark: SparkSession) -> None:
        self._lake = lake
        self._shards = shards
        self._sessions = Sessions(spark)
        self._locks = {rule.target: threading.RLock() for rule in shards.rules}
        self._merged = {lake.name(rule.target): rule for rule in shards.rules}

    def check(self) -> None:
        self._lake.check()

    def open(self, table: TableId) -> TargetState:
        part = self._part(table)
        if part is None:
            place = self._lake.name(table)
            if place in self._merged:
                reason = f"it is the target of the tables {', '.join(self._merged[place].patterns)}"
                return Foreign(place, reason, "Name another table as `into` in `merge_shards`.")
            return self._lake.open(table)
        found = self._lake.open(part.target)
        if isinstance(found, Foreign):
            return replace(found, adoptable=False)  # its rows are of no shard
        if not isinstance(found, Ours):
            return found
        claim = self._claims(part).get(table)
        if claim is None:
            return Missing()
        return Ours(self._lake.last_commit(part.target, str(table)), claim.columns, empty=False)

    def differences(self, schema: TableSchema, arrow: pa.Schema, *, rows: bool) -> list[str]:
        return self._lake.differences(schema, arrow, rows=rows)

    def adopt(self, schema: TableSchema, arrow: pa.Schema) -> None:
        found = self.open(schema.table)
        if isinstance(found, Foreign) and found.adoptable:
            self._lake.adopt(schema, arrow)
        else:
            self.create(schema, arrow)

    def create(self, schema: TableSchema, arrow: pa.Schema) -> None:
        part = self._part(schema.table)
        if part is None:
            refuse_foreign(schema.table, self.open(schema.table))
            self._lake.create(schema, arrow)
            return
        refuse_own_names(schema, self._lake.format.reserved)
        fields = [arrow.field(name) for name in source_columns(arrow.names)]
        with self._locked(part):
            whole = replace(schema, table=part.target)
            self._refuse_column(part, fields)
            if isinstance(self._lake.open(part.target), Missing):
                by = pa.field(part.rule.shard_column, pa.string())
                self._lake.create(whole, pa.schema([*fields, by]))
            refuse_foreign(schema.table, self._lake.open(part.target))
            agree_on_key(schema.table, schema.key, self._claims(part))
            claim = Claim(tuple(field.name for field in fields), schema.key)
            self._join(
                part, [EvolvedColumn(field, field.name, refills=True) for field in fields], claim, None
            )

    def clear(self, table: TableId) -> None:
        part = self._part(table)
        if part is not None:
            raise ConfigError(f"The target of {table} also holds other tables, so it cannot be recreated.")
        self._lake.clear(table)

    def drop(self, table: TableId) -> None:
        part = self._part(table)
        if part is None:
            self._lake.drop(table)
            return
        with self._locked(part):
            if not isinstance(self.open(table), Ours):
                return
            claims = self._claims(part)
            if claims.keys() <= {table}:
                self._lake.drop(part.target)
                return
            self._sql(f"DELETE FROM {self._lake.name_for_writes(part.target)} WHERE {part.condition}")
            left = joined(table, self._target_columns(part), [], claims)
            self._evolve(part, left, None, None)

    def identity(self, table: TableId) -> str | None:
        return None if self._part(table) is not None else self._lake.identity(table)

    def move(self, moves: Sequence[Move]) -> list[Move]:
        return self._lake.move(moves)

    def begin(self, generation: int) -> None:
        self._lake.begin(generation)

    def fence(self, table: TableId) -> None:
        part = self._part(table)
        self._lake.fence(table if part is None else part.target)

    def append(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        part = self._part(table)
        if part is None:
            return self._lake.append(table, rows, commit)
        with self._locked(part):
            commit = part.commit(commit)
            if self._is_recorded(part, commit):
                return False
            return self._lake.append(part.target, self._with_target_columns(part, rows), commit)

    def merge(self, table: TableId, rows: Rows, key: tuple[str, ...], commit: Commit) -> bool:
        part = self._part(table)
        if part is None:
            return self._lake.merge(table, rows, key, commit)
        with self._locked(part):
            commit = part.commit(commit)
            if self._is_recorded(part, commit):
                return False
            claims = self._claims(part)
            if set(claims[table].key) != set(key):
                self._change_key(part, key, claims)
            return self._lake.merge(part.target, self._with_target_columns(part, rows), key, commit)

    def truncate(
        self, table: TableId, commit: Commit, *, sequence: int, timestamp_us: int | None = None
    ) -> bool:
        part = self._part(table)
        if part is None:
            return self._lake.truncate(table, commit, sequence=sequence, timestamp_us=timestamp_us)
        with self._locked(part):
            return self._lake.delete(part.target, part.condition, part.commit(commit))

    def delete_older(self, table: TableId, sequence: int, commit: Commit) -> bool:
        part = self._part(table)
        if part is None:
            return self._lake.delete_older(table, sequence, commit)
        condition = f"{part.condition} AND {SEQUENCE} < {int(sequence)}"
        with self._locked(part):
            return self._lake.delete(part.target, condition, part.commit(commit))

    def evolve(
        self, table: TableId, columns: Sequence[EvolvedColumn], commit: Commit, *, narrowing: Narrowing
    ) -> bool:
        """A column always keeps a wider type, because other shards may still need it."""
        part = self._part(table)
        if part is None:
            return self._lake.evolve(table, columns, commit, narrowing=narrowing)
        with self._locked(part):
            commit = part.commit(commit)
            if self._is_recorded(part, commit):
                return False
            self._refuse_column(part, [column.field for column in columns])
            known = self._claims(part)[table]
            claim = replace(known, columns=tuple(column.field.name for column in columns))
            self._join(part, columns, claim, commit)
        return True

    def version(self, table: TableId) -> str | None:
        part = self._part(table)
        return self._lake.version(table if part is None else part.target)

    def target_id(self, table: TableId) -> str:
        part = self._part(table)
        return self._lake.target_id(table if part is None else part.target)

    def hold(self, table: TableId) -> str | None:
        part = self._part(table)
        return self._lake.hold(table if part is None else part.target)

    def compact(self, table: TableId) -> Compacted:
        part = self._part(table)
        return self._lake.compact(table if part is None else part.target)

    def close(self) -> None:
        self._lake.close()

    def read(self, table: TableId, version: str | None = None) -> DataFrame:
        """A shard's rows, with its own columns."""
        part = self._part(table)
        if part is None:
            return self._lake.read(table, version)
        frame = self._lake.read(part.target, version).where(part.condition)
        claim = self._claims(part)[table]
        there = {name.lower(): name for name in frame.columns}
        columns = [(there[name.lower()], name) for name in claim.columns if name.lower() in there]
        chosen = [frame[quoted(at_target)].alias(name) for at_target, name in columns]
        return frame.select(*chosen, frame[SEQUENCE])

    # --------------------------------------------------------------------------------------------------------

    def _part(self, table: TableId) -> Part | None:
        rule = self._shards.rule(table)
        return None if rule is None else Part(table, rule)

    @contextmanager
    def _locked(self, part: Part) -> Iterator[None]:
        with self._locks[part.target]:
            yield

    def _is_recorded(self, part: Part, commit: Commit) -> bool:
        """Asked before anything else: when an epoch is repeated, its rows may have columns that the target
        has lost since."""
        return is_recorded(commit, self._lake.last_commit(part.target, commit.source))

    def _sql(self, statement: str) -> None:
        with self._sessions.lend({}) as session:
            session.sql(statement)

    def _claims(self, part: Part) -> dict[TableId, Claim]:
        return {
            TableId.parse(name.removeprefix(CLAIM)): Claim.from_json(value)
            for name, value in self._lake.properties(part.target).items()
            if name.startswith(CLAIM)
        }

    def _target_columns(self, part: Part) -> StructType:
        """The target's columns without the shard column."""
        columns = self._lake.columns(part.target)
        return StructType([field for field in columns if field.name != part.rule.shard_column])

    def _refuse_column(self, part: Part, fields: Iterable[pa.Field]) -> None:
        column = part.rule.shard_column
        if column.lower() in {field.name.lower() for field in fields}:
            raise TableError(
                f"{part.shard} has a column `{column}`, which is the name of the shard column in "
                f"{part.target}.",
                hint="Give `shard_column` in `merge_shards` another name, and drop the target if there is "
                f"one. Or leave {part.shard} out of `merge_shards`.",
                table=str(part.shard),
            )

    def _join(
        self, part: Part, columns: Sequence[EvolvedColumn], claim: Claim, commit: Commit | None
    ) -> None:
        """Adds these columns of the shard to its target."""
        stored = [
            replace(
                one, field=pa.field(one.field.name, to_arrow_type(self._lake.stored(spark_type(one.field))))
            )
            for one in columns
        ]
        found = joined(part.shard, self._target_columns(part), stored, self._claims(part))
        name = self._lake.name(part.target)
        if found.added:
            added = ", ".join(f"{quoted(one.name)} {one.dataType.simpleString()}" for one in found.added)
            self._sql(f"ALTER TABLE {name} ADD COLUMNS ({added})")
        if found.values:
            values = ", ".join(f"{quoted(column)} = {value}" for column, value in found.values.items())
            written = self._lake.name_for_writes(part.target)
            self._sql(f"UPDATE {written} SET {values} WHERE {part.condition}")
        self._evolve(part, found, claim, commit)

    def _evolve(self, part: Part, found: Joined, claim: Claim | None, commit: Commit | None) -> None:
        by = part.rule.shard_column
        self._lake.evolve(
            part.target,
            [*found.columns, EvolvedColumn(pa.field(by, pa.string()), by)],
            commit,
            narrowing="keep",
            properties={part.property: None if claim is None else claim.to_json()},
        )

    def _change_key(self, part: Part, key: tuple[str, ...], claims: Mapping[TableId, Claim]) -> None:
        agree_on_key(part.shard, key, claims)
        name, value = part.property, replace(claims[part.shard], key=key).to_json()
        self._lake.set_property(part.target, name, value)

    def _with_target_columns(self, part: Part, rows: Rows) -> Rows:
        """The rows with all columns of the target, under its names."""
        frame = rows.frame
        own = source_columns(frame.columns)
        columns = self._target_columns(part)
        fields = [field for field in columns if field.name in source_columns(columns.names)]
        by_lower = {name.lower(): name for name in own}
        sources = {field.name: by_lower.pop(field.name.lower(), None) for field in fields}
        if by_lower:
            raise InternalError(
                f"The target of {part.shard} lacks the columns {', '.join(by_lower.values())}."
            )
        shard = ShardOf(part.rule.shard_column, str(part.shard))
        change = TargetColumns(
            tuple((field.name, sources[field.name], to_arrow_type(field.dataType)) for field in fields), shard
        )
        return rows.changed(change, sources, lambda: _target_frame(frame, fields, sources, shard), shard)


def _target_frame(
    frame: DataFrame, fields: Sequence[StructField], sources: Mapping[str, str | None], shard: ShardOf
) -> DataFrame:
    from pyspark.sql import functions as f

    kinds = {field.name: field.dataType for field in frame.schema}
    columns = []
    for field in fields:
        source = sources[field.name]
        value = f.lit(None) if source is None else f.col(quoted(source))
        if source is None or kinds[source] != field.dataType:
            value = value.cast(field.dataType)
        columns.append(value.alias(field.name))
    own = own_columns(frame.columns)
    added = [name for name in frame.columns if name in own]
    return frame.select(*columns, f.lit(shard.value).alias(shard.column), *added)


@dataclass(frozen=True)
class TargetColumns:
    """Gives batches of a shard's rows all columns of its target. `columns`: of each its name, the column that
    fills it (None: NULL) and its type. Pickles."""

    columns: tuple[tuple[str, str | None, pa.DataType], ...]
    shard: ShardOf

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        for batch in batches:
            arrays = {
                name: pa.nulls(batch.num_rows, kind) if source is None else batch.column(source)
                for name, source, kind in self.columns
            }
            arrays[self.shard.column] = pa.repeat(self.shard.value, batch.num_rows)
            own = own_columns(batch.schema.names)
            arrays |= {name: batch.column(name) for name in batch.schema.names if name in own}
            yield pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))
