"""Pacing between chunks: random schedules against the bound that `snapshot/rate_limits.py` argues for."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.snapshot.rate_limits import Pace


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


CHUNKS = st.lists(
    st.tuples(
        st.integers(0, 3),  # which thread
        st.integers(0, 500),  # rows
        st.floats(0, 3, allow_nan=False),  # seconds that the read takes
        st.floats(0, 2, allow_nan=False),  # seconds that the thread has nothing to do
    ),
    min_size=1,
    max_size=40,
)


def play(
    chunks: list[tuple[int, int, float, float]], rate: int, *, waits: bool = True
) -> list[tuple[float, int]]:
    """Four threads read the chunks as soon as they may. Returns when each read ended, and its rows."""
    clock = Clock()
    pace = Pace(rows_per_second=rate, clock=clock)
    queues = [[item for item in chunks if item[0] == number] for number in range(4)]
    busy_until = [clock.now] * 4
    reading: list[int | None] = [None] * 4
    ended = []
    while any(queues) or any(rows is not None for rows in reading):
        for number in range(4):
            if busy_until[number] > clock.now:
                continue
            rows = reading[number]
            if rows is not None:
                pace.spend(rows=rows, bytes_=0)
                ended.append((clock.now, rows))
                reading[number] = None
            if queues[number] and (not waits or pace.seconds_to_wait() == 0):
                _, rows, takes, rests = queues[number].pop(0)
                reading[number] = rows
                busy_until[number] = clock.now + takes
                if queues[number]:
                    busy_until[number] += rests
        later = [at for at in busy_until if at > clock.now]
        owed = pace.seconds_to_wait()
        clock.now = min([*later, *([clock.now + owed + 1e-9] if owed else [])], default=clock.now + 1e-6)
    return ended


def excess(ended: list[tuple[float, int]], rate: int) -> float:
    """How far the worst stretch of time lies above rate and one largest chunk per thread."""
    largest = max(rows for _, rows in ended)
    worst = 0.0
    for first, last in itertools.combinations_with_replacement(range(len(ended)), 2):
        rows = sum(rows for _, rows in ended[first : last + 1])
        allowed = rate * (ended[last][0] - ended[first][0]) + 4 * largest
        worst = max(worst, rows - allowed)
    return worst


@settings(max_examples=300, deadline=None)
@given(CHUNKS, st.integers(1, 400))
def test_over_any_stretch_of_time_the_rate_is_kept_but_for_one_chunk_per_thread(
    chunks: list[tuple[int, int, float, float]], rate: int
) -> None:
    assert excess(play(chunks, rate), rate) <= 1e-3


def test_the_bound_notices_threads_that_do_not_wait() -> None:
    chunks = [(number % 4, 100, 0.1, 0.0) for number in range(40)]
    assert excess(play(chunks, 50, waits=False), 50) > 0
    assert excess(play(chunks, 50), 50) <= 1e-3


def test_a_chunk_is_paid_for_before_the_next_begins_and_idle_time_earns_nothing() -> None:
    clock = Clock()
    pace = Pace(rows_per_second=100, clock=clock)
    clock.now += 1000
    assert pace.seconds_to_wait() == 0
    pace.spend(rows=250, bytes_=10**9)
    assert pace.seconds_to_wait() == pytest.approx(2.5)
    clock.now += 2.4
    assert pace.seconds_to_wait() == pytest.approx(0.1)
    clock.now += 0.2
    assert pace.seconds_to_wait() == 0


def test_the_tighter_of_both_limits_counts_and_is_named() -> None:
    pace = Pace(rows_per_second=100, bytes_per_second=1000, clock=Clock())
    pace.spend(rows=100, bytes_=5000)
    assert pace.seconds_to_wait() == pytest.approx(5) and pace.holder() == "bytes_per_second"
    pace.spend(rows=900, bytes_=0)
    assert pace.seconds_to_wait() == pytest.approx(10) and pace.holder() == "rows_per_second"


def test_limits_change_at_once_also_for_what_is_owed() -> None:
    clock = Clock()
    pace = Pace(clock=clock)
    pace.spend(rows=1000, bytes_=1000)
    assert pace.seconds_to_wait() == 0
    pace.set(rows_per_second=100)
    assert pace.seconds_to_wait() == 0, "what was read without a limit is not owed"
    pace.spend(rows=1000, bytes_=0)
    assert pace.seconds_to_wait() == pytest.approx(10)
    pace.set(rows_per_second=1000)
    assert pace.seconds_to_wait() == pytest.approx(1)
    pace.set(rows_per_second=0)
    assert pace.seconds_to_wait() == 0
