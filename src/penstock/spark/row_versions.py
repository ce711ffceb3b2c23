"""One table with cascading foreign keys in one epoch: the versions of its rows, its parents' changes, and
the reasons to refuse a computation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.cascades import reread_reasons
from penstock.cascades.comparison import Comparisons
from penstock.cascades.keys import moves_rows
from penstock.cascades.parent_changes import Watched
from penstock.epochs import tasks
from penstock.model.change import CHANGE_TYPE, SEQUENCE
from penstock.model.offset import Offset
from penstock.model.plan import ApplyEvents, TablePlan
from penstock.model.schema import CascadingKey, TableId, TableSchema, TypeOptions
from penstock.sinks.spark_sql import quoted, spark_type
from penstock.spark.consequences import Child, Edge, any_of, compared, follow, outcome
from penstock.spark.scratch import FrameFiles, Scratch
from penstock.store.folder import StoreFolder


@dataclass(frozen=True)
class ParentChanges:
    """Changes of a parent, in files. `places`: the number of each column in the files' column names."""

    places: dict[str, int]
    files: FrameFiles

    def to_json(self, folder: StoreFolder) -> dict[str, Any]:
        return {"places": self.places, "files": self.files.to_json(folder)}

    @classmethod
    def from_json(cls, fields: dict[str, Any], folder: StoreFolder) -> ParentChanges:
        return cls(fields["places"], FrameFiles.from_json(fields["files"], folder))


def places_of(schema: TableSchema) -> dict[str, int]:
    """The place of each column in the table, by name."""
    return {column.name: place for place, column in enumerate(schema.columns)}


@dataclass(frozen=True)
class Result:
    """What foreign keys did to one table. `rows`: for each key at the target or in the log, the last thing
    that happened to it. `chunks`: the same for rows of chunks. Both have `c…`, `DELETED` and `_sequence`.
    `derived`: all hits, as changes for tables that refer to this one."""

    rows: DataFrame | pa.Table
    chunks: DataFrame | pa.Table
    derived: DataFrame | pa.Table


class Relation:
    """A table, and the columns that are needed: those of its key, of its foreign keys, and the `watched`
    ones that other tables refer to. All columns are needed if a foreign key may change the table's key."""

    def __init__(
        self, types: TypeOptions, comparisons: Comparisons, table: TablePlan, watched: Watched
    ) -> None:
        self.schema = table.schema
        self.types = types
        self.comparisons = comparisons
        self.watched = watched
        self.places = places_of(table.schema)
        self.moves = moves_rows(table.schema)
        self.step = next((one for one in table.steps if isinstance(one, ApplyEvents)), None)
        """The step with the log's own events of the table in this epoch; None: there is none."""
        self._kept_columns = table.kept_columns
        names = {*table.schema.key, *(name for key in table.schema.foreign_keys for name in key.columns)}
        every = range(len(table.schema.columns))
        wanted = {*every} if self.moves else {self.places[name] for name in names}
        self.columns = tuple(sorted(wanted | set(watched.places)))

    def arrow(self, layout: str) -> pa.Schema:
        whole = tasks.layout(self.schema, layout, self.types)
        own = list(whole)[len(self.schema.columns) :]
        return pa.schema([*[whole.field(place) for place in self.columns], *own])

    def of_target(self, target: DataFrame, after: Offset) -> DataFrame:
        """Versions from rows of the target whose sequence is greater than `after`."""
        kept = self._kept_columns
        target_names = {}
        if kept is not None:
            target_names = {source: column.name
                    for column, source in zip(kept.schema.columns, kept.sources, strict=True)}  # fmt: skip
        kinds = [spark_type(one) for one in self.arrow("rows")]
        names = [self.schema.columns[place].name for place in self.columns]
        return target.where(f.col(SEQUENCE) > int(after)).select(
            *[
                (
                    f.col(quoted(target_names.get(name, name)))
                    if kept is None or name in target_names
                    else f.lit(None)
                )
                .cast(kind)
                .alias(f"c{place}")
                for place, name, kind in zip(self.columns, names, kinds, strict=True)
            ],
            f.col(SEQUENCE).alias("_from"),
            f.lit(False).alias("_chunk"),
        )

    def of_chunk(self, rows: DataFrame, window: Offset) -> DataFrame:
        """Versions from a chunk's rows in layout `latest`."""
        names = [self.schema.columns[place].name for place in self.columns]
        return rows.select(
            *[
                f.col(quoted(name)).alias(f"c{place}")
                for place, name in zip(self.columns, names, strict=True)
            ],
            f.lit(int(window)).cast("long").alias("_from"),
            f.lit(True).alias("_chunk"),
        )


class LargeCascades(Relation):
    """Computes with Spark, for any number of rows. `changes`: for each parent, those of earlier epochs
    first."""

    def __init__(
        self,
        spark: SparkSession,
        types: TypeOptions,
        comparisons: Comparisons,
        table: TablePlan,
        watched: Watched,
        changes: dict[TableId, list[ParentChanges]],
        scratch: Scratch,
    ) -> None:
        super().__init__(types, comparisons, table, watched)
        self._spark = spark
        self._scratch = scratch
        edges = [self._edge(key, changes.get(key.parent, [])) for key in self.schema.foreign_keys]
        self.edges = tuple(edge for edge in edges if edge is not None)

    @property
    def is_touched(self) -> bool:
        """Whether any change of a parent concerns the table."""
        return bool(self.edges)

    def _edge(self, key: CascadingKey, known: list[ParentChanges]) -> Edge | None:
        if not known:
            return None
        places = known[-1].places
        if not set(key.referenced) <= places.keys():
            return None  # changes of the referenced columns were not collected: the key ignores them
        changes = reduce(DataFrame.unionByName, [self._read(one, places) for one in known])
        columns = tuple(self.places[name] for name in key.columns)
        how = tuple(self.comparisons.of(self.schema.columns[place]) for place in columns)
        edge = Edge(key, columns, tuple(places[name] for name in key.referenced), how, changes)
        return None if edge.effective().isEmpty() else edge

    def _read(self, known: ParentChanges, places: dict[str, int]) -> DataFrame:
        frame = known.files.frame(self._spark)
        columns = [
            (f.col(f"{side}{known.places[name]}") if name in known.places else f.lit(None)).alias(
                f"{side}{place}"
            )
            for side in "on"
            for name, place in places.items()
        ]
        return frame.select(*columns, "gone", "p")

    def work_out(
        self, target: DataFrame | None, after: Offset, chunks: Sequence[tuple[DataFrame, Offset]]
    ) -> Result | None:
        """Computes the result; None: nothing was hit. `target`: its rows with sequences greater than
        `after` are this table's. `chunks`: their rows in layout `latest`, and their windows."""
        child = self._child(target, after, chunks)
        self._refuse_doubtful(child)
        hits, changes = follow(child, self._scratch)
        if hits is None or changes is None:
            return None
        if reread_reasons.has_virtual_columns(self.schema) and not hits.where("NOT _ends").isEmpty():
            raise reread_reasons.generated(self.schema.table)
        placed = outcome(replace(child, logged=None), hits.where("_chunk"))
        return Result(outcome(child, hits.where("NOT _chunk")), placed, changes)

    # versions -----------------------------------------------------------------------------------------------

    def _child(
        self, target: DataFrame | None, after: Offset, chunks: Sequence[tuple[DataFrame, Offset]]
    ) -> Child:
        columns = self.columns
        logged = self._logged()
        parts = []
        if target is not None:
            parts.append(self.of_target(target, after))
        if logged is not None:
            images = logged.where(f.col(CHANGE_TYPE).isin("insert", "update_postimage"))
            parts.append(images.select(*[f"c{n}" for n in columns], f.col(SEQUENCE).alias("_from"),
                                       f.lit(False).alias("_chunk")))  # fmt: skip
        parts += [self._scratch.keep(self.of_chunk(frame, window))[0] for frame, window in chunks]
        if not parts:
            parts.append(self._nothing())
        return Child(
            key=tuple(self.places[name] for name in self.schema.key),
            columns=columns,
            watched=self.watched.places,
            versions=reduce(DataFrame.unionByName, parts),
            logged=logged,
            edges=self.edges,
            moves=self.moves,
        )

    def _logged(self) -> DataFrame | None:
        """All row images of the table in the epoch."""
        if self.step is None:
            return None
        names = tuple(self.schema.columns[place].name for place in self.columns)
        text = self.schema.to_json()
        work = tuple(
            tasks.DecodeTask(text, (split,), "changelog", self.types, columns=names)
            for split in self.step.splits
        )
        kind = from_arrow_schema(self.arrow("changelog"), prefer_timestamp_ntz=True)
        body = tasks.run_tasks(tasks.decode, work, str(self.schema.table))
        frame = self._spark.range(0, len(work), 1, len(work)).mapInArrow(body, kind)
        own = frame.columns[len(self.columns) :]
        return self._scratch.keep(frame.toDF(*[f"c{n}" for n in self.columns], *own))[0]

    def _nothing(self) -> DataFrame:
        kinds = [spark_type(one).simpleString() for one in self.arrow("rows")]
        fields = [f"c{place} {kind}" for place, kind in zip(self.columns, kinds, strict=True)]
        return self._spark.createDataFrame([], ", ".join([*fields, "_from long", "_chunk boolean"]))

    # refusals -----------------------------------------------------------------------------------------------

    def is_unclear(self) -> bool:
        """Whether one change removed a value and another one brought it back: see `spark/cascades.py`."""
        for edge in self.edges:
            changes = edge.effective()
            numbers = range(len(edge.columns))
            sets = changes.where(any_of([f.col(f"v{at}").isNotNull() for at in numbers]))
            if sets.isEmpty():
                continue
            if reread_reasons.shares_columns(self.schema, edge.key):
                return True
            news = sets.select(*[compared(f.col(f"v{at}"), edge.comparisons[at]).alias(f"w{at}")
                                 for at in numbers], f.col("p").alias("later"))  # fmt: skip
            same = [f.col(f"w{at}") == f.col(f"q{at}") for at in numbers]
            if not news.join(changes, same).where("later > p").isEmpty():
                return True
        return False

    def refuse_moves(self, *, reading: bool) -> None:
        """Raises `TableError` if a foreign key changed keys of the table while the table is being read."""
        for edge in self.edges:
            if reading and not set(self.schema.key).isdisjoint(edge.key.columns):
                sets = any_of([f.col(f"v{at}").isNotNull() for at in range(len(edge.columns))])
                if not edge.effective().where(sets).isEmpty():
                    raise reread_reasons.moved_while_read(self.schema.table, edge.key)

    def _refuse_doubtful(self, child: Child) -> None:
        """Raises `TableError` if only the server can know whether some values are equal."""
        table = self.schema.table
        for edge in self.edges:
            for at, (place, how) in enumerate(zip(edge.columns, edge.comparisons, strict=True)):
                column = self.schema.columns[place]
                if how == "unknown":
                    raise reread_reasons.unknown_order(table, edge.key, column)
                nulls = f.col(f"o{edge.referenced[at]}").isNull()
                hides = reread_reasons.hides_zero_dates(column, self.types)
                if hides and not edge.changes.where(nulls).isEmpty():
                    raise reread_reasons.zero_date(table, edge.key)
                if self.comparisons.is_case_sensitive(column):
                    continue
                beyond = ~f.col(f"q{at}").rlike(reread_reasons.PLAIN)
                own = ~f.col(f"c{place}").rlike(reread_reasons.PLAIN)
                changed = edge.effective()
                if not changed.where(beyond).isEmpty() or not child.versions.where(own).isEmpty():
                    raise reread_reasons.beyond_ascii(table, edge.key, column)
