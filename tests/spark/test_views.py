"""Views that are kept right by keys, or computed whole. The judge is Spark, which runs the same query over
the rows that the test remembers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import udtf
from tests.sinks.conftest import Place, iceberg_first
from tests.sinks.conftest import place as place  # a fixture

from penstock.errors import ConfigError
from penstock.model.offset import Offset
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.table import Parked, Reading, Streaming, TableState
from penstock.model.views import ViewRule, view_table
from penstock.sinks.base import Commit
from penstock.spark.dimensions import Dimensions
from penstock.spark.view_plans import ByKeys, Whole, way_of
from penstock.spark.views import Views, tables_in
from penstock.state import StateStore

pytestmark = pytest.mark.timeout(1800)  # all queries after random changes, on a busy machine

Make = Callable[..., Place]
ORDERS, CUSTOMERS = TableId("shop", "orders"), TableId("shop", "customers")
FIELDS = {
    ORDERS: pa.schema([("id", pa.int64()), ("customer", pa.int64()), ("amount", pa.int64())]),
    CUSTOMERS: pa.schema([("id", pa.int64()), ("name", pa.string()), ("tags", pa.string())]),
}
JOIN = (
    "SELECT o.id, c.id AS who, c.name, o.amount FROM shop.orders o JOIN shop.customers c ON o.customer = c.id"
)
QUERIES = {
    "by_keys": {
        "joined": JOIN + " WHERE o.amount > 3",
        "outer": JOIN.replace("JOIN", "LEFT JOIN"),
        "full": JOIN.replace("JOIN", "FULL OUTER JOIN"),
        "without": "SELECT c.id, c.name, o.id AS none FROM shop.customers c LEFT JOIN shop.orders o "
        "ON o.customer = c.id WHERE o.id IS NULL",
        "sums": "SELECT c.name, count(*) n, sum(o.amount) s, min(o.amount) low, max(o.amount) high, "
        "count(DISTINCT o.amount) different FROM shop.orders o JOIN `shop`.`customers` c "
        "ON o.customer = c.id GROUP BY c.name HAVING count(*) > 1",
        "computed": "SELECT upper(c.name) AS loud, o.amount % 3 AS rest, sum(o.amount) AS s "
        "FROM shop.orders o LEFT JOIN shop.customers c ON o.customer = c.id "
        "GROUP BY upper(c.name), o.amount % 3",
        "of_one": "SELECT customer, avg(amount) AS mean FROM shop.orders GROUP BY customer",
        "items": "SELECT item, count(*) AS n, count(DISTINCT name) AS names FROM shop.customers LATERAL VIEW "
        "explode(from_json(concat('[\"', replace(tags, ',', '\",\"'), '\"]'), 'array<string>')) AS item "
        "GROUP BY item",
        "words": "SELECT word, count(*) AS n FROM shop.customers LATERAL VIEW explode(split(tags, ',')) "
        "AS word GROUP BY word",
    },
    "whole": {
        "total": "SELECT count(*) AS n, sum(amount) AS s FROM shop.orders",
        "without_key": "SELECT c.name, o.amount FROM shop.orders o JOIN shop.customers c "
        "ON o.customer = c.id",
        "ranked": "SELECT id, rank() OVER (PARTITION BY customer ORDER BY amount, id) AS r FROM shop.orders",
        "absent": "SELECT id, name FROM shop.customers WHERE id NOT IN (SELECT customer FROM shop.orders "
        "WHERE customer IS NOT NULL)",
        "twice": "SELECT a.id, b.id AS other FROM shop.orders a JOIN shop.orders b ON a.amount = b.customer",
        "above": "SELECT n, count(*) AS customers FROM (SELECT customer, count(*) AS n FROM shop.orders "
        "GROUP BY customer) GROUP BY n",
        "lateral": "SELECT c.id, t.word FROM shop.customers c, "
        "LATERAL explode(split(c.tags, ',')) AS t(word)",
        "pieces": "SELECT c.id, p.piece FROM shop.customers c, LATERAL pieces(c.tags) AS p",
        "each": "SELECT id, word FROM shop.customers LATERAL VIEW explode(split(tags, ',')) AS word",
    },
}
ALL = {
    name: ViewRule(sql=sql, functions={"pieces": f"{__name__}:Pieces"} if "pieces(" in sql else {})
    for group in QUERIES.values()
    for name, sql in group.items()
}


JOINS_OF_THREE = {
    "SELECT o.id AS one FROM orders o LEFT JOIN customers c ON o.customer = c.id "
    "LEFT JOIN third t ON t.id = c.id": True,
    "SELECT o.id AS one FROM orders o "
    "LEFT JOIN (customers c JOIN third t ON t.id = c.id) ON o.id = c.id": True,
    "SELECT o.id AS one FROM orders o LEFT ANTI JOIN customers c ON o.customer = c.id": True,
    # With fewer rows in `third`, these have fewer orders, and a key that is concerned would not be found.
    "SELECT o.id AS one FROM orders o LEFT ANTI JOIN "
    "(SELECT c.id FROM customers c LEFT ANTI JOIN third t ON t.id = c.id) s ON o.customer = s.id": False,
    "SELECT o.id AS one FROM third t LEFT JOIN customers c ON t.id = c.id "
    "RIGHT JOIN orders o ON o.id = t.id AND c.id IS NULL": False,
}
"""Whether a query of three tables is kept right by keys."""


class _Pieces:
    def eval(self, tags: str) -> Iterator[tuple[str]]:
        for piece in (tags or "").split(","):
            yield (piece * 2,)


Pieces: Any = udtf(_Pieces, returnType="piece STRING")
Pieces.asDeterministic()


@dataclass
class Lake:
    """Two tables with what is in them, and views over them."""

    it: Place
    folder: Path
    rows: dict[TableId, dict[int, tuple[Any, ...]]] = field(
        default_factory=lambda: {ORDERS: {}, CUSTOMERS: {}}
    )
    epoch: int = 0

    def __post_init__(self) -> None:
        self.state = StateStore(self.folder)
        self.sink = self.it.sink
        dimensions = Dimensions(self.it.spark, self.state, {}, self.folder / "dimensions")
        self.views = Views(self.it.spark, self.sink, self.sink, self.state, ALL, dimensions)
        self.it.pipeline = self.sink._pipeline = self.state.uuid
        for table in self.rows:
            self.sink.create(self.schema(table), FIELDS[table])

    def schema(self, table: TableId) -> TableSchema:
        return TableSchema(table, tuple(Column(name, "text") for name in FIELDS[table].names), ("id",))

    def put(self, phase: Any = None) -> None:
        for table in self.rows:
            phase = phase or Streaming(snapshot_done=True)
            self.state.put_table(
                TableState(self.schema(table), Offset(4), phase, written=True, last_epoch=self.epoch)
            )

    def write(self, table: TableId, changes: dict[int, tuple[Any, ...] | None]) -> None:
        """Each change has a key, and the row after it (None: deleted)."""
        self.it.arrow, width = FIELDS[table], len(FIELDS[table])
        made = [
            (key, *(row[1:] if row else [None] * (width - 1)), row is None, self.epoch)
            for key, row in changes.items()
        ]
        self.sink.merge(table, self.it.latest(*made), ("id",), Commit(self.state.uuid, self.epoch))
        for key, row in changes.items():
            if row is None:
                self.rows[table].pop(key, None)
            else:
                self.rows[table][key] = row

    def changed_at_random(self, chance: random.Random) -> None:
        self.epoch += 1
        for table in self.rows:
            changes: dict[int, tuple[Any, ...] | None] = {}
            for _ in range(chance.randrange(0, 6)):
                key = chance.randrange(1, 12)
                other = chance.choice([None, *range(1, 9)])
                new: tuple[Any, ...] = (key, other, chance.randrange(8))
                if table == CUSTOMERS:
                    new = (key, chance.choice(["a", "b", "c", None]), chance.choice(["x", "x,y", "y,z,x"]))
                changes[key] = None if chance.random() < 0.3 else new
            if changes:
                self.write(table, changes)
        self.put()

    def expected(self, name: str) -> list[tuple[Any, ...]]:
        spark = self.it.spark
        for table, rows in self.rows.items():
            batch = pa.Table.from_pylist(
                [dict(zip(FIELDS[table].names, row, strict=True)) for row in rows.values()], FIELDS[table]
            )
            spark.createDataFrame(batch).createOrReplaceTempView(f"model_{table.table}")
        sql = ALL[name].sql.replace("`shop`.`customers`", "shop.customers").replace("shop.", "model_")
        return sorted((tuple(row) for row in spark.sql(sql).collect()), key=str)

    def found(self, name: str) -> list[tuple[Any, ...]]:
        frame = self.sink.read(view_table(name)).drop("_sequence")
        return sorted((tuple(row) for row in frame.collect()), key=str)

    def check(self, *names: str) -> None:
        for name in names or ALL:
            assert self.found(name) == self.expected(name), (name, self.state.meta(f"view.{name}.error"))


@pytest.fixture
def lake(place: Make, tmp_path: Path) -> Callable[..., Lake]:
    return lambda kind="iceberg": Lake(place(kind), tmp_path)


UNFOLDING = ["items", "lateral", "pieces"]
"""Queries that make several rows of one: JSON arrays, `LATERAL`, table functions in Python."""
SOME = ["joined", "outer", "sums", "words", "total"]


@iceberg_first
@pytest.mark.parametrize(
    "names",
    [SOME, *(pytest.param(names, marks=pytest.mark.slow) for names in (UNFOLDING, [*ALL]))],
    ids=["some", "unfolding", "all"],
)
def test_views_equal_their_queries_after_any_changes(
    lake: Callable[..., Lake], kind: str, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    it, chance = lake(kind), random.Random(7)
    monkeypatch.setattr(it.views, "_rules", {name: ALL[name] for name in names})
    for number in range(3 if names is SOME else 8):
        it.changed_at_random(chance)
        it.views.refresh()
        if number > 1:  # each costs a query for each view
            it.check(*names)


def test_a_refresh_that_was_killed_is_repeated_to_the_same_result(
    lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    it, chance = lake(), random.Random(1)
    names = ["joined", "sums", "total"]
    monkeypatch.setattr(it.views, "_rules", {name: ALL[name] for name in names})
    for step in range(3):
        it.changed_at_random(chance)
        before = {name: it.state.meta(f"view.{name}") for name in names}
        it.views.refresh()
        it.check(*names)
        if step == 1:  # killed between the commits and the state
            for name, known in before.items():
                it.state.set_meta(f"view.{name}", known or "")
            it.views.refresh()
            it.check(*names)


def test_a_view_waits_for_its_tables_and_is_made_again_with_another_query(
    lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    it = lake()
    monkeypatch.setattr(it.views, "_rules", {"sums": ALL["sums"]})
    it.epoch = 1
    it.write(CUSTOMERS, {1: (1, "a", "x")})
    it.write(ORDERS, {1: (1, 1, 5), 2: (2, 1, 6)})
    it.put(Reading(splitting=False))
    it.views.refresh()
    assert it.state.meta("view.sums") is None and not it.views.is_behind
    it.put()
    assert it.views.is_behind and it.views.is_due, "without an epoch"
    it.views.refresh()
    assert not it.views.is_behind
    it.check("sums")
    other = ViewRule(sql="SELECT customer, sum(amount) AS total FROM shop.orders GROUP BY customer")
    monkeypatch.setattr(it.views, "_rules", {"sums": other})
    it.views.refresh()
    assert it.found("sums") == [(1, 11)]

    it.put(Parked(Offset(4), "it has no key"))
    it.views.refresh()
    assert "shop.orders: it is parked" in (it.state.meta("view.sums.error") or "") and it.found("sums") == [
        (1, 11)
    ]


@iceberg_first
def test_rows_that_share_a_key_are_all_there(
    lake: Callable[..., Lake], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = lake(kind)
    sql = "SELECT id, word FROM shop.customers LATERAL VIEW explode(split(tags, ',')) AS word"
    monkeypatch.setitem(ALL, "each", ViewRule(sql=sql, key=("id", "word")))
    monkeypatch.setattr(it.views, "_rules", {"each": ALL["each"]})
    for tags in ("x,y", "x,x,y", "x,y,y", "y"):  # unique, not unique, again, unique
        it.epoch += 1
        it.write(CUSTOMERS, {1: (1, "a", tags), 2: (2, "b", "z")})
        it.put()
        it.views.refresh()
        it.check("each")


@iceberg_first
def test_a_view_follows_a_table_that_is_created_again(
    lake: Callable[..., Lake], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = lake(kind)
    monkeypatch.setattr(it.views, "_rules", {"of_one": ALL["of_one"]})
    for amount in (5, 6):  # the second target has as many versions as the first one
        it.epoch += 1
        it.write(ORDERS, {1: (1, 1, amount), amount: (amount, 2, amount)})
        it.put()
        it.views.refresh()
        it.check("of_one")
        it.sink.clear(ORDERS)
        it.sink.create(it.schema(ORDERS), FIELDS[ORDERS])
        it.rows[ORDERS].clear()


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("DROP TABLE shop.orders", "no query"),
        ("INSERT INTO shop.orders SELECT 1, 2, 3", "no query"),
        ("SELECT id, INTERVAL 1 DAY AS span FROM shop.orders", "`span` interval day"),
        ("SELECT id, current_timestamp() AS at FROM shop.orders", "time"),
        ("SELECT id, rand() AS r FROM shop.orders", "chance"),
        ("SELECT nothing FROM shop.orders", "Spark refuses"),
        ("SELECT 1 AS one", "names no captured table"),
    ],
)
def test_a_query_that_cannot_be_kept_right_is_refused_with_the_reason(
    lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch, sql: str, why: str
) -> None:
    it = lake()
    it.epoch = 1
    it.write(ORDERS, {1: (1, 1, 5)})
    it.put()
    monkeypatch.setattr(it.views, "_rules", {"bad": ViewRule(sql=sql)})
    it.views.refresh()
    assert why in (it.state.meta("view.bad.error") or "")


def test_ways_are_found_in_the_query(spark: SparkSession) -> None:
    for table, fields in FIELDS.items():
        spark.createDataFrame(pa.Table.from_pylist([], fields)).createOrReplaceTempView(table.table)
    spark.udtf.register("pieces", Pieces)
    keys = {table.table: ("id",) for table in FIELDS}
    for group, queries in QUERIES.items():
        for name, sql in queries.items():
            bare, tables = tables_in(sql, FIELDS)
            assert tables
            way = way_of(spark.sql(bare), keys, ())
            assert isinstance(way, ByKeys if group == "by_keys" else Whole), (name, way)
    bare, _ = tables_in(JOIN.replace(", c.id AS who", ""), FIELDS)
    assert isinstance(way_of(spark.sql(bare), keys, ()), Whole)
    assert way_of(spark.sql(bare), keys, ("ID",)) == ByKeys(("id",), ("id",), unique=False)
    spark.range(1).createOrReplaceTempView("third")
    for sql, kept_by_keys in JOINS_OF_THREE.items():
        way = way_of(spark.sql(sql), {**keys, "third": ("id",)}, ("one",))
        assert isinstance(way, ByKeys if kept_by_keys else Whole), (sql, way)
    with pytest.raises(ConfigError, match="no column `other`"):
        way_of(spark.sql(bare), keys, ("other",))


def test_names_are_found_outside_of_texts_and_comments() -> None:
    sql = (
        "SELECT 'shop.orders', `Shop`.Orders.id -- shop.customers\n FROM shop . `orders` /* shop.customers */"
    )
    bare, tables = tables_in(sql, FIELDS)
    assert tables == [ORDERS]
    assert bare.count("`orders`") == 2 and "'shop.orders'" in bare
