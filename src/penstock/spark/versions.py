"""One table with cascading keys in one epoch: its versions, its parents' changes, and what makes them
doubtful."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.cascades.changes import Watched
from penstock.cascades.keys import comparison, is_case_sensitive, moves_rows
from penstock.errors import TableError
from penstock.model.change import CHANGE_TYPE, SEQUENCE
from penstock.model.offset import Offset
from penstock.model.plan import ApplyEvents, TablePlan
from penstock.model.schema import CascadingKey, TableId, TableSchema, TypeOptions
from penstock.sinks.lake import quoted, spark_type
from penstock.spark import tasks
from penstock.spark.consequences import Child, Edge, any_of, compared
from penstock.spark.scratch import Scratch

_PLAIN = "^[ -~]*$"
_TIMES = frozenset({"date", "datetime", "timestamp"})


@dataclass(frozen=True)
class Known:
    """Changes of a parent in files. `places`: which column each number in the files' columns stands for."""

    places: dict[str, int]
    files: tuple[Path, ...]

    def to_json(self) -> dict[str, Any]:
        return {"places": self.places, "files": [f"{file.parent.name}/{file.name}" for file in self.files]}

    @classmethod
    def from_json(cls, fields: dict[str, Any], folder: Path) -> Known:
        return cls(fields["places"], tuple(folder / file for file in fields["files"]))


def places_of(schema: TableSchema) -> dict[str, int]:
    return {column.name: place for place, column in enumerate(schema.columns)}


class Family:
    """`changes`: of each parent, those of earlier epochs first."""

    def __init__(
        self,
        spark: SparkSession,
        types: TypeOptions,
        table: TablePlan,
        watched: Watched,
        changes: dict[TableId, list[Known]],
    ) -> None:
        self._spark = spark
        self._types = types
        self._table = table
        self._schema = table.schema
        self._watched = watched
        self._places = places_of(table.schema)
        edges = [self._edge(key, changes.get(key.parent, [])) for key in self._schema.foreign_keys]
        self.edges = tuple(edge for edge in edges if edge is not None)
        self.is_touched = bool(self.edges)

    def _edge(self, key: CascadingKey, known: list[Known]) -> Edge | None:
        if not known:
            return None
        places = known[-1].places
        if not set(key.referenced) <= places.keys():
            return None  # nobody watched them: it does nothing when they change
        changes = reduce(DataFrame.unionByName, [self._read(one, places) for one in known])
        columns = tuple(self._places[name] for name in key.columns)
        how = tuple(comparison(self._schema.columns[place]) for place in columns)
        edge = Edge(key, columns, tuple(places[name] for name in key.referenced), how, changes)
        return None if edge.effective().isEmpty() else edge

    def _read(self, known: Known, places: dict[str, int]) -> DataFrame:
        frame = self._spark.read.parquet(*[f"file://{file}" for file in known.files])
        columns = [
            (f.col(f"{side}{known.places[name]}") if name in known.places else f.lit(None)).alias(
                f"{side}{place}"
            )
            for side in "on"
            for name, place in places.items()
        ]
        return frame.select(*columns, "gone", "p")

    # versions -----------------------------------------------------------------------------------------------

    def child(
        self,
        scratch: Scratch,
        target: DataFrame | None,
        after: Offset,
        chunks: Sequence[tuple[DataFrame, Offset]],
    ) -> Child:
        """`target`: rows with sequences above `after` are of the table. `chunks`: rows in layout `latest`,
        and their windows."""
        schema = self._schema
        moves = moves_rows(schema)
        names = {*schema.key, *(name for key in schema.foreign_keys for name in key.columns)}
        wanted = {*range(len(schema.columns))} if moves else {self._places[name] for name in names}
        columns = tuple(sorted(wanted | set(self._watched.places)))
        logged = self._logged(scratch, columns)
        parts = []
        if target is not None:
            parts.append(self._of_target(target, columns, after))
        if logged is not None:
            images = logged.where(f.col(CHANGE_TYPE).isin("insert", "update_postimage"))
            parts.append(images.select(*[f"c{n}" for n in columns], f.col(SEQUENCE).alias("_from"),
                                       f.lit(False).alias("_chunk")))  # fmt: skip
        parts += [scratch.keep(self._of_chunk(frame, columns, window))[0] for frame, window in chunks]
        if not parts:
            parts.append(self._nothing(columns))
        return Child(
            key=tuple(self._places[name] for name in schema.key),
            columns=columns,
            watched=self._watched.places,
            versions=reduce(DataFrame.unionByName, parts),
            logged=logged,
            edges=self.edges,
            moves=moves,
        )

    def _arrow(self, columns: tuple[int, ...], layout: str) -> pa.Schema:
        whole = tasks.layout(self._schema, layout, self._types)
        own = list(whole)[len(self._schema.columns) :]
        return pa.schema([*[whole.field(place) for place in columns], *own])

    def _logged(self, scratch: Scratch, columns: tuple[int, ...]) -> DataFrame | None:
        """Every image of the table in the epoch."""
        step = next((one for one in self._table.steps if isinstance(one, ApplyEvents)), None)
        if step is None:
            return None
        names = tuple(self._schema.columns[place].name for place in columns)
        text = self._schema.to_json()
        work = tuple(
            tasks.DecodeTask(text, (split,), "changelog", self._types, columns=names) for split in step.splits
        )
        kind = from_arrow_schema(self._arrow(columns, "changelog"), prefer_timestamp_ntz=True)
        body = tasks.run_tasks(tasks.decode, work, str(self._schema.table))
        frame = self._spark.range(0, len(work), 1, len(work)).mapInArrow(body, kind)
        own = frame.columns[len(columns) :]
        return scratch.keep(frame.toDF(*[f"c{n}" for n in columns], *own))[0]

    def _of_target(self, target: DataFrame, columns: tuple[int, ...], after: Offset) -> DataFrame:
        kept = self._table.kept
        held = {}
        if kept is not None:
            held = {source: column.name
                    for column, source in zip(kept.schema.columns, kept.sources, strict=True)}  # fmt: skip
        kinds = [spark_type(one) for one in self._arrow(columns, "rows")]
        names = [self._schema.columns[place].name for place in columns]
        return target.where(f.col(SEQUENCE) > int(after)).select(
            *[
                (f.col(quoted(held.get(name, name))) if kept is None or name in held else f.lit(None))
                .cast(kind)
                .alias(f"c{place}")
                for place, name, kind in zip(columns, names, kinds, strict=True)
            ],
            f.col(SEQUENCE).alias("_from"),
            f.lit(False).alias("_chunk"),
        )

    def _of_chunk(self, rows: DataFrame, columns: tuple[int, ...], window: Offset) -> DataFrame:
        names = [self._schema.columns[place].name for place in columns]
        return rows.select(
            *[f.col(quoted(name)).alias(f"c{place}") for place, name in zip(columns, names, strict=True)],
            f.lit(int(window)).cast("long").alias("_from"),
            f.lit(True).alias("_chunk"),
        )

    def _nothing(self, columns: tuple[int, ...]) -> DataFrame:
        kinds = [spark_type(one).simpleString() for one in self._arrow(columns, "rows")]
        fields = [f"c{place} {kind}" for place, kind in zip(columns, kinds, strict=True)]
        return self._spark.createDataFrame([], ", ".join([*fields, "_from long", "_chunk boolean"]))

    # doubt --------------------------------------------------------------------------------------------------

    def is_unclear(self) -> bool:
        """Whether a value that a change took away came back by another one: see `spark/cascades.py`."""
        for edge in self.edges:
            changes = edge.effective()
            numbers = range(len(edge.columns))
            sets = changes.where(any_of([f.col(f"v{at}").isNotNull() for at in numbers]))
            if sets.isEmpty():
                continue
            if self._shares_columns(edge):
                return True
            news = sets.select(*[compared(f.col(f"v{at}"), edge.comparisons[at]).alias(f"w{at}")
                                 for at in numbers], f.col("p").alias("later"))  # fmt: skip
            same = [f.col(f"w{at}") == f.col(f"q{at}") for at in numbers]
            if not news.join(changes, same).where("later > p").isEmpty():
                return True
        return False

    def _shares_columns(self, edge: Edge) -> bool:
        others = [one for one in self._schema.foreign_keys if one.name != edge.key.name]
        return any(not set(one.columns).isdisjoint(edge.key.columns) for one in others)

    def refuse_moves(self, *, reading: bool) -> None:
        """A row whose key changes while the table is read may be in no chunk, or in two."""
        key = set(self._schema.key)
        for edge in self.edges:
            if reading and not key.isdisjoint(edge.key.columns):
                sets = any_of([f.col(f"v{at}").isNotNull() for at in range(len(edge.columns))])
                if not edge.effective().where(sets).isEmpty():
                    raise self._again(
                        f"the foreign key {edge.key.name} changed keys of its rows while it was read"
                    )

    def refuse_doubtful(self, child: Child) -> None:
        """Values of which only the server knows whether they are equal."""
        for edge in self.edges:
            key = edge.key.name
            for at, (place, how) in enumerate(zip(edge.columns, edge.comparisons, strict=True)):
                column = self._schema.columns[place]
                if how == "unknown":
                    raise self._again(f"texts of the foreign key {key} compare by {column.collation}")
                nulls = f.col(f"o{edge.referenced[at]}").isNull()
                hides = column.type in _TIMES and self._types.zero_dates == "null"
                if hides and not edge.changes.where(nulls).isEmpty():
                    raise self._again(f"a row to which the foreign key {key} refers may have had a zero date")
                if is_case_sensitive(column):
                    continue
                beyond = ~f.col(f"q{at}").rlike(_PLAIN)
                own = ~f.col(f"c{place}").rlike(_PLAIN)
                changed = edge.effective()
                if not changed.where(beyond).isEmpty() or not child.versions.where(own).isEmpty():
                    raise self._again(
                        f"the foreign key {key} changed rows, and its texts are not all plain ASCII, so that "
                        f"{column.collation} may hold others for equal"
                    )

    def refuse_generated(self, hits: DataFrame) -> None:
        virtual = any(column.generated == "virtual" for column in self._schema.columns)
        if virtual and not hits.where("NOT _ends").isEmpty():
            raise self._again("a foreign key changed rows that have generated columns")

    def _again(self, why: str) -> TableError:
        table = self._schema.table
        return TableError(
            f"Table {table} is read again: {why}.",
            hint=f"Nothing, if it happens rarely. Else change rows of {table} in the application and take "
            f"the rule off the foreign key, then run `penstock resnapshot FILE {table}`.",
            table=str(table),
            again=True,
        )
