from __future__ import annotations

import pytest

from penstock.backoff import Backoff, Schedule
from penstock.store.errors import StoreRefused, StoreUnavailable
from penstock.store.faults import Fault
from penstock.store.options import Retries
from penstock.store.retrying import Failed, retried

PASSING = Fault(StoreUnavailable("s3://bucket/one could not be read."), passing=True)
LASTING = Fault(StoreRefused("s3://bucket/one could not be read."))
LIMITS = Retries(Schedule(first_s=1, max_s=8), seconds_max=100, attempts_max=5)


class Clock:
    """Time that passes only while somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def wait(self, backoff: Backoff) -> None:
        seconds = backoff.schedule.seconds(backoff.failures)
        self.waits.append(seconds)
        self.now += seconds


def run(
    faults: list[Fault | None], limits: Retries = LIMITS, *, takes: float = 0
) -> tuple[Clock, list[Fault]]:
    """`faults`: one for each attempt, None for success. The clock, and the faults between attempts."""
    clock, left, between = Clock(), iter(faults), list[Fault]()

    def attempt() -> str:
        clock.now += takes
        if fault := next(left):
            raise Failed(fault)
        return "done"

    assert retried(attempt, limits, between=between.append, clock=clock, wait=clock.wait) == "done"
    return clock, between


def test_what_passes_is_tried_again_after_growing_waits() -> None:
    clock, between = run([PASSING, PASSING, PASSING, None])
    assert clock.waits == [1, 2, 4]
    assert between == [PASSING] * 3


def test_what_does_not_pass_is_raised_at_once() -> None:
    with pytest.raises(StoreRefused):
        run([LASTING])
    with pytest.raises(StoreRefused):
        run([PASSING, LASTING])


def test_attempts_have_a_limit_and_so_have_those_of_one_fault() -> None:
    run([PASSING] * 4 + [None])
    with pytest.raises(StoreUnavailable):
        run([PASSING] * 5)
    few = Fault(StoreRefused("no credentials"), passing=True, attempts_max=3)
    run([few, few, None])
    with pytest.raises(StoreRefused):
        run([few, few, few])


def test_no_attempt_begins_after_the_time_limit() -> None:
    limits = Retries(Schedule(first_s=1, max_s=8), seconds_max=10, attempts_max=100)
    run([PASSING, PASSING, PASSING, None], limits)
    with pytest.raises(StoreUnavailable):
        run([PASSING] * 4, limits)
    with pytest.raises(StoreUnavailable):
        run([PASSING] * 2, limits, takes=9.5)


def test_other_exceptions_are_not_retried() -> None:
    def attempt() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        retried(attempt, LIMITS)
