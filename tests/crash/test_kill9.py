"""kill -9 of the receiver, the driver or a Python worker, at seeded moments, under writes: nothing lost or
doubled."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.change_log import newest_rows

from penstock.testing import workload
from penstock.testing.running import Victim
from penstock.testing.scenario import Scenario
from penstock.testing.servers import MySqlServer
from penstock.testing.writer import Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK = (1,)
"""Its victims are the receiver and the JVM; quick pipelines of `tests/scenarios` have their driver killed. It
has fewer rows."""
SLOW = tuple(range(2, 25))
KILLS = 3
QUICK_KILLS = 2
VICTIMS: tuple[Victim, ...] = ("receiver", "driver", "worker", "jvm")


def seeds() -> list[object]:
    return [*QUICK, *[pytest.param(seed, marks=pytest.mark.slow) for seed in SLOW]]


@pytest.fixture
def case(
    mysql_factory: Callable[..., MySqlServer], spark: SparkSession, lake_root: Path, tmp_path: Path
) -> Callable[..., Scenario]:
    def make(sink: str, **sink_options: object) -> Scenario:
        server = mysql_factory()
        options = {"snapshot": {"chunk_rows": 1500}}
        often = {"fold_commits": 3} if sink == "iceberg" else {}
        return Scenario(server, "shop", tmp_path, spark, lake_root, sink, options, {**often, **sink_options})

    return make


@pytest.mark.parametrize("seed", seeds())
def test_source_and_target_are_equal_after_kills(case: Callable[..., Scenario], seed: int) -> None:
    chance = random.Random(seed)
    # Every third: what is small is merged as what is large.
    scenario = case("delta" if seed % 4 == 0 else "iceberg", key_index=seed % 3 != 0)
    rows, large = (8000, 3000) if seed in QUICK else (30_000, 8000)
    shop = workload.Shop.of_rows(rows)
    workload.load(scenario.server, shop)
    with scenario.running() as pipeline:
        with Writer(scenario.server, shop, seed=seed, rate=300, large_every_s=5, large_rows=large):
            for _ in range(QUICK_KILLS if seed in QUICK else KILLS):
                _let_it_run(pipeline, chance)
                pipeline.kill(chance.choice(VICTIMS))
            _let_it_run(pipeline, chance)
        scenario.drain(pipeline, restart=True)
        assert pipeline.kills, "nothing was killed"
        pipeline.stop()
    scenario.assert_equal(*workload.TABLES)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12])
def test_a_change_log_has_no_doubles_after_kills(case: Callable[..., Scenario], seed: int) -> None:
    chance = random.Random(seed)
    scenario = case("parquet")
    shop = workload.Shop.of_rows(10_000)
    workload.load(scenario.server, shop)
    with scenario.running() as pipeline:
        writer = Writer(scenario.server, shop, seed=seed, rate=300, large_every_s=5, large_rows=3000)
        with writer:
            for _ in range(KILLS):
                _let_it_run(pipeline, chance)
                pipeline.kill(chance.choice(VICTIMS))
            _let_it_run(pipeline, chance)
        scenario.drain(pipeline, restart=True)
        pipeline.stop()
    for table in workload.TABLES:
        log = scenario.target(table)
        events = [row for row in log.select("_sequence", "_change_type").collect() if row[1] != "read"]
        doubled = [item for item, count in Counter(map(tuple, events)).items() if count > 1]
        assert not doubled, f"{table}: {doubled[:5]}"
    scenario_equal_by_replay(scenario)


def scenario_equal_by_replay(scenario: Scenario) -> None:
    """The last row image of each key in the change log is the table: judged by the server's SELECT."""
    from penstock.testing import oracle

    for table in workload.TABLES:
        name = f"{scenario.database}.{table}"
        columns = oracle.columns_of(scenario.server, name)
        rows = (tuple(row) for row in newest_rows(scenario.target(table), columns).collect())
        oracle.assert_same_rows(oracle.rows_of(scenario.server, name), oracle.canonical_rows(rows, columns))


def _let_it_run(pipeline: object, chance: random.Random) -> None:
    """A random while in which the pipeline is up, from its first moments to well into the stream."""
    from penstock.testing.running import RunningPipeline

    assert isinstance(pipeline, RunningPipeline)
    pipeline.ensure_alive()
    if chance.random() < 0.7:
        pipeline.wait_until(lambda s: s.get("epoch", 0) >= 1, "an epoch", seconds=240, restart=True)
    until = time.monotonic() + chance.uniform(0.1, 6)
    while time.monotonic() < until:  # the random moment itself
        pipeline.ensure_alive()
        time.sleep(0.05)
