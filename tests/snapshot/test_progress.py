"""Progress is arithmetic over counts."""

from __future__ import annotations

from penstock.snapshot.progress import TableProgress, combine


def table(name: str = "d.t", **values: int | bool) -> TableProgress:
    defaults = {
        "chunks_planned": 4, "chunks_read": 0, "chunks_placed": 0, "rows_read": 0, "rows_estimate": 1000,
        "planned": True,
    }  # fmt: skip
    return TableProgress(table=name, **{**defaults, **values})  # type: ignore[arg-type]


def test_time_left_follows_from_rows_per_chunk_rather_than_the_estimate() -> None:
    progress = combine([table(chunks_read=1, rows_read=100)], seconds=2.0)
    assert progress.rows_per_second == 50.0
    assert progress.seconds_left == 6.0


def test_no_rate_means_no_time_left() -> None:
    assert combine([table()], seconds=1.0).seconds_left is None
    assert combine([table()], seconds=0.0).rows_per_second == 0.0


def test_rows_of_earlier_runs_do_not_count_for_the_rate() -> None:
    progress = combine([table(chunks_read=2, rows_read=200)], seconds=10.0, rows_before=100)
    assert progress.rows_per_second == 10.0


def test_a_snapshot_is_done_when_all_is_planned_and_placed() -> None:
    whole = table("d.a", chunks_read=4, chunks_placed=4, rows_read=10)
    assert combine([whole], seconds=1).done
    assert combine([whole], seconds=1).seconds_left == 0.0
    assert not combine([whole, table("d.b", chunks_read=4, chunks_placed=3)], seconds=1).done
    assert not combine([table(chunks_read=4, chunks_placed=4, planned=False)], seconds=1).done
    assert [item.table for item in combine([table("d.b"), whole], seconds=1).tables] == ["d.a", "d.b"]
