"""Computes what few changes of parents did to one table. One Spark job finds the rows that may be
concerned, and the driver does the rest (`cascades/replay.py`).

The result is the same as that of `spark/row_versions.py`, which handles any number of rows but needs many
Spark jobs, and so takes seconds even for one row.

**A table that refers to itself** is always computed here, because Spark has no rule for it. Its rows are
found level by level: rows that refer to a deleted row, rows that refer to those, and so on. Each level is one
Spark job over the target. A server follows a cascade over at most 15 levels, and most epochs have one or two.
Some rows are fetched in vain, because the row they refer to turns out not to be hit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.cascades import reread_reasons
from penstock.cascades.comparison import Comparison, Comparisons
from penstock.cascades.in_memory import (
    Edge,
    Hit,
    Images,
    Row,
    Version,
    arrow,
    derived,
    edge_of,
    outcome,
    plain,
)
from penstock.cascades.keys import refers_to_itself
from penstock.cascades.parent_changes import Watched
from penstock.cascades.replay import OwnEdge, replay
from penstock.epochs import tasks
from penstock.failures.crossing import crossing
from penstock.model.change import CHANGE_TYPE, DELETED, SEQUENCE
from penstock.model.offset import LogRange, Offset
from penstock.model.plan import TablePlan
from penstock.model.schema import CascadingKey, TableId, TypeOptions
from penstock.spark.consequences import any_of, compared
from penstock.spark.row_versions import ParentChanges, Relation, Result

ROWS_MAX = 20_000
"""Limit of rows of a table, and of changes of its parents, that the driver handles as Python objects."""
LOGGED_BYTES_MAX = 16 * 1024**2
"""Limit of a table's log in the epoch, for work that Spark can do instead: the driver decodes all of it."""
STANDS = ("insert", "update_postimage")
"""Row images that show the values of a row from there on."""
LISTED_MAX = 200
"""Values that are listed in the filter of a read, so that Spark can skip files. More of them are joined."""


class TooMany(Exception):
    """There are more rows or changes than the driver may handle."""


class SmallCascades(Relation):
    """Computes in the driver what foreign keys did, for few rows. `changes`: for each parent, those of
    earlier epochs first. Changes outside of `reach` are ignored (None: none is). `limit`: of rows and of
    changes. Raises `TooMany`."""

    def __init__(
        self,
        spark: SparkSession,
        types: TypeOptions,
        comparisons: Comparisons,
        table: TablePlan,
        watched: Watched,
        changes: dict[TableId, list[ParentChanges]],
        reach: LogRange | None = None,
        *,
        limit: int = ROWS_MAX,
    ) -> None:
        super().__init__(types, comparisons, table, watched)
        self._spark = spark
        self._reach = reach
        self._limit = limit
        self._refers_to_itself = refers_to_itself(self.schema)
        if self.step is not None and self.step.bytes > LOGGED_BYTES_MAX and not self._has_any_log:
            raise TooMany
        if sum(known.files.rows for several in changes.values() for known in several) > limit:
            raise TooMany
        self._row_of = {place: number for number, place in enumerate(self.columns)}
        self._fields = tasks.layout(self.schema, "rows", types)
        edges = [self._edge(key, changes.get(key.parent, [])) for key in self.schema.foreign_keys]
        self.edges = [edge for edge in edges if edge is not None and (edge.effects or self._is_own(edge))]
        self._own = [
            OwnEdge(number, tuple(self._row_of[self.places[name]] for name in edge.key.referenced))
            for number, edge in enumerate(self.edges)
            if self._is_own(edge)
        ]

    @property
    def _has_any_log(self) -> bool:
        """Whether the log may have any size: there is no other way, and only columns of the key and the
        foreign keys are in memory. If rows can get other keys, all columns are."""
        return self._refers_to_itself and not self.moves

    @property
    def rows_max(self) -> int:
        """Limit of rows. If rows can get other keys, all their columns are held, so a tenth of the rows
        needs the same memory."""
        return self._limit // 10 if self.moves else self._limit

    @property
    def is_touched(self) -> bool:
        """See `LargeCascades.is_touched`."""
        return any(edge.effects for edge in self.edges)

    def _is_own(self, edge: Edge) -> bool:
        return edge.key.parent == self.schema.table

    def _edge(self, key: CascadingKey, known: list[ParentChanges]) -> Edge | None:
        columns = [self.places[name] for name in key.columns]
        kinds = [self._fields.field(place).type for place in columns]
        if not all(map(_is_simple, kinds)):
            raise TooMany
        if known and not set(key.referenced) <= known[-1].places.keys():
            return None  # changes of the referenced columns were not collected: the key ignores them
        changes = pa.concat_tables([_none(kinds), *[_read(one, key.referenced, kinds) for one in known]])
        if self._reach is not None:
            start, end = int(self._reach.start), int(self._reach.end)
            changes = changes.filter((pc.field("p") > start) & (pc.field("p") <= end))
        how = tuple(self.comparisons.of(self.schema.columns[place]) for place in columns)
        own = tuple(self._row_of[place] for place in columns)
        edge = edge_of(key, own, how, changes, tuple(range(len(columns))))
        if edge.effects:
            self._check(edge)
        return edge

    # refusals -----------------------------------------------------------------------------------------------

    def is_unclear(self) -> bool:
        """See `LargeCascades.is_unclear`."""
        return any(
            edge.sets and (reread_reasons.shares_columns(self.schema, edge.key) or edge.brings_back())
            for edge in self.edges
        )

    def refuse_moves(self, *, reading: bool) -> None:
        """See `LargeCascades.refuse_moves`."""
        for edge in self.edges:
            if reading and edge.sets and not set(self.schema.key).isdisjoint(edge.key.columns):
                raise reread_reasons.moved_while_read(self.schema.table, edge.key)

    def _check(self, edge: Edge) -> None:
        """Raises `TableError` if only the server knows whether values of the parent equal others."""
        for at, (place, how) in enumerate(zip(edge.columns, edge.comparisons, strict=True)):
            column = self.schema.columns[self.columns[place]]
            if how == "unknown":
                raise reread_reasons.unknown_order(self.schema.table, edge.key, column)
            if not self.comparisons.is_case_sensitive(column) and not all(
                is_plain(values[at]) for values in edge.effects
            ):
                raise reread_reasons.beyond_ascii(self.schema.table, edge.key, column)

    def _check_rows(self, versions: list[Version]) -> None:
        """Raises `TableError` if only the server knows whether values of the table's rows equal others."""
        for edge in self.edges:
            for place in edge.columns:
                column = self.schema.columns[self.columns[place]]
                if not self.comparisons.is_case_sensitive(column) and not all(
                    is_plain(one.row[place]) for one in versions
                ):
                    raise reread_reasons.beyond_ascii(self.schema.table, edge.key, column)

    def _check_followed(self, hits: list[Hit]) -> None:
        """Raises `TableError` if only the server knows which rows of the table refer to the hit ones."""
        for each in self._own:
            edge = self.edges[each.number]
            for at, (place, how) in enumerate(zip(edge.columns, edge.comparisons, strict=True)):
                column = self.schema.columns[self.columns[place]]
                if how == "unknown" and hits:
                    raise reread_reasons.unknown_order(self.schema.table, edge.key, column)
                if self.comparisons.is_case_sensitive(column):
                    continue
                if not all(is_plain(each.values(hit.before)[at]) for hit in hits):
                    raise reread_reasons.beyond_ascii(self.schema.table, edge.key, column)

    # rows ---------------------------------------------------------------------------------------------------

    def work_out(
        self, target: DataFrame | None, after: Offset, chunks: Sequence[tuple[DataFrame, Offset]]
    ) -> Result | None:
        """See `LargeCascades.work_out`."""
        assert not (chunks and self._own), "it is read in one piece, whose place in the log is known"
        logged = self._logged()
        frames = [] if target is None else [self.of_target(target, after)]
        frames += [self.of_chunk(frame, window) for frame, window in chunks]
        versions = self._reachable(logged, frames)
        self._check_rows(versions)
        images = Images(tuple(self._row_of[self.places[name]] for name in self.schema.key))
        self._learn(images, logged, versions)
        hits = replay(self.edges, self._own, versions, images)
        self._check_followed(hits)
        return self._result(hits, images)

    def _result(self, hits: list[Hit], images: Images) -> Result | None:
        if not hits:
            return None
        if reread_reasons.has_virtual_columns(self.schema) and not all(hit.ends for hit in hits):
            raise reread_reasons.generated(self.schema.table)
        placed = [hit for hit in hits if hit.chunk]
        return Result(
            self._table(outcome((hit for hit in hits if not hit.chunk), images)),
            self._table(outcome(placed, Images(images.key))),
            self._changes(hits),
        )

    def _logged(self) -> pa.Table:
        """All row images of this epoch, with the needed columns."""
        columns = [pa.field(f"c{place}", self._fields.field(place).type) for place in self.columns]
        own = [pa.field(CHANGE_TYPE, pa.string()), pa.field(SEQUENCE, pa.int64())]
        schema = pa.schema([*columns, *own])
        names = [*(self.schema.columns[place].name for place in self.columns), CHANGE_TYPE, SEQUENCE]
        batches = [pa.RecordBatch.from_arrays([batch.column(name) for name in names], schema=schema)
                   for batch in self._images()]  # fmt: skip
        return pa.Table.from_batches(batches, schema)

    def _images(self) -> Iterator[pa.RecordBatch]:
        """The row images in layout `changelog`, with the needed columns."""
        if self.step is None:
            return
        names = tuple(self.schema.columns[place].name for place in self.columns)
        text = self.schema.to_json()
        with crossing(str(self.schema.table)).guard():
            for split in self.step.splits:
                yield from tasks.decode(
                    tasks.DecodeTask(text, (split,), "changelog", self.types, columns=names)
                )

    def _rows(self, images: pa.RecordBatch | pa.Table) -> list[Row]:
        return list(zip(*[plain(images.column(n)) for n in range(len(self.columns))], strict=True))

    def _reachable(self, logged: pa.Table, frames: Sequence[DataFrame]) -> list[Version]:
        """Versions that a change may hit, on any level."""
        standing = logged.filter(pc.is_in(logged[CHANGE_TYPE], pa.array(STANDS)))
        found: dict[Version, None] = {}
        asked: list[set[Row]] = [set() for _ in self.edges]
        waiting = [set(edge.effects) for edge in self.edges]
        while any(waiting):
            level = [*self._logged_with(standing, waiting)]
            level += [one for frame in frames for one in self._fetched(frame, waiting)]
            new = [one for one in level if one not in found]
            found |= dict.fromkeys(new)
            if len(found) > self.rows_max:
                raise TooMany
            for known, values in zip(asked, waiting, strict=True):
                known |= values
            waiting = [set() for _ in self.edges]
            for each in self._own:
                waiting[each.number] = self._values(each, new) - asked[each.number]
        return list(found)

    def _values(self, own: OwnEdge, versions: list[Version]) -> set[Row]:
        """The values of this foreign key in rows that refer to one of the versions."""
        edge = self.edges[own.number]
        values = {edge.compared(own.values(one.row)) for one in versions}
        return {value for value in values if None not in value}

    def _logged_with(self, standing: pa.Table, values: Sequence[set[Row]]) -> Iterator[Version]:
        """Versions from the log that refer to one of the values, or to a text that may be equal to one."""
        mask = pa.repeat(pa.scalar(False), standing.num_rows)
        for edge, asked in zip(self.edges, values, strict=True):
            same = pa.repeat(pa.scalar(True), standing.num_rows)
            for at, (place, how) in enumerate(zip(edge.columns, edge.comparisons, strict=True)):
                column = standing.column(place)
                if not self.comparisons.is_case_sensitive(self.schema.columns[self.columns[place]]):
                    plain_text = pc.fill_null(pc.match_substring_regex(column, reread_reasons.PLAIN), True)
                    mask = pc.or_(mask, pc.invert(plain_text))
                known = pa.array([value[at] for value in asked], column.type)
                same = pc.and_(same, pc.fill_null(pc.is_in(_compared(column, how), known), False))
            mask = pc.or_(mask, same)
        found = standing.filter(mask)
        rows = zip(self._rows(found), found[SEQUENCE].to_pylist(), strict=True)
        return (Version(row, sequence) for row, sequence in rows)

    def _fetched(self, frame: DataFrame, values: Sequence[Collection[Row]]) -> Iterator[Version]:
        """Versions that a change may hit: rows whose foreign keys have one of the `values`, given for each
        edge. Includes rows with texts that may be equal to one of them, so that they can be refused."""
        wanted: list[Column] = []
        for number, (edge, asked) in enumerate(zip(self.edges, values, strict=True)):
            own = [self.columns[place] for place in edge.columns]
            own_values = [compared(f.col(f"c{n}"), how) for n, how in zip(own, edge.comparisons, strict=True)]
            if len(own) == 1 and len(asked) <= LISTED_MAX:
                wanted.append(own_values[0].isin([value for (value,) in asked]))
            else:
                listed = self._listed(asked, own, number)
                same = [value == f.col(f"q{number}_{at}") for at, value in enumerate(own_values)]
                frame = frame.join(f.broadcast(listed), same, "left")
                wanted.append(f.col(f"q{number}_0").isNotNull())
            wanted += [~f.col(f"c{n}").rlike(reread_reasons.PLAIN) for n in own
                       if not self.comparisons.is_case_sensitive(self.schema.columns[n])]  # fmt: skip
        limit, names = self.rows_max, [f"c{n}" for n in self.columns]
        found = frame.where(any_of(wanted)).select(*names, "_from", "_chunk").limit(limit + 1).toArrow()
        if found.num_rows > limit:
            raise TooMany
        rows = zip(*[plain(found[name]) for name in names], strict=True)
        since, chunk = found["_from"].to_pylist(), found["_chunk"].to_pylist()
        return (Version(*one) for one in zip(rows, since, chunk, strict=True))

    def _listed(self, asked: Collection[Row], own: list[int], number: int) -> DataFrame:
        arrays = [
            arrow([values[at] for values in asked], self._fields.field(place).type)
            for at, place in enumerate(own)
        ]
        names = [f"q{number}_{at}" for at in range(len(own))]
        return self._spark.createDataFrame(pa.table(arrays, names))

    def _learn(self, images: Images, logged: pa.Table, versions: list[Version]) -> None:
        """Adds the log's images of the versions' keys to `images`; of all keys, if rows can get
        other keys."""
        if not self.moves:
            first = images.key[0]
            logged_keys = arrow([one.row[first] for one in versions], logged.column(first).type)
            logged = logged.filter(pc.is_in(logged.column(first), logged_keys))
        images.add(self._rows(logged), logged[SEQUENCE].to_pylist())

    # results ------------------------------------------------------------------------------------------------

    def _table(self, found: list[tuple[tuple[object, ...], bool, int]]) -> pa.Table:
        fields = [pa.field(f"c{place}", self._fields.field(place).type) for place in self.columns]
        arrays = [arrow([row[n] for row, _, _ in found], field.type) for n, field in enumerate(fields)]
        arrays += [pa.array([gone for _, gone, _ in found], pa.bool_()),
                   pa.array([p for _, _, p in found], pa.int64())]  # fmt: skip
        own = [pa.field(DELETED, pa.bool_()), pa.field(SEQUENCE, pa.int64())]
        return pa.Table.from_arrays(arrays, schema=pa.schema([*fields, *own]))

    def _changes(self, hits: list[Hit]) -> pa.Table:
        found = derived(hits, [self._row_of[place] for place in self.watched.places])
        columns: dict[str, pa.Array] = {}
        for side, values in (("o", [one[0] for one in found]), ("n", [one[1] for one in found])):
            for n, place in enumerate(self.watched.places):
                kind = self._fields.field(place).type
                columns[f"{side}{place}"] = arrow([row[n] for row in values], kind)
        columns["gone"] = pa.array([one[2] for one in found], pa.bool_())
        columns["p"] = pa.array([one[3] for one in found], pa.int64())
        return pa.table(columns)


def _read(known: ParentChanges, referenced: Sequence[str], kinds: Sequence[pa.DataType]) -> pa.Table:
    """The changes, with columns numbered by their place in the key. A column that did not exist then is
    NULL."""
    whole = known.files.table()
    arrays: dict[str, pa.ChunkedArray] = {}
    for side in "on":
        for at, (name, kind) in enumerate(zip(referenced, kinds, strict=True)):
            column = f"{side}{known.places[name]}" if name in known.places else None
            found = whole[column].cast(kind) if column is not None else pa.nulls(whole.num_rows, kind)
            arrays[f"{side}{at}"] = found
    return pa.table({**arrays, "gone": whole["gone"], "p": whole["p"]})


def _compared(column: pa.ChunkedArray, how: Comparison) -> pa.ChunkedArray:
    if "padded" in how and pa.types.is_string(column.type):
        column = pc.utf8_rtrim(column, " ")
    return pc.ascii_lower(column) if "folded" in how and pa.types.is_string(column.type) else column


def _none(kinds: Sequence[pa.DataType]) -> pa.Table:
    arrays = {f"{side}{at}": pa.nulls(0, kind) for side in "on" for at, kind in enumerate(kinds)}
    return pa.table({**arrays, "gone": pa.nulls(0, pa.bool_()), "p": pa.nulls(0, pa.int64())})


def _is_simple(kind: pa.DataType) -> bool:
    """Whether Spark and Python agree on the equality of values of this type."""
    types = pa.types
    return bool(
        types.is_integer(kind) or types.is_string(kind) or types.is_binary(kind) or types.is_decimal(kind)
    )


def is_plain(value: object) -> bool:
    """Whether the value is no text, or printable ASCII."""
    return not isinstance(value, str) or all(" " <= letter <= "~" for letter in value)
