"""`views` in a whole pipeline. The judge is the source, which runs the same queries."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from penstock.testing.scenario import Scenario, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

Make = Callable[..., Scenario]


def queries(database: str) -> dict[str, str]:
    join = f"FROM {database}.orders o JOIN {database}.customers c ON o.customer = c.id"
    return {
        "details": f"SELECT o.id, c.id AS who, c.name, o.amount {join} WHERE o.amount > 20",
        "sums": "SELECT c.country, count(*) AS n, sum(o.amount) AS total, min(o.amount) AS low, "
        f"max(o.amount) AS high, count(DISTINCT o.customer) AS customers {join} "
        "GROUP BY c.country HAVING count(*) > 2",
        "outer_join": f"SELECT c.id, o.id AS orders {join.replace('JOIN', 'LEFT JOIN')}".replace(
            "c.id, o.id AS orders", "o.id, c.id AS who, c.country"
        ),
        "total": f"SELECT count(*) AS n, sum(amount) AS total FROM {database}.orders",
    }


def write(case: Scenario, chance: random.Random, count: int) -> None:
    with case.server.connect(database=case.database) as connection, connection.cursor() as cursor:
        for _ in range(count):
            connection.begin()
            for _ in range(chance.randrange(1, 4)):
                key, other = chance.randrange(1, 60), chance.randrange(1, 25)
                country = "abcd"[key % 4]
                cursor.execute(
                    chance.choice([
                        f"REPLACE INTO orders VALUES ({key}, {other}, {key}.50)",
                        f"UPDATE orders SET amount = amount + 1, customer = {other} WHERE id = {key}",
                        f"DELETE FROM orders WHERE id = {key}",
                        f"REPLACE INTO customers (id, name, country) VALUES ({other}, 'n{key}', '{country}')",
                        f"UPDATE customers SET country = '{country}' WHERE id = {other}",
                        f"DELETE FROM customers WHERE id = {other}",
                    ])
                )  # fmt: skip
            connection.commit()


def shown(rows: list[Any]) -> list[tuple[str, ...]]:
    return sorted(tuple(str(value) for value in row) for row in rows)


def difference(case: Scenario, chosen: dict[str, str] | None = None) -> str:
    """The first view that differs from its query at the source, or is not there yet."""
    for name, sql in (chosen or queries(case.database)).items():
        expected = shown(case.server.query(sql))
        try:
            if case.sink == "iceberg":
                frame = case.spark.sql(f"SELECT * FROM lake.{case.namespace}.`{name}`")
            else:
                frame = case.target(name)
        except AnalysisException as error:
            return f"{name}: {error}"
        found = shown([tuple(row) for row in frame.drop("_sequence").collect()])
        if found != expected:
            return f"{name}: {sorted(set(found) ^ set(expected))[:6]}"
    return ""


@pytest.mark.parametrize("sink", ["iceberg", "delta"])
def test_views_equal_the_queries_at_the_source_through_kills(scenario: Make, sink: str) -> None:
    case = scenario(sink)
    case.write_file(views={name: {"sql": sql} for name, sql in queries(case.database).items()})
    case.server.execute(
        f"USE {case.database}",
        "CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(20), country VARCHAR(5))",
        "CREATE TABLE orders (id INT PRIMARY KEY, customer INT, amount DECIMAL(10,2))",
    )
    chance = random.Random(11)
    write(case, chance, 60)
    with case.running() as pipeline:
        pipeline.wait_until(lambda s: s["snapshot"]["done"], "the snapshot", seconds=400)
        for _ in range(3):
            write(case, chance, 40)
            pipeline.kill("driver")
            pipeline.start()
            write(case, chance, 40)
        case.drain(pipeline, restart=True)
        wait_for(lambda: difference(case) == "", "the views to be right", seconds=400)
        case.server.execute(
            f"USE {case.database}",
            "ALTER TABLE customers ADD COLUMN more INT DEFAULT 3",
            "TRUNCATE TABLE orders",
        )
        write(case, chance, 20)
        case.drain(pipeline)
        wait_for(lambda: difference(case) == "", "the views to be right", seconds=400)
        assert all(one["error"] is None for one in case.status()["views"])
        assert pipeline.stop() == 0
    done = case.command("query", "SELECT count(*) AS n FROM total", "--json")
    assert json.loads(done.stdout) == {"n": 1}, done.stderr
