"""Dimensions: tables that are not captured, in the queries of views."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.sinks.conftest import Place
from tests.sinks.conftest import place as place  # a fixture
from tests.spark.test_views import CUSTOMERS, ORDERS, Lake
from tests.spark.test_views import lake as lake  # a fixture

from penstock.config.dimensions import DimensionRule, JdbcQuery
from penstock.errors import ConfigError
from penstock.model.views import ViewRule
from penstock.spark.dimensions import Dimensions
from penstock.spark.views import Views

Make = Callable[..., Lake]
Rows = list[tuple[int, str, int | None]]
JOINED = "FROM shop.orders o LEFT JOIN dimensions.kinds k ON o.amount = k.amount"
RULES = {
    "named": ViewRule(sql=f"SELECT o.id, k.kind {JOINED}", key=("id",)),
    "counted": ViewRule(sql=f"SELECT k.kind, count(*) AS n, max(k.weight) AS w {JOINED} GROUP BY k.kind"),
    "both": ViewRule(
        sql="SELECT k.kind, count(DISTINCT c.name) AS names FROM shop.orders o "
        "JOIN shop.customers c ON o.customer = c.id JOIN dimensions.kinds k ON o.amount = k.amount "
        "GROUP BY k.kind"
    ),
}


class Joined:
    """Views with a dimension: a file of SQLite."""

    def __init__(self, it: Lake, names: Iterable[str] = RULES) -> None:
        self.it = it
        self.views_of = {name: RULES[name] for name in names}
        self.file = it.folder / "kinds.db"
        self.rows: Rows = []
        self.store()
        query = JdbcQuery(url=f"sqlite://{self.file}", query="SELECT * FROM kinds")
        self.rules = {"kinds": DimensionRule(jdbc=query, key=("amount",), refresh=1000)}
        self.open()

    def open(self) -> None:
        """As a new run does."""
        it = self.it
        dimensions = Dimensions(it.it.spark, it.state, self.rules, it.folder / "dimensions")
        self.views = Views(it.it.spark, it.sink, it.sink, it.state, self.views_of, dimensions)

    def store(self) -> None:
        with sqlite3.connect(self.file) as session:
            session.execute("DROP TABLE IF EXISTS kinds")
            session.execute("CREATE TABLE kinds (amount INT, kind TEXT, weight INT)")
            session.executemany("INSERT INTO kinds VALUES (?, ?, ?)", self.rows)

    def change(self, chance: random.Random) -> None:
        chosen = chance.sample(range(8), chance.randrange(2, 7))
        self.rows = [(one, chance.choice("ab"), chance.choice([None, 1, 2])) for one in chosen]
        self.store()

    def expected(self, name: str) -> list[Any]:
        known = {amount: (kind, weight) for amount, kind, weight in self.rows}
        orders = [(row, known.get(row[2])) for row in self.it.rows[ORDERS].values()]
        if name == "named":
            return [(row[0], one and one[0]) for row, one in orders]
        groups: dict[Any, list[Any]] = {}
        for row, one in orders:
            groups.setdefault(one and one[0], []).append((row, one))
        if name == "counted":
            weights: dict[Any, list[int]] = {
                kind: [one[1] for _, one in rows if one and one[1] is not None]
                for kind, rows in groups.items()
            }
            return [(kind, len(rows), max(weights[kind], default=None)) for kind, rows in groups.items()]
        found = []
        for kind, rows in groups.items():
            buyers = [self.it.rows[CUSTOMERS].get(row[1]) for row, _ in rows]
            if kind is not None and any(buyers):
                found.append((kind, len({one[1] for one in buyers if one and one[1] is not None})))
        return found

    def check(self) -> None:
        self.views.refresh()
        for name in self.views_of:
            error = self.it.state.meta(f"view.{name}.error")
            found = self.it.found(name)
            assert found == sorted(self.expected(name), key=str), (name, error)


@pytest.mark.parametrize(
    "names", [["counted"], pytest.param([*RULES], marks=pytest.mark.slow)], ids=["one", "all"]
)
def test_views_equal_their_queries_when_tables_or_dimensions_change_and_after_kills(
    lake: Make, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    it, chance = lake(), random.Random(5)
    joined = Joined(it, names)
    for step in range(2 if names == ["counted"] else 5):
        if step != 1:
            it.changed_at_random(chance)
        if step != 2:  # without an epoch, in step 1
            joined.change(chance)
        before = {name: it.state.meta(f"view.{name}") for name in names}
        joined.open()
        joined.check()
        if step == 0:
            monkeypatch.setattr("penstock.spark.dimensions.COUNT_MAX", 1)  # the next change begins a round
        if step == 1:  # killed between the commits and the state, and the dimension changes again
            for name, known in before.items():
                it.state.set_meta(f"view.{name}", known or "")
            joined.change(chance)
            joined.open()
            joined.check()


def test_a_dimension_that_cannot_be_read_keeps_its_copy_and_the_view_says_so(lake: Make) -> None:
    it = lake()
    it.epoch = 1
    it.write(ORDERS, {1: (1, 1, 5)})
    it.put()
    joined = Joined(it, ["named"])
    joined.rows = [(5, "a", None)]
    joined.store()
    joined.check()
    joined.file.unlink()
    joined.open()
    it.epoch = 2
    it.write(ORDERS, {2: (2, 1, 5)})
    it.put()
    joined.check()
    assert "The dimension kinds cannot be read" in (it.state.meta("view.named.error") or "")
    assert len(list((it.folder / "dimensions").glob("*.arrow"))) == 1


def test_dimensions_are_files_and_tables_of_spark_too(place: Callable[..., Place], tmp_path: Path) -> None:
    from penstock.state import StateStore

    it = place("iceberg")
    (tmp_path / "a.csv").write_text("code,rate\nx,1.5\ny,\n")
    it.spark.sql("SELECT 1 AS code, 'q' AS name").createOrReplaceTempView("a_dimension")
    twice = JdbcQuery(url=f"sqlite://{tmp_path}/x.db", query="SELECT 1 AS a UNION ALL SELECT 1")
    rules = {
        "file": DimensionRule(file=str(tmp_path / "a.csv"), columns="code STRING, rate DECIMAL(9,2)"),
        "table": DimensionRule(table="a_dimension"),
        "large": DimensionRule(file=str(tmp_path / "a.csv"), rows_max=1),
        "doubled": DimensionRule(jdbc=twice, key=("a",)),
    }
    sqlite3.connect(tmp_path / "x.db").close()
    dimensions = Dimensions(
        it.spark, StateStore(tmp_path / "state"), rules, tmp_path / "state" / "dimensions"
    )
    assert dimensions.is_due
    dimensions.refresh()
    assert not dimensions.is_due
    shown = dimensions.frame(dimensions.version("file")).orderBy("code").collect()
    assert [(row["code"], str(row["rate"])) for row in shown] == [("x", "1.50"), ("y", "None")]
    assert [tuple(row) for row in dimensions.frame(dimensions.version("table")).collect()] == [(1, "q")]
    with pytest.raises(ConfigError, match="more than 1 rows"):
        dimensions.version("large")
    with pytest.raises(ConfigError, match="does not identify its rows"):
        dimensions.version("doubled")
