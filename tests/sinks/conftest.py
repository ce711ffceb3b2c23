"""Sinks on a place of their own, and frames in the layouts of the core."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.model.schema import Column, TableId, TableSchema
from penstock.sinks import registry
from penstock.sinks.base import Commit, EvolvedColumn, Narrowing
from penstock.sinks.lake.delta.options import DeltaOptions
from penstock.sinks.rows import Rows
from penstock.sinks.spark_sql import spark_type

_serial = itertools.count()

both = pytest.mark.parametrize("kind", ["iceberg", "delta"])
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))]
"""Of a test that mixes everything at random: 24 epochs are enough for a quick run."""

iceberg_first = pytest.mark.parametrize("kind", ["iceberg", pytest.param("delta", marks=pytest.mark.slow)])
"""The same over Delta takes longer, and tells little more."""

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone.utc)


@dataclass
class Place:
    """One sink with one table; `commit(1, 0)` is a commit of its pipeline."""

    spark: SparkSession
    config: Any
    """Options of the sink's kind."""
    arrow: pa.Schema = field(default_factory=lambda: pa.schema([("id", pa.int64()), ("name", pa.string())]))
    key: tuple[str, ...] = ("id",)
    table: TableId = field(default_factory=lambda: TableId("shop", "orders"))
    pipeline: str = field(default_factory=lambda: str(uuid.uuid4()))

    def __post_init__(self) -> None:
        self.sink: Any = registry.open_sink(self.config, self.spark, self.pipeline)

    def commit(self, epoch: int, step: int = 0) -> Commit:
        return Commit(self.pipeline, epoch, step)

    def create(self) -> Place:
        columns = tuple(Column(name, "varchar") for name in self.arrow.names)
        self.sink.create(TableSchema(self.table, columns, self.key), self.arrow)
        return self

    def evolve(self, epoch: int, *columns: EvolvedColumn, narrowing: Narrowing = "keep") -> bool:
        """Rows made from here on have these columns."""
        done: bool = self.sink.evolve(self.table, list(columns), self.commit(epoch), narrowing=narrowing)
        self.arrow = pa.schema([column.field for column in columns])
        return done

    def latest(self, *rows: tuple[Any, ...]) -> Rows:
        """Rows of values, then `_penstock_deleted`, `_sequence`."""
        own = [
            ("_penstock_deleted", pa.bool_()),
            ("_sequence", pa.int64()),
        ]
        return self._frame(pa.schema([*self.arrow, *[pa.field(*one) for one in own]]), rows)

    def changelog(self, *rows: tuple[Any, ...]) -> Rows:
        """Rows of values, then `_change_type`, `_sequence`."""
        own = [
            ("_change_type", pa.string()),
            ("_sequence", pa.int64()),
            ("_commit_timestamp", pa.timestamp("us", "UTC")),
        ]
        fields = pa.schema([*self.arrow, *[pa.field(*one) for one in own]])
        return self._frame(fields, tuple((*row, NOW) for row in rows))

    def _frame(self, schema: pa.Schema, rows: tuple[tuple[Any, ...], ...]) -> Rows:
        from pyspark.sql.types import StructField, StructType

        struct = StructType([StructField(one.name, spark_type(one)) for one in schema])
        return Rows(self.spark.createDataFrame(rows, struct))

    def rows(self, version: str | None = None) -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in self.sink.read(self.table, version).collect())


def column(
    name: str, kind: pa.DataType, before: str | None = None, *, default: str | None = None
) -> EvolvedColumn:
    return EvolvedColumn(pa.field(name, kind), before, default)


@pytest.fixture
def place(spark: SparkSession, lake_root: Path, delta: DeltaOptions) -> Callable[..., Place]:
    def make(kind: str, **options: Any) -> Place:
        number = next(_serial)
        path: Path | str = lake_root / "iceberg" if kind == "iceberg" else lake_root / f"{kind}-{number}"
        if kind == "delta" and delta.directory is None:
            path = f"{delta.path}/{number}"
        config = {
            "type": kind,
            "path": path,
            "store": delta.store,
            "namespace": f"n{number}_{{database}}",
            **options.pop("config", {}),
        }
        model = registry.kind(kind).options
        known = {name: value for name, value in config.items() if name in model.model_fields}
        return Place(spark, model.model_validate(known), **options)

    return make
