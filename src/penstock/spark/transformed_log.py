"""A sink that takes messages, with transforms in front of it.

Messages name a table as `to` does, and topics, partitions and schemas of a registry go by this name: whoever
speaks of them to this sink gives the name at the target. Plans, positions and parked tables go by the name at
the source. `LogEpochs` asks for a table's `rules` and applies them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.epochs.ruled_log import RuledSink
from penstock.model.schema import TableId, TableSchema
from penstock.model.transforms import Transforms
from penstock.secret import Secret
from penstock.sinks.base import (
    Commit,
    EncodedBatch,
    Fencing,
    LogMessage,
    LogSink,
    Route,
    Subject,
    log_sink,
)
from penstock.sinks.schema_registry import RegistryOptions
from penstock.spark.message_rules import MessageRules
from penstock.spark.transformed_sink import TransformedSink

KNOWN_MAX = 1000
"""Definitions whose compiled rules are remembered. Compiling takes some milliseconds, with SQL some more."""


class TransformedLog(TransformedSink, RuledSink):
    """Stands in front of a `LogSink`. `letters`: the folder for rows that fail."""

    def __init__(
        self,
        inner: LogSink,
        transforms: Transforms,
        spark: SparkSession,
        secret: Secret,
        *,
        letters: Path,
        untouched: Collection[TableId] = (),
    ) -> None:
        super().__init__(inner, transforms, spark, secret, letters=letters, untouched=untouched)
        self._known: dict[str, MessageRules] = {}
        self.letters = letters

    def rules(self, schema: TableSchema) -> MessageRules | None:
        if not self._rules(schema.table):
            return None
        name = schema.to_json()
        if name not in self._known:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[name] = MessageRules(
                self._spark, schema, self.name_of(schema.table), self._transforms.of(schema.table),
                self._secret,
            )  # fmt: skip
        return self._known[name]

    def fits(self, schema: TableSchema, arrow: pa.Schema) -> None:
        self.rules(schema)

    def create(self, schema: TableSchema, arrow: pa.Schema) -> None:
        rules = self.rules(schema)
        self._inner.create(schema if rules is None else rules.shown, arrow)

    # Fencing

    def begin(self, generation: int) -> None:
        if isinstance(self._inner, Fencing):
            self._inner.begin(generation)

    def fence(self, table: TableId) -> None:
        if isinstance(self._inner, Fencing):
            self._inner.fence(self.name_of(table))

    # LogSink, by the names at the target

    @property
    def format(self) -> str:
        return log_sink(self._inner).format

    @property
    def format_options(self) -> str:
        return log_sink(self._inner).format_options

    @property
    def registry(self) -> RegistryOptions | None:
        return log_sink(self._inner).registry

    @property
    def tells_definitions(self) -> bool:
        return log_sink(self._inner).tells_definitions

    def subject_of(self, table: TableId) -> Subject:
        return log_sink(self._inner).subject_of(table)

    def topic_of(self, table: TableId | None) -> str:
        return log_sink(self._inner).topic_of(table)

    def route_of(self, table: TableId) -> Route | None:
        return log_sink(self._inner).route_of(table)

    def write_epoch(
        self,
        commit: Commit,
        tables: Sequence[TableSchema],
        messages: Iterable[Sequence[LogMessage] | EncodedBatch],
        note: str = "",
    ) -> str | None:
        return log_sink(self._inner).write_epoch(commit, tables, messages, note)
