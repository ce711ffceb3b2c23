"""Computes what foreign keys did to the rows of one table, from the changes of its parents.

A *version* is a row (columns `c0…`, numbered by their place in the table) and the span of sequences in
which the row had these values: from `_from`, when it got them, to `_to`, the next event of its key in the
log. Versions come from the target, from row images in the log, and from chunks that are being placed
(`_chunk`: their rows had these values at the chunk's window, and their keys have no events after it). A
*change* is something that happened to a row of a parent (`cascades/parent_changes.py`); its sequence is
`p`.

**The rule.** A change hits a version if it happened while the version existed (`_from < p < _to`) and the
columns of the foreign key equal the parent's old values. The earliest such change hits. The version then ends
at p. Unless the row is deleted, another version starts at p, with other values, which later changes may hit
in turn. That is all for one table. What happens to its rows is a change for the tables that refer to it, with
the same p.

**Why it is right.** The server locks the parent's row and all rows it changes until the transaction is in the
log. So the order of the log is the order of all changes of one row, and inside a transaction it is the order
of execution. A cascade happens inside the change of the row that started it. So all of its effects, on every
level, happen at the place of that row's image, and nothing else in the log is between them. By induction on
p: if all versions and changes before p are right, so are the hits of p, level by level. (Tables that refer to
themselves are computed in `cascades/replay.py`, by the same rule.)

Two changes with the same p that hit one version come from one row over two foreign keys. Both are applied,
and a deletion wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.cascades.comparison import Comparison
from penstock.cascades.in_memory import LAST
from penstock.model.change import DELETED, SEQUENCE
from penstock.model.schema import CascadingKey
from penstock.spark.scratch import Scratch

ROUNDS_MAX = 10_000
"""Limit of all loops that run until nothing new is found. No log has chains of so many changes of one row."""


@dataclass(frozen=True)
class Edge:
    """A foreign key: the columns of the child and of the parent, how they are compared, and the parent's
    changes."""

    key: CascadingKey
    columns: tuple[int, ...]
    referenced: tuple[int, ...]
    comparisons: tuple[Comparison, ...]
    changes: DataFrame

    def effective(self) -> DataFrame:
        """The changes to which the key reacts: `q0…` (the old values, in the form in which they are
        compared), `_ends` (the child's row is deleted), `v0…` (the child's new values) and `p`."""
        gone = f.col("gone")
        differ = any_of([~f.col(f"o{n}").eqNullSafe(f.col(f"n{n}")) for n in self.referenced])
        deletes = f.lit(self.key.on_delete in ("CASCADE", "SET NULL"))
        updates = f.lit(self.key.on_update in ("CASCADE", "SET NULL"))
        applies = self.changes.where((gone & deletes) | (~gone & updates & differ))
        cascades = f.lit(self.key.on_update == "CASCADE")
        return applies.select(
            *[compared(f.col(f"o{n}"), how).alias(f"q{at}")
              for at, (n, how) in enumerate(zip(self.referenced, self.comparisons, strict=True))],
            *[f.when(~gone & cascades, f.col(f"n{n}")).alias(f"v{at}")
              for at, n in enumerate(self.referenced)],
            (gone & f.lit(self.key.on_delete == "CASCADE")).alias("_ends"),
            "p",
        ).dropna(subset=[f"q{at}" for at in range(len(self.columns))])  # fmt: skip

    def by_value(self) -> DataFrame:
        """One row for each old value, with all its changes in order."""
        count = len(self.columns)
        change = f.struct("p", "_ends", *[f"v{at}" for at in range(count)])
        return (
            self.effective()
            .groupBy(*[f"q{at}" for at in range(count)])
            .agg(f.sort_array(f.collect_list(change)).alias("_changes"))
        )


@dataclass(frozen=True)
class Child:
    """A table with cascading foreign keys. `versions`: `c…` of the columns `columns`, `_from`, `_chunk`.
    `logged`: `c…` of the key and `_sequence` of each row image of the table in the epoch; None: the log has
    none."""

    key: tuple[int, ...]
    columns: tuple[int, ...]
    watched: tuple[int, ...]
    versions: DataFrame
    logged: DataFrame | None
    edges: tuple[Edge, ...]
    moves: bool


def compared(column: Column, how: Comparison) -> Column:
    """The column in a form in which two values are equal if the server considers them equal. Values for
    which this is unsure were refused before."""
    if "padded" in how:
        column = f.rtrim(column)
    return f.lower(column) if "folded" in how else column


def any_of(conditions: Sequence[Column]) -> Column:
    return reduce(lambda one, other: one | other, conditions)


def follow(child: Child, scratch: Scratch) -> tuple[DataFrame | None, DataFrame | None]:
    """All hits (see `_hits`; None: there are none), and the resulting changes for other tables."""
    found = _settle(child, scratch)
    return found, None if found is None else scratch.keep(_derived(child, found))[0]


def _settle(child: Child, scratch: Scratch) -> DataFrame | None:
    """All hits that result from the changes of the parents."""
    lists = [edge.by_value() for edge in child.edges]
    standing = _bounded(child, child.versions)
    rounds: list[DataFrame] = []
    for _ in range(ROUNDS_MAX):
        hits, count = scratch.keep(_hits(child, lists, standing))
        if not count:
            break
        rounds.append(hits)
        standing, count = scratch.keep(_versions_after(child, hits))
        if not count:
            break
        standing = _bounded(child, standing.drop("_to")) if child.moves else standing
    return reduce(DataFrame.unionByName, rounds) if rounds else None


def _bounded(child: Child, versions: DataFrame) -> DataFrame:
    """The versions with `_to`: the next image of their key in the log."""
    if child.logged is None:
        return versions.withColumn("_to", f.lit(LAST))
    images = child.logged.groupBy(*[f.col(f"c{n}").alias(f"k{n}") for n in child.key]).agg(
        f.sort_array(f.collect_list(SEQUENCE)).alias("_images")
    )
    same = [f.col(f"c{n}").eqNullSafe(f.col(f"k{n}")) for n in child.key]
    later = f.expr("get(filter(_images, x -> x > _from), 0)")
    return (
        versions.join(images, same, "left")
        .withColumn("_to", f.coalesce(later, f.lit(LAST)))
        .drop("_images", *[f"k{n}" for n in child.key])
    )


def _hits(child: Child, lists: list[DataFrame], standing: DataFrame) -> DataFrame:
    """For each version that is hit: the version, `_p`, `_ends`, and `a…`, its columns from `_p` on."""
    frame = standing
    for number, (edge, changes) in enumerate(zip(child.edges, lists, strict=True)):
        same = [
            compared(f.col(f"c{place}"), how) == f.col(f"q{at}")
            for at, (place, how) in enumerate(zip(edge.columns, edge.comparisons, strict=True))
        ]
        first = f.expr("get(filter(_changes, x -> x.p > _from AND x.p < _to), 0)")
        frame = frame.join(changes, same, "left").withColumn(f"_hit{number}", first)
        frame = frame.drop("_changes", *[f"q{at}" for at in range(len(edge.columns))])
    hits = [f.col(f"_hit{number}") for number in range(len(lists))]
    first_p = f.least(*[hit["p"] for hit in hits]) if len(hits) > 1 else hits[0]["p"]
    frame = frame.withColumn("_p", first_p).where("_p IS NOT NULL")
    ends = any_of([f.coalesce((hit["p"] == f.col("_p")) & hit["_ends"], f.lit(False)) for hit in hits])
    after = {place: f.col(f"c{place}") for place in child.columns}
    for hit, edge in zip(hits, child.edges, strict=True):
        now = f.coalesce(hit["p"] == f.col("_p"), f.lit(False))
        for at, place in enumerate(edge.columns):
            after[place] = f.when(now, hit[f"v{at}"]).otherwise(after[place])
    return frame.select(
        *[f"c{place}" for place in child.columns],
        *[column.alias(f"a{place}") for place, column in after.items()],
        "_from", "_to", "_chunk", "_p", ends.alias("_ends"),
    )  # fmt: skip


def _versions_after(child: Child, hits: DataFrame) -> DataFrame:
    """The versions that start where other versions were hit."""
    return hits.where("NOT _ends").select(
        *[f.col(f"a{place}").alias(f"c{place}") for place in child.columns],
        f.col("_p").alias("_from"), "_to", "_chunk",
    )  # fmt: skip


def _derived(child: Child, hits: DataFrame) -> DataFrame:
    """The hits as changes of this table."""
    ends = f.col("_ends")
    places = child.watched
    differ = [~f.col(f"c{n}").eqNullSafe(f.col(f"a{n}")) for n in places]
    changed = hits.where(reduce(lambda one, other: one | other, differ, ends)) if places else hits.limit(0)
    return changed.select(
        *[f.col(f"c{n}").alias(f"o{n}") for n in places],
        *[f.when(~ends, f.col(f"a{n}")).alias(f"n{n}") for n in places],
        ends.alias("gone"),
        f.col("_p").alias("p"),
    ).distinct()


def outcome(child: Child, hits: DataFrame) -> DataFrame:
    """For each key, the last thing that a foreign key did to it, unless the log has a later event of the
    key: `c…`, `_penstock_deleted`, `_sequence`."""
    before = [f.col(f"c{n}").alias(f"c{n}") for n in child.columns]
    after = [f.col(f"a{n}").alias(f"c{n}") for n in child.columns]
    moved = any_of([~f.col(f"c{n}").eqNullSafe(f.col(f"a{n}")) for n in child.key])
    sequence = f.col("_p").alias(SEQUENCE)
    left = hits.where(f.col("_ends") | moved).select(*before, f.lit(True).alias(DELETED), sequence)
    stays = hits.where("NOT _ends").select(*after, f.lit(False).alias(DELETED), sequence)
    last = _last(child, left.unionByName(stays))
    if child.logged is None:
        return last
    images = child.logged.groupBy(*[f.col(f"c{n}").alias(f"k{n}") for n in child.key]).agg(
        f.max(SEQUENCE).alias("_newest")
    )
    same = [f.col(f"c{n}").eqNullSafe(f.col(f"k{n}")) for n in child.key]
    joined = last.join(images, same, "left")
    superseded = f.coalesce(f.col("_newest") > f.col(SEQUENCE), f.lit(False))
    return joined.where(~superseded).select(*last.columns)


def _last(child: Child, events: DataFrame) -> DataFrame:
    """The newest row of each key. If one row is deleted and another inserted at the same sequence, the
    inserted one."""
    names = [name for name in events.columns if name not in {f"c{n}" for n in child.key}]
    order = f.struct(SEQUENCE, (~f.col(DELETED)).alias("stays"))
    rest = f.struct(*names)
    keys = [f"c{n}" for n in child.key]
    newest = events.groupBy(*keys).agg(f.max_by(rest, order).alias("_row"))
    return newest.select(*keys, *[f.col("_row")[name].alias(name) for name in names]).select(*events.columns)
