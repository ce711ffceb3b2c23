"""A join and an aggregate kept while both sides change at random and the pipeline is killed ten times. The
judge is the source, which runs the same queries. `PENSTOCK_VIEWS_MINUTES` says for how long."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.scenarios.test_views import difference, queries, write

from penstock.testing.scenario import Scenario, wait_for

KILLS = 10
MINUTES = float(os.environ.get("PENSTOCK_VIEWS_MINUTES", "2"))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(MINUTES * 60 + 3000)]

Make = Callable[..., Scenario]


@contextmanager
def writing(case: Scenario, seed: int) -> Iterator[list[int]]:
    """Random transactions while the block runs, about ten in a second. Yields their number."""
    stopping, done = threading.Event(), [0]
    failed: list[BaseException] = []

    def work() -> None:
        chance = random.Random(seed)
        try:
            while not stopping.wait(chance.uniform(0, 0.2)):
                write(case, chance, 1)
                done[0] += 1
        except BaseException as error:
            failed.append(error)

    writer = threading.Thread(target=work)
    writer.start()
    try:
        yield done
    finally:
        stopping.set()
        writer.join()
    assert not failed, failed


def has_applied(status: dict[str, Any]) -> bool:
    return bool(status["since_start"]["epochs"] > 1)


def test_a_join_and_an_aggregate_equal_the_queries_at_the_source_after_ten_kills(scenario: Make) -> None:
    case, chance = scenario("iceberg"), random.Random(23)
    chosen = {name: sql for name, sql in queries(case.database).items() if name in ("details", "sums")}
    case.write_file(views={name: {"sql": sql} for name, sql in chosen.items()})
    case.server.execute(
        f"USE {case.database}",
        "CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(20), country VARCHAR(5))",
        "CREATE TABLE orders (id INT PRIMARY KEY, customer INT, amount DECIMAL(10,2))",
    )
    write(case, chance, 60)
    with case.running() as pipeline:
        pipeline.wait_until(lambda s: s["snapshot"]["done"], "the snapshot", seconds=600)
        with writing(case, 24) as count:
            began = time.monotonic()
            for number in range(1, KILLS + 1):
                due = began + MINUTES * 60 * (number - chance.random()) / KILLS
                time.sleep(max(0.0, due - time.monotonic()))  # the random moment itself
                pipeline.wait_until(
                    lambda s: s["since_start"]["epochs"] > 1, "epochs of this run", seconds=600
                )
                pipeline.kill("driver")
                pipeline.start()
            time.sleep(max(0.0, began + MINUTES * 60 - time.monotonic()))  # the length that was asked for
        print(f"{count[0]} transactions in {time.monotonic() - began:.0f} s")
        case.drain(pipeline, restart=True)
        wait_for(lambda: not difference(case, chosen), "the views to be right", seconds=600)
        views: list[dict[str, Any]] = case.status()["views"]
        assert all(one["error"] is None for one in views)
        assert pipeline.stop() == 0
