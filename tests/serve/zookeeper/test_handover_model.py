"""Hand-overs between servers in random histories, and the model of them where one condition is given up."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from tests.models import session_model
from tests.models.placement_values import Violation
from tests.models.serving_model import BROKEN, History
from tests.models.session_model import SessionHistory

SESSIONS, SESSIONS_SLOW = 20, 3_000
HISTORIES, HISTORIES_SLOW = 4, 2_000
HISTORIES_BROKEN = 1_000
"""Enough for every weakened form to be caught."""
BEGIN = {"fence": 30, "numbers": 60}
"""Where to begin with weakened forms of which the first histories show nothing. It only saves time."""
QUICK = ("rollback", "settled")


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def play(kind: type[History | SessionHistory], seeds: range, broken: str = "") -> tuple[int, str] | None:
    """The first seed whose history ends in a violation, and what it was."""
    for seed in seeds:
        try:
            kind(seed, broken).play()
        except Violation as violation:
            return seed, str(violation)
    return None


def test_a_session_that_has_ended_is_never_taken_for_alive() -> None:
    assert play(SessionHistory, range(SESSIONS)) is None
    one = SessionHistory(1)
    one.play()
    assert one.alive_s > session_model.SECONDS / 3  # and one that lives mostly is


@pytest.mark.parametrize("condition", session_model.BROKEN)
def test_the_model_of_sessions_notices_when_a_condition_is_given_up(condition: str) -> None:
    assert play(SessionHistory, range(SESSIONS_SLOW), condition) is not None


def test_in_no_history_a_client_misses_a_change_or_gets_one_again_that_it_has_acknowledged() -> None:
    assert play(History, range(HISTORIES)) is None


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_in_no_history_of_many_more_either() -> None:
    assert play(SessionHistory, range(SESSIONS, SESSIONS + SESSIONS_SLOW)) is None
    assert play(History, range(HISTORIES, HISTORIES + HISTORIES_SLOW)) is None


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "condition", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in BROKEN]
)
def test_the_model_notices_when_a_condition_is_given_up(condition: str) -> None:
    assert play(History, range(BEGIN.get(condition, 0), HISTORIES_BROKEN), condition) is not None
