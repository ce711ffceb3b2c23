"""Progress is arithmetic over counts."""

from __future__ import annotations

from typing import Any

from penstock.snapshot.progress import SnapshotProgress, TableProgress


def table(**values: Any) -> TableProgress:
    defaults = {
        "chunks": 4, "chunks_read": 0, "chunks_placed": 0, "rows_read": 0, "rows_placed": 0,
        "rows_guess": 1000, "active": True,
    }  # fmt: skip
    return TableProgress(**{**defaults, **values})


def test_chunks_that_were_read_say_more_of_what_is_left_than_the_servers_guess() -> None:
    assert table().rows_left == 1000
    assert table(chunks=0).rows_left == 1000
    read = table(chunks_read=2, chunks_placed=1, rows_read=200, rows_placed=100)
    assert (read.rows_estimate, read.rows_left) == (400, 300)


def test_time_left_follows_from_the_rate() -> None:
    both = SnapshotProgress([table(chunks_read=1, rows_read=100), table(rows_guess=200)])
    assert both.seconds_left(50.0) == 12
    assert both.seconds_left(0.0) is None


def test_nothing_is_left_when_all_chunks_are_placed_or_the_table_is_parked() -> None:
    placed = table(chunks_read=4, chunks_placed=4, rows_read=10, rows_placed=9)
    assert placed.rows_left == 0
    assert SnapshotProgress([placed, table(active=False)]).seconds_left(1.0) is None


def test_a_snapshot_is_done_when_no_table_goes_on() -> None:
    assert SnapshotProgress([]).to_json()["done"]
    assert SnapshotProgress([table(active=False)]).to_json()["done"]
    both = SnapshotProgress([table(active=False), table(chunks_read=1, rows_read=30)]).to_json()
    assert not both["done"]
    assert (both["chunks"], both["chunks_read"], both["rows_left"]) == (8, 1, 120)
