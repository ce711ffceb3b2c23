"""The judge of a soak, and what is to happen in it when."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from types import MappingProxyType

import pytest
from bench.lines import goals
from bench.soak.events import KILLS_UNTIL, SECONDS, quiet_from, schedule
from bench.soak.judge import KINDS, LIFE_SHARE_MIN, Process, Sample, Verdict, judge, limits
from bench.soak.top import Top

TIME = 1800.0
HEAP_MB = 1000.0
FLAT = {"memory": 200.0, "handles": 50.0, "threads": 20.0}


def series(
    *,
    jvm: Mapping[str, float] = MappingProxyType({}),
    receiver: Mapping[str, float] = MappingProxyType({}),
    killed_at: float = 300.0,
    lag_growth: float = 0.0,
    every: float = 5.0,
) -> list[Sample]:
    """A driver, a JVM and a receiver that are killed once; `jvm`, `receiver`: what their measures have gained
    by the end. Python workers live for a minute, and their daemon as long as the driver."""
    samples = []
    for number in range(1, int(TIME / every)):
        at = number * every
        life = int(at > killed_at)
        born = killed_at if life else 0.0
        share = (at - born) / (TIME - born)
        live = {"live heap": 80.0} if number % 20 == 0 else {}
        processes = {
            "driver": [Process(10 + life, born, FLAT)],
            "jvm": [Process(20 + life, born, gained(FLAT | live, jvm, share))],
            "receiver": [Process(30 + life, born, gained(FLAT, receiver, share))],
            "workers": [
                Process(40 + life, born, FLAT),
                Process(1000 + int(at // 60), at // 60 * 60, FLAT),
            ],
        }
        samples.append(Sample(at, processes, 1.0 + lag_growth * at / TIME))
    return samples


def gained(measures: dict[str, float], more: Mapping[str, float], share: float) -> dict[str, float]:
    return {name: value + share * more.get(name, 0.0) for name, value in measures.items()}


def verdicts(samples: list[Sample]) -> dict[tuple[str, str], Verdict]:
    return {(one.kind, one.measure): one for one in judge(samples, TIME, HEAP_MB)}


def test_every_measure_of_a_run_in_which_nothing_grows_is_judged_flat() -> None:
    found = verdicts(series())
    assert found.keys() == {*limits(HEAP_MB), ("targets", "lag")}
    assert {key: one.why for key, one in found.items() if one.flat is not True} == {}


@pytest.mark.parametrize(
    ("more", "grows"),
    [
        ({"memory": 2000.0}, ("jvm", "memory")),
        ({"live heap": 300.0}, ("jvm", "live heap")),
        ({"threads": 60.0}, ("jvm", "threads")),
        ({"handles": 100.0}, ("jvm", "handles")),
    ],
)
def test_what_grows_over_a_long_life_is_told_and_nothing_else(
    more: dict[str, float], grows: tuple[str, str]
) -> None:
    found = verdicts(series(jvm=more))
    assert [key for key, one in found.items() if one.flat is False] == [grows]
    [goal] = goals([found[grows].line()])
    assert not goal.reached


def test_a_leak_is_seen_although_the_process_was_killed_in_between() -> None:
    assert verdicts(series(receiver={"memory": 100.0}))["receiver", "memory"].flat is False


def test_a_heap_may_grow_to_its_limit_but_what_is_live_in_it_may_not() -> None:
    found = verdicts(series(jvm={"memory": 1000.0, "live heap": 500.0}))
    assert found["jvm", "memory"].flat is True
    assert found["jvm", "live heap"].flat is False


def test_a_kind_of_which_nothing_lived_long_enough_is_not_judged_and_says_so() -> None:
    found = verdicts(series(killed_at=(1 - LIFE_SHARE_MIN) * TIME + 60))
    for kind in KINDS:
        one = found[kind, "memory"]
        assert one.flat is None
        assert one.line().cells()[1:] == ("not judged", "", "")
        assert "none lived" in one.line().what
    assert goals([found["driver", "memory"].line()]) == []


def test_too_few_samples_are_not_judged() -> None:
    one = verdicts(series(every=30.0))["driver", "threads"]
    assert one.flat is None
    assert "20 are needed" in one.line().what
    empty = verdicts([])
    assert {one.flat for one in empty.values()} == {None}


def test_targets_that_fall_behind_are_told() -> None:
    assert verdicts(series(lag_growth=20.0))["targets", "lag"].flat is False


@pytest.mark.parametrize("seconds", [240.0, 1800.0, 7200.0])
@pytest.mark.parametrize("seed", range(20))
def test_kills_hit_driver_and_receiver_early_and_all_else_goes_on_to_the_end(
    seconds: float, seed: int
) -> None:
    events = schedule(seconds, seed)
    assert events == schedule(seconds, seed)
    assert [event.at for event in events] == sorted(event.at for event in events)
    kills = [event for event in events if event.what.startswith("kill")]
    assert {event.what for event in kills} == {"kill driver", "kill receiver"}
    assert 0 < kills[0].at <= kills[-1].at == quiet_from(events) <= KILLS_UNTIL * seconds
    for what, every in SECONDS.items():
        moments = [event.at for event in events if event.what == what]
        assert moments[-1] > seconds - 1.5 * every
        assert all(later - earlier <= 1.5 * every for earlier, later in itertools.pairwise(moments))


def test_another_seed_is_another_run() -> None:
    assert schedule(TIME, 1) != schedule(TIME, 2)


@pytest.mark.parametrize(
    ("lag_seconds", "busy", "limit"),
    [
        (20.0, 50.0, "the pipeline"),
        (None, 50.0, "the pipeline"),
        (1.0, 119.0, "the cores that all three share"),
        (1.0, 80.0, "the writer and the source"),
    ],
)
def test_the_top_rate_counts_the_time_to_drain_and_says_what_limited_it(
    lag_seconds: float | None, busy: float, limit: str
) -> None:
    cpu_s = {"writer": 10.0, "source": 30.0, "pipeline": 35.0, "all": busy, "cores": 120.0}
    top = Top(90_000, seconds_written=60, seconds_to_drain=30, lag_seconds=lag_seconds, cpu_s=cpu_s)
    assert (top.per_second, top.limit) == (1000, limit)
    assert "1,000 changes/s" in top.text() and limit in top.text()
