"""What a large source would cost, worked out from measured figures."""

from __future__ import annotations

import pytest

from bench import sizing

COSTS = sizing.Costs(
    bytes_per_change=500,
    s_per_change=4e-6,
    s_per_table_epoch=0.05,
    requests_per_table_epoch=20,
    dollars_per_table_epoch=0.0001,
)


def test_a_day_is_changes_and_commits() -> None:
    line = sizing.day(COSTS, terabytes=0.864, tables=1000, interval_s=100)
    # 1.728 billion changes, 20,000 a second; 10 table epochs a second.
    assert line.table_epochs == 864_000
    assert line.cores_for_changes == pytest.approx(0.08)
    assert line.cores_for_commits == pytest.approx(0.5)
    assert line.requests_per_s == pytest.approx(200)
    assert line.dollars == pytest.approx(86.4)


def test_a_table_has_no_more_epochs_than_changes() -> None:
    assert sizing.day(COSTS, terabytes=1e-9, tables=1000, interval_s=10).table_epochs == pytest.approx(2)


def test_commits_set_the_shortest_interval() -> None:
    assert sizing.shortest_interval_s(COSTS, 0.864, tables=1000, cores=1) == pytest.approx(50 / 0.92)
    assert sizing.shortest_interval_s(COSTS, 864, tables=1000, cores=1) == float("inf")


def test_the_size_of_a_change_comes_from_the_description_of_the_log() -> None:
    about = (
        "The log: 15 columns; 1,000,000 changes (600,000 inserts, 0 deletes), 1,250 MB, MySQL 8.0.15; 5 rows"
    )
    assert sizing._bytes_of(about) == 1250


def test_the_page_says_what_was_put_in_and_what_ends_first() -> None:
    page = sizing.markdown(COSTS, 1, 10_000)
    assert "1 TB of log a day are 2.0 billion changes of 500 bytes, 23,148 a second" in page
    assert "| 1 min | 14,400,000 | 0.09 | 8.3 | 3,333 | 1,440 |" in page
