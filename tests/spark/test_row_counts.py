"""How many changes an epoch has written. The judge is what was done at the source."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.scenarios.conftest import scenario  # noqa: F401 (a fixture)
from tests.sinks.conformance.brokers import BROKERS

from penstock.testing.scenario import Scenario

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Make = Callable[..., Scenario]
IN_TASKS = {"interval": "200ms", "driver_bytes_max": 0}


def changes_of(case: Scenario) -> int:
    done = case.command("run", "--once", "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    found: int = json.loads(done.stdout.splitlines()[-1])["since_start"]["changes"]
    return found


@pytest.mark.parametrize("way", ["by the driver", "by tasks", "change log", "messages"])
def test_every_change_counts_once(scenario: Make, way: str) -> None:  # noqa: F811
    sink = {"change log": "parquet", "messages": "nats"}.get(way, "iceberg")
    options: dict[str, Any] = {} if way == "by the driver" else {"epoch": IN_TASKS}
    case = scenario(sink, **options)
    if way == "messages":
        broker = BROKERS["nats"]()
        case.options["sink"] = broker.section()
        case.write_file()
    case.server.execute(
        "CREATE TABLE a (id INT PRIMARY KEY, v INT)", "INSERT INTO a VALUES (1, 1), (2, 2), (3, 3)",
        "CREATE TABLE b (id INT PRIMARY KEY)",
    )  # fmt: skip
    assert changes_of(case) == 0, "the rows come from snapshots"
    case.server.execute(
        "INSERT INTO a WITH RECURSIVE n AS (SELECT 10 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 509) "
        "SELECT i, 0 FROM n",
        "UPDATE a SET v = 9 WHERE id < 3",
        "DELETE FROM a WHERE id = 3",
        "INSERT INTO b VALUES (1), (2), (3), (4)",
    )
    updates = 2 * 2 if way == "change log" else 2
    assert changes_of(case) == 500 + updates + 1 + 4
    if way == "messages":
        broker.close()
