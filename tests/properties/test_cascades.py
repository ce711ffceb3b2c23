"""What foreign keys did, worked out with Spark from a log that does not hold it, against a model of the
server that did it."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.model.schema import CascadingKey, TableId
from penstock.testing.cascade_model import Key, ModelServer, Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.consequences import Edge
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


CASES = [
    *[
        pytest.param(keys(rules), id=rules, marks=() if rules == "mixed" else pytest.mark.slow)
        for rules in RULES
    ],
    *[pytest.param(moved(rules), id=f"keys move, {rules}", marks=pytest.mark.slow) for rules in RULES],
]


@pytest.mark.parametrize("rules", CASES)
def test_consequences_and_log_together_make_the_rows_of_the_server(
    spark: SparkSession, tmp_path: Path, rules: tuple[Key, ...]
) -> None:
    from penstock.spark.scratch import Scratch

    scratch = Scratch(spark, tmp_path / "work")
    servers = [ModelServer(WIDTHS, rules, random.Random(f"{rules} {n}")) for n in range(WORLDS)]
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
    known: dict[str, DataFrame] = {}
    for table in WIDTHS:
        events = worked_out(spark, scratch, servers, rules, table, before[table], known)
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


def frame(spark: SparkSession, names: list[str], rows: list[tuple[object, ...]]) -> DataFrame:
    kinds = {"gone": "boolean", "_chunk": "boolean", "kind": "string"}
    return spark.createDataFrame(rows, ", ".join(f"`{name}` {kinds.get(name, 'long')}" for name in names))


def worked_out(
    spark: SparkSession,
    scratch: Scratch,
    servers: list[ModelServer],
    rules: tuple[Key, ...],
    table: str,
    before: Rows,
    known: dict[str, DataFrame],
) -> Rows:
    """`(world, row, sequence)`, a negative sequence for a row that is gone. `known`: what foreign keys did to
    tables before this one."""
    from penstock.spark.consequences import Child, follow, outcome

    edges = tuple(edge_of(spark, servers, key, known) for key in rules if key.child == table)
    if not edges:
        return []
    width = WIDTHS[table]
    columns = tuple(range(width))
    images = [(n, i) for n, server in enumerate(servers) for i in server.log if i.table == table]
    versions: list[tuple[object, ...]] = [(*row, sequence, False) for _, row, sequence in before]
    versions += [
        (*own(n, i.row), i.sequence, False) for n, i in images if i.kind in ("insert", "update_postimage")
    ]
    logged = [(own(n, i.row)[0], i.sequence) for n, i in images]
    child = Child(
        key=(0,),
        columns=columns,
        watched=(0,),
        versions=frame(spark, [*[f"c{n}" for n in columns], "_from", "_chunk"], versions),
        logged=frame(spark, ["c0", "_sequence"], logged) if logged else None,
        edges=edges,
        moves=any(key.column == 0 for key in rules if key.child == table),
    )
    hits, derived = follow(child, scratch)
    if hits is None or derived is None:
        return []
    known[table] = derived
    return [
        (row[0] // 1000, tuple(row[:width]), -row["_sequence"] if row["_deleted"] else row["_sequence"])
        for row in outcome(child, hits).collect()
    ]


def edge_of(spark: SparkSession, servers: list[ModelServer], key: Key, known: dict[str, DataFrame]) -> Edge:
    from penstock.spark.consequences import Edge

    changes: list[tuple[object, ...]] = []
    for n, server in enumerate(servers):
        old = None
        for image in server.log:
            if image.table != key.parent or not image.checked:
                continue
            value = own(n, image.row)[0]
            if image.kind == "delete":
                changes.append((value, None, True, image.sequence))
            elif image.kind == "update_preimage":
                old = value
            elif image.kind == "update_postimage" and old != value:
                changes.append((old, value, False, image.sequence))
    made = frame(spark, ["o0", "n0", "gone", "p"], changes)
    if key.parent in known:
        made = made.unionByName(known[key.parent].select(*made.columns))
    name, parent = f"{key.child}.{key.column}", TableId("d", key.parent)
    cascading = CascadingKey(name, (f"c{key.column}",), parent, ("c0",), key.on_delete, key.on_update)
    return Edge(cascading, (key.column,), (0,), ("exact",), made)
