"""Computes in the driver what foreign keys did to a table that refers to itself (`cascades/replay.py`).

The rows concerned are found level by level: rows that refer to a deleted row, rows that refer to those, and
so on. Each level is one Spark job over the target. A server follows a cascade over at most 15 levels, and
most epochs have one or two. Some rows are fetched in vain, because the row they refer to turns out not to
be hit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from penstock.cascades import reread_reasons
from penstock.cascades.comparison import Comparison
from penstock.cascades.in_memory import Edge, Hit, Images, Row, Version, arrow
from penstock.cascades.replay import OwnEdge, replay
from penstock.model.change import CHANGE_TYPE, SEQUENCE
from penstock.model.offset import Offset
from penstock.spark.row_versions import Result
from penstock.spark.small_cascades import LOGGED_BYTES_MAX, STANDS, SmallCascades, TooMany, is_plain


class SelfReferencing(SmallCascades):
    """Computes one such table. Raises `TooMany`. Then nothing can be computed, because Spark has no rule
    for such tables."""

    @property
    def logged_bytes_max(self) -> int:
        """Limit of the table's log in the epoch. There is none if only columns of the key and the foreign
        keys are in memory. If rows can get other keys, all columns are."""
        return LOGGED_BYTES_MAX if self.moves else 1 << 62

    def _matters(self, edge: Edge) -> bool:
        return bool(edge.effects) or edge.key.parent == self.schema.table

    @property
    def _own(self) -> list[OwnEdge]:
        return [
            OwnEdge(number, tuple(self._row_of[self.places[name]] for name in edge.key.referenced))
            for number, edge in enumerate(self.edges)
            if edge.key.parent == self.schema.table
        ]

    def work_out(
        self, target: DataFrame | None, after: Offset, chunks: Sequence[tuple[DataFrame, Offset]]
    ) -> Result | None:
        """See `LargeCascades.work_out`."""
        assert not chunks, "such a table is read in one piece, whose place in the log is known"
        logged = self._whole_log()
        versions = self._reachable(logged, None if target is None else self.of_target(target, after))
        self._check_rows(versions)
        images = Images(tuple(self._row_of[self.places[name]] for name in self.schema.key))
        self._learn(images, logged, versions)
        hits = replay(self.edges, self._own, versions, images)
        self._check_followed(hits)
        return self._result(hits, images)

    def _whole_log(self) -> pa.Table:
        """All row images of the epoch, with the needed columns."""
        columns = [pa.field(f"c{place}", self._fields.field(place).type) for place in self.columns]
        own = [pa.field(CHANGE_TYPE, pa.string()), pa.field(SEQUENCE, pa.int64())]
        schema = pa.schema([*columns, *own])
        names = [*(self.schema.columns[place].name for place in self.columns), CHANGE_TYPE, SEQUENCE]
        batches = [pa.RecordBatch.from_arrays([batch.column(name) for name in names], schema=schema)
                   for batch in self._images()]  # fmt: skip
        return pa.Table.from_batches(batches, schema)

    # versions that may be hit -------------------------------------------------------------------------------

    def _reachable(self, logged: pa.Table, target: DataFrame | None) -> list[Version]:
        """Versions that a change may hit, on any level."""
        standing = logged.filter(pc.is_in(logged[CHANGE_TYPE], pa.array(STANDS)))
        found: dict[tuple[Row, int], Version] = {}
        asked: list[set[Row]] = [set() for _ in self.edges]
        waiting = [set(edge.effects) for edge in self.edges]
        while any(waiting):
            level = [*self._logged_with(standing, waiting)]
            level += self._fetched(target, waiting) if target is not None else ()
            new = [one for one in level if (one.row, one.since) not in found]
            found |= {(one.row, one.since): one for one in new}
            if len(found) > self.rows_max:
                raise TooMany
            for known, values in zip(asked, waiting, strict=True):
                known |= values
            waiting = [set() for _ in self.edges]
            for each in self._own:
                waiting[each.number] = self._values(each, new) - asked[each.number]
        return list(found.values())

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

    def _learn(self, images: Images, logged: pa.Table, versions: list[Version]) -> None:
        """Adds the log's images of the versions' keys to `images`; of all keys, if rows can get
        other keys."""
        if not self.moves:
            first = images.key[0]
            logged_keys = arrow([one.row[first] for one in versions], logged.column(first).type)
            logged = logged.filter(pc.is_in(logged.column(first), logged_keys))
        images.add(self._rows(logged), logged[SEQUENCE].to_pylist())

    # refusals -----------------------------------------------------------------------------------------------

    def _check_followed(self, hits: list[Hit]) -> None:
        """Raises `TableError` if only the server knows whether values of the hit rows equal others."""
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


def _compared(column: pa.ChunkedArray, how: Comparison) -> pa.ChunkedArray:
    if "padded" in how and pa.types.is_string(column.type):
        column = pc.utf8_rtrim(column, " ")
    return pc.ascii_lower(column) if "folded" in how and pa.types.is_string(column.type) else column
