"""Seeds as tests: some of each group, and those that once found something."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.chaos.ground import Ground
from tests.chaos.play import play
from tests.chaos.results import CASES
from tests.chaos.schedule import Schedule, schedule

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEEDS = (14, 23, 33)
"""Quick ones; `make chaos` plays others."""


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Any:
    with Ground(tmp_path_factory.mktemp("chaos"), spark) as made:
        yield made


def outcome(one: Schedule, ground: Ground) -> str:
    verdict = play(one, ground)
    if verdict.skipped:
        pytest.skip(verdict.skipped)
    return "\n".join([*verdict.found, *(["meanwhile:", *verdict.notes] if verdict.found else [])])


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_doubled_or_left_behind(seed: int, ground: Ground) -> None:
    assert outcome(schedule(seed), ground) == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [pytest.param(one, id=one["name"]) for one in json.loads(Path(CASES).read_text("utf-8"))]
)
def test_what_once_went_wrong_does_not(case: dict[str, Any], ground: Ground) -> None:
    assert outcome(Schedule.from_json(case["schedule"]), ground) == ""
