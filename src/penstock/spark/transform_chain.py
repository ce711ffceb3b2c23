"""Applies all rules for a table to its rows, in the driver or in tasks, one stage after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from penstock.errors import TableError
from penstock.failures.crossing import Crossing, crossing
from penstock.model.change import DELETED, SEQUENCE, free_name, own_name
from penstock.model.schema import TableId
from penstock.model.transforms import TransformRule, renamed
from penstock.printable import argument
from penstock.secret import Secret
from penstock.sinks.names import source_columns
from penstock.sinks.rows import Batches, Computed, Consume, Rows, changed_kind, map_batches
from penstock.sinks.spark_sql import quoted
from penstock.spark import sql_stages
from penstock.transforms.stages import ArrowStage, SqlStage, Stage, stages_of


@dataclass(frozen=True)
class InArrow:
    """Applies stages that only need Arrow. A function for tasks. Pickles."""

    stages: tuple[ArrowStage, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        for stage in self.stages:
            batches = stage(batches)
        yield from batches


@dataclass(frozen=True)
class Then:
    """Applies one function after the other. Pickles."""

    first: Consume
    second: Consume

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        return self.second(self.first(batches))


@dataclass(frozen=True)
class Guarded:
    """Applies `change` to batches so that its errors reach the driver. Pickles."""

    change: Consume
    crosses: Crossing

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        with self.crosses.guard():
            yield from self.change(batches)


class Chain:
    """The rules of one table. `key`: its key; empty: changes do not find their rows by it."""

    def __init__(
        self,
        spark: SparkSession,
        table: TableId,
        rules: tuple[TransformRule, ...],
        key: tuple[str, ...],
        secret: Secret,
    ) -> None:
        self.spark = spark
        self.table = table
        self.rules = rules
        self.stages = stages_of(table, rules, key, secret, quoted)
        self.key = key
        self._needed: dict[int, tuple[pa.Schema, list[str]]] = {}

    @property
    def key_after(self) -> tuple[str, ...]:
        """The key under the names that the target has."""
        return tuple(self.name_after(name) for name in self.key)

    @property
    def lists_failures(self) -> bool:
        """Whether a row that fails is listed, and the table continues."""
        return any(rule.on_error == "dead_letter" for rule in self.rules)

    def name_after(self, name: str) -> str:
        """A column's name at the target, if it is not left out."""
        for rule in self.rules:
            name = renamed(rule.rename, name)
        return name

    def changes_values(self, name: str) -> bool:
        """Whether the target may have other values in a column of the source."""
        for rule in self.rules:
            changed = [*rule.columns, *rule.cast, *rule.mask, *rule.hash, *rule.tokenize]
            if rule.python is not None or name.lower() in [one.lower() for one in changed]:
                return True
            name = renamed(rule.rename, name)
        return False

    def columns(self, schema: pa.Schema) -> pa.Schema:
        """The columns of the result for rows with the columns of `schema`. Raises `TableError` if a rule
        cannot be applied to them."""
        for stage in self.stages:
            if isinstance(stage, SqlStage):
                schema = sql_stages.columns(self.spark, schema, stage)
            else:
                schema = stage.columns(schema)
        return schema

    def target_columns(self, source: pa.Schema) -> pa.Schema:
        """The columns of the target of a table with the columns of `source`, which has none of Penstock's.
        Raises `TableError` if a rule cannot be applied to them."""
        sequence = free_name(SEQUENCE, source.names)
        own = [pa.field(DELETED, pa.bool_()), pa.field(sequence, pa.int64())]
        found = self.columns(pa.schema([*source, *own]))
        return pa.schema(list(found)[: -len(own)])

    def in_driver(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Transforms batches in this process."""
        for stage in self.stages:
            batches = stage(batches) if isinstance(stage, ArrowStage) else self._evaluated(batches, stage)
        yield from batches

    def _evaluated(self, batches: Iterable[pa.RecordBatch], stage: SqlStage) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield sql_stages.evaluated(self.spark, batch, stage, self.looked_at(batch.schema, stage))

    def looked_at(self, schema: pa.Schema, stage: SqlStage) -> list[str]:
        """The columns that Spark gets of rows: those that the SQL looks at, or any one."""
        place = self.stages.index(stage)
        known = self._needed.get(place)
        if known is None or known[0] != schema:
            needed = sql_stages.needed(self.spark, schema, stage)
            found = [name for name in schema.names if name in needed] or schema.names[-1:]
            known = self._needed[place] = (schema, found)
        return known[1]

    def frame(self, frame: DataFrame) -> DataFrame:
        """The rules applied to a DataFrame. Nothing is computed yet."""
        return self._staged(frame, self.stages)

    def _staged(self, frame: DataFrame, stages: Iterable[Stage]) -> DataFrame:
        for stage in stages:
            if isinstance(stage, SqlStage):
                frame = sql_stages.selected(frame, stage)
            else:
                kinds = from_arrow_schema(
                    stage.columns(to_arrow_schema(frame.schema)), prefer_timestamp_ntz=True
                )
                frame = map_batches(frame, Guarded(InArrow((stage,)), crossing(str(self.table))), kinds)
        return frame

    def rows(self, rows: Rows) -> Rows:
        """The rows, transformed. Nothing is computed yet."""
        sources = {}
        if rows.incomplete is not None:
            if any(rule.needs_whole_rows for rule in self.rules):
                raise incomplete(self.table)
            sources = {self.name_after(name): name for name in source_columns(tuple(rows.incomplete.places))}
        arrow = [stage for stage in self.stages if isinstance(stage, ArrowStage)]
        if len(arrow) == len(self.stages):
            return rows.changed(InArrow(tuple(arrow)), sources, lambda: self.frame(rows.frame), rows.shard)
        kind = changed_kind(rows.kind, self.in_driver, sources)
        run = partial(self._run, rows)
        return Rows(lambda: run(_same, self._kinds(rows)), kind, run, rows.shard)

    def _kinds(self, rows: Rows) -> StructType:
        fields = self.columns(to_arrow_schema(rows.frame.schema))
        return from_arrow_schema(fields, prefer_timestamp_ntz=True)

    def _run(self, rows: Rows, consume: Consume, result: Any) -> DataFrame:
        """Runs a function over the transformed batches, in the tasks that apply the stages after the last
        SQL."""
        places = [place for place, stage in enumerate(self.stages) if isinstance(stage, SqlStage)]
        after = self.stages[places[-1] + 1 :]
        last = Then(InArrow(tuple(one for one in after if isinstance(one, ArrowStage))), consume)
        if rows.compute is None or len(places) > 1:
            frame = self._staged(rows.frame, self.stages[: places[-1] + 1])
            return map_batches(frame, Guarded(last, crossing(str(self.table))), result)
        sql = self.stages[places[0]]
        assert isinstance(sql, SqlStage)
        before = InArrow(tuple(one for one in self.stages[: places[0]] if isinstance(one, ArrowStage)))
        arrow = to_arrow_schema(rows.frame.schema)
        for stage in before.stages:
            arrow = stage.columns(arrow)
        names = {*sql_stages.needed(self.spark, arrow, sql), own_name(SEQUENCE, arrow.names)}
        what = Computed(
            before,
            pa.schema([one for one in arrow if one.name in names]),
            lambda frame: sql_stages.selected(frame, sql),
            tuple(sql.expressions),
        )
        return rows.compute(what, last, result)


def _same(batches: Iterable[pa.RecordBatch]) -> Batches:
    yield from batches


def incomplete(table: TableId) -> TableError:
    """The error for rules that need whole rows, if the source logs only parts of them."""
    return TableError(
        f"The source logs only parts of rows of {table}, and `transforms` has SQL or a function that needs "
        "whole rows.",
        hint="Let the source log whole rows (`penstock docs transforms`), then run "
        f"`penstock resnapshot FILE {argument(table)}`.",
        table=str(table),
    )
