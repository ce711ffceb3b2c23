"""Applies all rules for a table to its rows, in the driver or in tasks, one stage after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from penstock.errors import TableError
from penstock.model.schema import TableId
from penstock.model.transforms import TransformRule, renamed
from penstock.printable import argument
from penstock.secret import Secret
from penstock.sinks.names import source_columns
from penstock.sinks.rows import Batches, Rows, changed_kind, map_batches
from penstock.sinks.spark_sql import quoted
from penstock.spark import sql_stages
from penstock.spark.errors import Crossing, crossing
from penstock.transforms.stages import ArrowStage, SqlStage, stages_of


@dataclass(frozen=True)
class InArrow:
    """Stages of Arrow alone, as a function for tasks. Pickles."""

    stages: tuple[ArrowStage, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        for stage in self.stages:
            batches = stage(batches)
        yield from batches


@dataclass(frozen=True)
class Guarded:
    """The same, so that errors reach the driver. Pickles."""

    change: InArrow
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
        self._spark = spark
        self.table = table
        self.rules = rules
        self.stages = stages_of(table, rules, key, secret, quoted)
        self.key = key

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
                schema = sql_stages.columns(self._spark, schema, stage)
            else:
                schema = stage.columns(schema)
        return schema

    def in_driver(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Transforms batches in this process."""
        for stage in self.stages:
            batches = stage(batches) if isinstance(stage, ArrowStage) else self._evaluated(batches, stage)
        yield from batches

    def _evaluated(self, batches: Iterable[pa.RecordBatch], stage: SqlStage) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield sql_stages.evaluated(self._spark, batch, stage)

    def frame(self, frame: DataFrame) -> DataFrame:
        """The same in a DataFrame. Nothing is computed yet."""
        for stage in self.stages:
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
                raise _incomplete(self.table)
            sources = {self.name_after(name): name for name in source_columns(tuple(rows.incomplete.places))}
        arrow = [stage for stage in self.stages if isinstance(stage, ArrowStage)]
        if len(arrow) == len(self.stages):
            return rows.changed(InArrow(tuple(arrow)), sources, lambda: self.frame(rows.frame), rows.shard)
        kind = changed_kind(rows.kind, self.in_driver, sources)
        return Rows(lambda: self.frame(rows.frame), kind, shard=rows.shard)


def _incomplete(table: TableId) -> TableError:
    return TableError(
        f"The source logs only parts of rows of {table}, and `transforms` has SQL or a function that needs "
        "whole rows.",
        hint="Let the source log whole rows (docs/transforms.md), then run "
        f"`penstock resnapshot FILE {argument(table)}`.",
        table=str(table),
    )
