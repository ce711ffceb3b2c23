"""Schedules follow from seeds."""

from __future__ import annotations

import json
from collections import Counter

from tests.chaos.run import numbers
from tests.chaos.schedule import KINDS, LAST, MOMENTS, Schedule, chosen, schedule


def test_a_seed_says_all_that_is_done() -> None:
    for seed in range(200):
        assert schedule(seed) == schedule(seed)
        kept = json.loads(json.dumps(schedule(seed).to_json()))
        assert Schedule.from_json(kept) == schedule(seed)
        assert schedule(seed).describe().startswith(f"seed {seed}: {schedule(seed).lead}")


def test_every_kind_and_every_moment_comes_among_a_few_hundred_seeds() -> None:
    schedules = [schedule(seed) for seed in range(1, 400)]
    leads = Counter(one.lead for one in schedules)
    assert leads.keys() == KINDS.keys() and min(leads.values()) >= 3
    moments = Counter(fault.moment for one in schedules for fault in one.faults)
    assert moments.keys() == MOMENTS.keys()
    assert {one.settings.sink for one in schedules} == {"iceberg", "delta", "parquet"}


def test_what_changes_the_source_for_good_comes_last_and_once() -> None:
    for seed in range(400):
        kinds = [fault.kind for fault in schedule(seed).faults]
        assert not set(kinds[:-1]) & set(LAST), kinds
        assert schedule(seed).lead in kinds


def test_kinds_choose_among_seeds_and_change_none() -> None:
    some = chosen(range(1, 200), ["power-loss", "net"])
    assert some and len(some) < 100
    for seed in some:
        assert any(kind == "power-loss" or kind.startswith("net-") for kind in schedule(seed).kinds)
    assert chosen(range(5)) == list(range(5))


def test_seeds_are_named_by_numbers_and_ranges() -> None:
    assert numbers("17") == [17]
    assert numbers("1-3,7 9-10") == [1, 2, 3, 7, 9, 10]
