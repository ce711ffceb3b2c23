"""Waits grow with each failure in a row, stay below their limit, and end early when asked to stop."""

from __future__ import annotations

import threading
import time

from hypothesis import given
from hypothesis import strategies as st

from penstock.backoff import Backoff, Schedule

SECONDS = st.floats(0.001, 1000)


def test_each_failure_in_a_row_doubles_the_wait_up_to_the_limit() -> None:
    schedule = Schedule(first_s=0.5, max_s=3)
    assert [schedule.seconds(failures) for failures in range(1, 6)] == [0.5, 1, 2, 3, 3]


def test_a_steady_schedule_waits_equally_long_each_time() -> None:
    assert {Schedule.steady(5).seconds(failures) for failures in range(1, 100)} == {5}


@given(SECONDS, SECONDS, st.floats(1, 10), st.floats(0, 1), st.floats(0, 1, exclude_max=True), st.integers(1))
def test_no_wait_is_longer_than_its_limit_however_many_failures_there_were(
    first: float, longest: float, factor: float, jitter: float, chance: float, failures: int
) -> None:
    schedule = Schedule(first, longest, factor, jitter)
    wait = schedule.seconds(failures, chance=chance)
    assert 0 <= wait <= longest
    assert wait >= min(first, longest) * (1 - jitter)
    assert schedule.seconds(failures + 1, chance=chance) >= wait


def test_jitter_takes_away_its_share_at_most() -> None:
    schedule = Schedule(first_s=8, max_s=8, jitter=0.25)
    assert schedule.seconds(1, chance=0.0) == 8
    assert 6 < schedule.seconds(1, chance=0.999) < 6.01


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_nothing_has_to_wait_before_its_first_failure() -> None:
    backoff = Backoff(Schedule(1, 8))
    assert backoff.ready and backoff.failures == 0
    assert backoff.wait(threading.Event()) is False


def test_it_is_ready_again_when_the_wait_after_the_last_failure_is_over() -> None:
    clock = Clock()
    backoff = Backoff(Schedule(1, 8), clock=clock)
    assert backoff.failed() == 1
    clock.now += 0.99
    assert not backoff.ready
    clock.now += 0.02
    assert backoff.ready
    assert backoff.failed() == 2
    assert not backoff.ready and backoff.failures == 2


def test_a_success_makes_the_next_failure_the_first() -> None:
    clock = Clock()
    backoff = Backoff(Schedule(1, 8), clock=clock)
    for _ in range(5):
        backoff.failed()
    backoff.succeeded()
    assert backoff.ready and backoff.failures == 0
    assert backoff.failed() == 1


def test_two_that_failed_together_do_not_come_back_together() -> None:
    schedule = Schedule(1, 8, jitter=0.5)
    assert Backoff(schedule, chance=lambda: 0.0).failed() != Backoff(schedule, chance=lambda: 0.9).failed()


def test_a_wait_ends_as_soon_as_it_is_told_to_stop() -> None:
    backoff, stopping = Backoff(Schedule.steady(600)), threading.Event()
    backoff.failed()
    threading.Timer(0.05, stopping.set).start()
    began = time.monotonic()
    assert backoff.wait(stopping) is True
    assert time.monotonic() - began < 60


def test_a_wait_without_anybody_to_stop_it_lasts_as_long_as_the_schedule_says() -> None:
    backoff = Backoff(Schedule.steady(0.05))
    began = time.monotonic()
    backoff.failed()
    assert backoff.wait() is False
    assert time.monotonic() - began >= 0.05 and backoff.ready
