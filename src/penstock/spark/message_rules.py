"""What rules do to the rows of one table that become messages.

The core collects the columns that rules look at (`core/src/encode/ruled.rs`). Here the rules are applied to
these rows, and the core gets back the columns that they have made. All other columns go from the log into the
messages, so a rule sees NULL in the columns that it does not look at. If rows that fail are
listed, the core collects the key, too.

Rows have the types that targets with tables have: a date is a date, and a zero date is NULL.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock._core import arrow_schema, collected_rows
from penstock.epochs.ruled_log import Argument, Rules
from penstock.model.change import ROW, SEQUENCE, hidden, own_name
from penstock.model.schema import DEFAULT_TYPES, TableId, TableSchema
from penstock.model.transforms import TransformRule
from penstock.secret import Secret
from penstock.sinks.names import source_columns
from penstock.spark import sql_stages
from penstock.spark.row_failures import sift
from penstock.spark.sql_stages import row_failure
from penstock.spark.transform_chain import Chain, incomplete
from penstock.state.dead_letters import Letter
from penstock.transforms.lineage import Line, Lineage, NoSuchType, definition, for_message
from penstock.transforms.stages import SqlStage, unfit


class MessageRules(Rules):
    """Applies rules with Spark. Raises `TableError` if the rules cannot be applied to the table."""

    def __init__(
        self,
        spark: SparkSession,
        schema: TableSchema,
        target: TableId,
        rules: tuple[TransformRule, ...],
        secret: Secret,
    ) -> None:
        self.schema = schema
        self._types = DEFAULT_TYPES.to_json()
        self._chain = Chain(spark, schema.table, rules, (), secret)
        self._fields = pa.schema(arrow_schema(schema.to_json(), "rows", self._types))
        logged = arrow_schema(schema.to_json(), "changelog", self._types)
        self._rows = pa.schema([*list(logged)[: len(self._fields) + 2], pa.field(ROW, pa.int64())])
        lineage, result = self._followed(spark, rules)
        listed = schema.key if self._chain.lists_failures else ()  # with which a row is listed that fails
        self._needed = [name for name in self._fields.names if name in lineage.needed or name in listed]
        lines = [lineage.lines[name] for name in result.names]
        self._made = [line for line in lines if _is_made(line)]
        self._result = result
        try:
            self.shown = definition(schema, target, lines, self._fields, result, lineage.key(schema.key))
        except NoSuchType as error:
            raise unfit(
                schema.table, f"makes `{error.column}` of type {error.kind}, which no message has"
            ) from None
        self._origins = [(line.source, _is_made(line)) for line in lines]
        self.uses_sql = any(rule.uses_sql for rule in rules)

    def _followed(self, spark: SparkSession, rules: Sequence[TransformRule]) -> tuple[Lineage, pa.Schema]:
        """The origin of each column, and the columns of the result."""
        lineage, schema, looked_at = Lineage.of(self._fields.names), self._rows, set[str]()
        numbers = iter(rules)
        for stage in self._chain.stages:
            if isinstance(stage, SqlStage):
                looked_at = sql_stages.needed(spark, schema, stage)
                schema = sql_stages.columns(spark, schema, stage)
                continue
            schema = stage.columns(schema)
            lineage.add(next(numbers), looked_at, source_columns(tuple(schema.names)))
            looked_at = set()
        return lineage, pa.schema([one for one in schema if one.name in lineage.lines])

    @property
    def for_core(self) -> Argument:
        """The rules of one table as an argument of `_core.LogEncoder`."""
        drops = self._chain.lists_failures or any(rule.where is not None for rule in self._chain.rules)
        return self.shown.to_json(), self._origins, self._needed, self._types, drops

    def apply(self, rows: pa.RecordBatch, *, lacks_columns: bool) -> tuple[pa.RecordBatch, list[Letter]]:
        if lacks_columns and any(rule.needs_whole_rows for rule in self._chain.rules):
            raise incomplete(self.schema.table)
        whole = self._whole(rows)
        letters: list[Letter] = []
        try:
            found = list(self._chain.in_driver([whole]))
        except Exception as error:
            failure = row_failure(self.schema.table, error)
            if failure is None:
                raise
            if not self._chain.lists_failures or lacks_columns:
                raise failure from error
            found = list(sift(self._chain, [whole], self.schema.key, letters.append))
        return self._columns(found), letters

    def _whole(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with all columns of the table."""
        names = set(rows.schema.names)
        arrays = [
            rows.column(one.name) if one.name in names else pa.nulls(rows.num_rows, one.type)
            for one in self._rows
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._rows)

    def _columns(self, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        names = [line.name for line in self._made]
        if not batches:
            kinds = [self._result.field(name).type for name in names]
            columns = [pa.array([], kind) for kind in kinds]
            numbers = pa.array([], pa.int64())
        else:
            table = pa.Table.from_batches(batches).combine_chunks()
            columns = [_joined(table.column(name)) for name in names]
            numbers = _joined(table.column(ROW))
        arrays = [for_message(one) for one in columns]
        return pa.RecordBatch.from_arrays([*arrays, numbers], [*names, ROW])

    def of_snapshot(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Letter]]:
        collected = collected_rows(self.schema.to_json(), rows, self._needed, self._types)
        made, letters = self.apply(collected, lacks_columns=False)
        left = rows.take(made.column(ROW))
        arrays = [
            made.column(column.name) if is_made else left.column(source)
            for column, (source, is_made) in zip(self.shown.columns, self._origins, strict=True)
        ]
        names = [column.name for column in self.shown.columns]
        sequences = left.column(own_name(SEQUENCE, left.schema.names))
        return pa.RecordBatch.from_arrays([*arrays, sequences], [*names, hidden(SEQUENCE)]), letters


def _is_made(line: Line) -> bool:
    return line.how != "kept"


def _joined(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found.chunk(0) if isinstance(found, pa.ChunkedArray) else found
