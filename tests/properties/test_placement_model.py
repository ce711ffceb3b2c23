"""The placement rule against random histories, and the model of them against weakened forms of the rule."""

from __future__ import annotations

import pytest
from tests.models.placement_model import World
from tests.models.placement_values import (
    BROKEN,
    BROKEN_AT_REPLICAS,
    BROKEN_IN_PARTS,
    Violation,
)

STEPS = 60
HISTORIES = 3_000
HISTORIES_SLOW = 400_000
HISTORIES_BROKEN = 20_000
"""Enough for every weakened form to be caught; most take a few hundred."""
BEGIN = {
    "start_in_low": 3500,
    "part_start": 2900,
    "anew_above_start": 1850,
    "replica_high_from_received": 1300,
}
BEGIN |= dict.fromkeys(("replica_low_from_received", "replica_definition_in_low", "server_uuid"), 850)
BEGIN |= {"set_membership": 850, "require_gtids": 700, "part_above_since": 500, "replica_start_in_low": 550}
"""Where to begin with weakened forms of which the first histories show nothing. It only saves time."""


def play(seeds: range, broken: str = "") -> tuple[int, str] | None:
    """The first seed whose history ends in a violation, and what it was."""
    for seed in seeds:
        try:
            World(seed, broken).run(STEPS)
        except Violation as violation:
            return seed, str(violation)
    return None


def test_no_history_shows_a_stale_resurrected_or_missing_row() -> None:
    assert play(range(HISTORIES)) is None


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_history_of_many_more_shows_one_either() -> None:
    assert play(range(HISTORIES, HISTORIES + HISTORIES_SLOW)) is None


@pytest.mark.parametrize("condition", BROKEN + BROKEN_AT_REPLICAS + BROKEN_IN_PARTS)
def test_the_model_notices_when_a_condition_of_the_rule_is_given_up(condition: str) -> None:
    assert play(range(BEGIN.get(condition, 0), HISTORIES_BROKEN), condition) is not None
