"""What foreign keys did, worked out here and with Spark from a log that does not hold it, against a model of
the server that did it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.models.cascade_model import Key, ModelServer, Row

from penstock.cascades import in_memory
from penstock.cascades.replay import OwnEdge, replay
from penstock.model.schema import CascadingKey, TableId

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.scratch import Scratch

WORLDS = 25
"""Independent servers whose rows lie in the same tables; `own` makes their values differ."""

WIDTHS = {"p": 1, "m": 2, "g": 3, "s": 3}
RULES = {
    "delete": ("CASCADE", "CASCADE"),
    "null": ("SET NULL", "SET NULL"),
    "mixed": ("SET NULL", "CASCADE"),
    "restricted update": ("CASCADE", "RESTRICT"),
}
Rows = list[tuple[int, Row, int]]


def own(world: int, row: Row) -> Row:
    return tuple(None if value is None else 1000 * world + value for value in row)


def keys(rules: str) -> tuple[Key, ...]:
    """p ← m ← g, p ← g, p ← s; what g does about p is the other way round."""
    on_delete, on_update = RULES[rules]
    return (
        Key("m", 1, "p", on_delete, on_update),
        Key("g", 1, "m", on_delete, on_update),
        Key("g", 2, "p", "SET NULL" if on_delete == "CASCADE" else "CASCADE", "CASCADE"),
        Key("s", 2, "p", on_delete, on_update),
    )


def moved(rules: str) -> tuple[Key, ...]:
    """The foreign key of m is its key: a row of p and its row of m go together."""
    on_delete, on_update = RULES[rules]
    return (Key("m", 0, "p", "CASCADE", "CASCADE"), Key("g", 1, "m", on_delete, on_update))


def trees(rules: str) -> tuple[Key, ...]:
    """g refers to itself and to m, s to g. A server refuses updates that reach the table they came from."""
    on_delete, on_update = RULES[rules]
    return (
        Key("m", 1, "p", "CASCADE", "CASCADE"),
        Key("g", 1, "g", on_delete, "RESTRICT"),
        Key("g", 2, "m", "CASCADE", "CASCADE"),
        Key("s", 1, "g", on_delete, on_update),
        Key("s", 2, "p", "SET NULL", "CASCADE"),
    )


def two_trees(rules: str) -> tuple[Key, ...]:
    """g refers to itself twice, s to g by its key."""
    on_delete = RULES[rules][0]
    return (
        Key("g", 1, "g", on_delete, "RESTRICT"),
        Key("g", 2, "g", "SET NULL" if on_delete == "CASCADE" else "CASCADE", "RESTRICT"),
        Key("s", 0, "g", "CASCADE", "CASCADE"),
    )


FEW = [pytest.param(keys(rules), id=rules) for rules in RULES]
FEW += [pytest.param(moved(rules), id=f"keys move, {rules}") for rules in RULES]
TREES = [pytest.param(trees(rules), id=f"tree, {rules}") for rules in RULES]
TREES += [pytest.param(two_trees(rules), id=f"two trees, {rules}") for rules in RULES]
MANY = [pytest.param(keys("mixed")[:1], id="one key")]
MANY += [pytest.param(*one.values, id=one.id, marks=pytest.mark.slow) for one in FEW]
WorkOut = Callable[["World", str], Rows]
"""`(world, row, sequence)`, a negative sequence for a row that is gone."""


@pytest.mark.parametrize("rules", [*FEW, *TREES])
def test_consequences_and_log_together_make_the_rows_of_the_server(rules: tuple[Key, ...]) -> None:
    for seed in range(20):
        known: dict[str, pa.Table] = {}
        check(rules, seed, partial(few, known=known))


@pytest.mark.parametrize("rules", MANY)
def test_consequences_of_any_size_make_the_rows_of_the_server(
    spark: SparkSession, tmp_path: Path, rules: tuple[Key, ...]
) -> None:
    from penstock.spark.scratch import Scratch
    from penstock.store.folder import StoreFolder
    from penstock.store.opening import open_store

    scratch = Scratch(spark, StoreFolder(open_store(tmp_path.as_uri()), "work"))
    known: dict[str, DataFrame] = {}
    check(rules, 0, lambda world, table: many(spark, scratch, world, table, known))


def check(rules: tuple[Key, ...], seed: int, work_out: WorkOut) -> None:
    servers = [ModelServer(WIDTHS, rules, random.Random(f"{rules} {n} {seed}")) for n in range(WORLDS)]
    for server in servers:
        server.run(15)
    before = {
        table: [(n, own(n, row), 1) for n, one in enumerate(servers) for row in one.tables[table].values()]
        for table in WIDTHS
    }
    for server in servers:
        server.log.clear()
        server.run(12)
    found = {table: {(n, row[0]): row for n, row, _ in before[table]} for table in WIDTHS}
    world = World(servers, rules, before)
    for table in WIDTHS:
        events = work_out(world, table)
        for n, row, deleted in in_order(servers, table, events):
            found[table].pop((n, row[0]), None)
            if not deleted:
                found[table][n, row[0]] = row
    for n, server in enumerate(servers):
        for table, rows in server.tables.items():
            mine = {row for (world, _), row in found[table].items() if world == n}
            assert mine == {own(n, row) for row in rows.values()}, (n, table, server.log)


def in_order(servers: list[ModelServer], table: str, events: Rows) -> Iterable[tuple[int, Row, bool]]:
    """The last thing that the log and the consequences say of each key, as a merge takes it."""
    last: dict[tuple[int, int | None], tuple[int, Row, bool]] = {}
    for n, server in enumerate(servers):
        for image in server.log:
            if image.table == table:
                deleted = image.kind in ("delete", "update_preimage")
                row = own(n, image.row)
                last[n, row[0]] = (image.sequence, row, deleted)
    for n, row, sequence in events:
        assert last.get((n, row[0]), (0,))[0] < abs(sequence), "superseded by the log"
        last[n, row[0]] = (abs(sequence), row, sequence < 0)
    return [(n, row, deleted) for (n, _), (_, row, deleted) in last.items()]


@dataclass(frozen=True)
class World:
    servers: list[ModelServer]
    rules: tuple[Key, ...]
    before: dict[str, Rows]

    def keys(self, table: str) -> list[Key]:
        return [key for key in self.rules if key.child == table]

    def images(self, table: str) -> list[tuple[Row, int, str]]:
        return [
            (own(n, image.row), image.sequence, image.kind)
            for n, server in enumerate(self.servers)
            for image in server.log
            if image.table == table
        ]

    def versions(self, table: str) -> list[tuple[Row, int]]:
        logged = [(row, at) for row, at, kind in self.images(table) if kind in ("insert", "update_postimage")]
        return [(row, sequence) for _, row, sequence in self.before[table]] + logged

    def changes(self, parent: str) -> list[tuple[object, ...]]:
        """`o0, n0, gone, p` of what the log has."""
        found: list[tuple[object, ...]] = []
        for n, server in enumerate(self.servers):
            old = None
            for image in server.log:
                if image.table != parent or not image.checked:
                    continue
                value = own(n, image.row)[0]
                if image.kind == "delete":
                    found.append((value, None, True, image.sequence))
                elif image.kind == "update_preimage":
                    old = value
                elif image.kind == "update_postimage" and old != value:
                    found.append((old, value, False, image.sequence))
        return found


def cascading(key: Key) -> CascadingKey:
    name, parent = f"{key.child}.{key.column}", TableId("d", key.parent)
    return CascadingKey(name, (f"c{key.column}",), parent, ("c0",), key.on_delete, key.on_update)


def few(world: World, table: str, *, known: dict[str, pa.Table]) -> Rows:
    """`known`: what foreign keys did to tables before this one."""
    edges = []
    for key in world.keys(table):
        rows = list(zip(*world.changes(key.parent), strict=True)) or [()] * 4
        kinds = (pa.int64(), pa.int64(), pa.bool_(), pa.int64())
        columns = [pa.array(values, kind) for values, kind in zip(rows, kinds, strict=True)]
        made = pa.table(columns, ["o0", "n0", "gone", "p"])
        if key.parent in known:
            made = pa.concat_tables([made, known[key.parent]])
        edges.append(in_memory.edge_of(cascading(key), (key.column,), ("exact",), made, (0,)))
    if not edges:
        return []
    images = in_memory.Images((0,))
    logged = world.images(table)
    images.add([row for row, _, _ in logged], [sequence for _, sequence, _ in logged])
    versions = (in_memory.Version(*one) for one in world.versions(table))
    own = [OwnEdge(number, (0,)) for number, edge in enumerate(edges) if edge.key.parent.table == table]
    hits = replay(edges, own, versions, images)
    changes = [(old, new, gone, p) for (old,), (new,), gone, p in in_memory.derived(hits, (0,))]
    if changes:
        known[table] = pa.table([pa.array(c) for c in zip(*changes, strict=True)], ["o0", "n0", "gone", "p"])
        known[table] = known[table].set_column(1, "n0", known[table]["n0"].cast(pa.int64()))
    return [
        (row[0] // 1000, row, -sequence if gone else sequence)
        for row, gone, sequence in in_memory.outcome(hits, images)
    ]


def many(
    spark: SparkSession, scratch: Scratch, world: World, table: str, known: dict[str, DataFrame]
) -> Rows:
    """`known`: what foreign keys did to tables before this one."""
    from penstock.spark.consequences import Child, Edge, follow, outcome

    edges = []
    for key in world.keys(table):
        made = frame(spark, ["o0", "n0", "gone", "p"], world.changes(key.parent))
        if key.parent in known:
            made = made.unionByName(known[key.parent].select(*made.columns))
        edges.append(Edge(cascading(key), (key.column,), (0,), ("exact",), made))
    if not edges:
        return []
    width = WIDTHS[table]
    columns = tuple(range(width))
    versions = [(*row, sequence, False) for row, sequence in world.versions(table)]
    logged = [(row[0], sequence) for row, sequence, _ in world.images(table)]
    child = Child(
        key=(0,),
        columns=columns,
        watched=(0,),
        versions=frame(spark, [*[f"c{n}" for n in columns], "_from", "_chunk"], versions),
        logged=frame(spark, ["c0", "_sequence"], logged) if logged else None,
        edges=tuple(edges),
        moves=any(key.column == 0 for key in world.keys(table)),
    )
    hits, derived = follow(child, scratch)
    if hits is None or derived is None:
        return []
    known[table] = derived
    return [
        (
            row[0] // 1000,
            tuple(row[:width]),
            -row["_sequence"] if row["_penstock_deleted"] else row["_sequence"],
        )
        for row in outcome(child, hits).collect()
    ]


def frame(spark: SparkSession, names: list[str], rows: Sequence[tuple[object, ...]]) -> DataFrame:
    kinds = {"gone": "boolean", "_chunk": "boolean", "kind": "string"}
    return spark.createDataFrame(rows, ", ".join(f"`{name}` {kinds.get(name, 'long')}" for name in names))
