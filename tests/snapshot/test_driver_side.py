"""Which chunks the driver reads and places itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.model.chunk import Chunk, StagedChunk
from penstock.model.offset import Offset, Split
from penstock.model.plan import PlaceChunks, Scan
from penstock.model.schema import TableId
from penstock.snapshot.driver_side import BYTES_MAX, ROWS_MAX, driver_places, driver_reads
from penstock.sources.mysql.binlog_position import BinlogPosition
from penstock.sources.mysql.snapshot.window import MySqlWindow

TABLE = TableId("shop", "orders")
ALL = Chunk(TABLE, 0, None, None)
MARKS = MySqlWindow("", BinlogPosition("binlog.000001", 4)).watermarks
STAGED = StagedChunk(ALL, "x", "/x", 10, 100, "", 1, MARKS, "uuid", bytes_read=1000)


@pytest.mark.parametrize("rows_guess", [0, 10, ROWS_MAX])
def test_a_small_table_is_read_here(rows_guess: int) -> None:
    assert driver_reads(ALL, rows_guess)


@pytest.mark.parametrize(
    ("chunk", "rows_guess"),
    [
        (ALL, ROWS_MAX + 1),
        (replace(ALL, upper=("5",)), 10),
        (replace(ALL, lower=("5",)), 10),
        (replace(ALL, number=1, lower=("5",), upper=("9",)), 10),
        (replace(ALL, snapshot=3), 10),
        (replace(ALL, snapshot=3, condition="paid = 1"), 10),
    ],
    ids=["many rows", "the first of several", "the last", "one between", "a part", "a condition"],
)
def test_what_may_be_large_is_read_by_a_job(chunk: Chunk, rows_guess: int) -> None:
    assert not driver_reads(chunk, rows_guess)


def test_keys_that_are_named_are_read_here_whatever_the_size_of_their_table() -> None:
    assert driver_reads(replace(ALL, snapshot=3, keys=(("1",), ("2",))), 10**9)


def split(size: int) -> Split:
    return Split("segment", Offset(0), Offset(100), Offset(100 + size))


def scanning(*sizes: int) -> tuple[Scan, ...]:
    return tuple(Scan((split(size),), None) for size in sizes)


@pytest.mark.parametrize(
    ("here", "step"),
    [
        (True, {}),
        (True, {"scans": scanning(1000)}),
        (True, {"chunks": (replace(STAGED, bytes_read=BYTES_MAX, rows=10**6),)}),
        (False, {"chunks": (replace(STAGED, bytes_read=BYTES_MAX + 1),)}),
        (False, {"chunks": (replace(STAGED, bytes_read=BYTES_MAX // 2 + 1),) * 2}),
        (False, {"scans": scanning(BYTES_MAX)}),
        (False, {"scans": scanning(BYTES_MAX // 2, BYTES_MAX // 2)}),
        (False, {"chunks": (STAGED, replace(STAGED, bytes_read=0))}),
        (True, {"chunks": (STAGED, replace(STAGED, bytes_read=0, rows=0))}),
        (True, {"window": Offset(5)}),
        (False, {"mode": "changes"}),
    ],
)
def test_what_is_appended_is_placed_here_while_it_is_small(here: bool, step: dict[str, Any]) -> None:
    assert (
        driver_places(PlaceChunks(**{"chunks": (STAGED,), "scans": (), "mode": "append"} | step), BYTES_MAX)
        == here
    )


@pytest.mark.parametrize(
    ("here", "step"),
    [
        (True, {}),
        (False, {"newer": False}),
        (False, {"window": Offset(5)}),
        (True, {"chunks": (replace(STAGED, rows=ROWS_MAX),)}),
        (False, {"chunks": (replace(STAGED, rows=ROWS_MAX // 2 + 1),) * 2}),
        (False, {"chunks": (replace(STAGED, rows=1, chunk=replace(ALL, keys=(("1",),) * ROWS_MAX)),)}),
        (False, {"chunks": (replace(STAGED, bytes_read=BYTES_MAX + 1),)}),
    ],
)
def test_what_is_merged_here_has_few_rows_which_are_newer_than_the_targets(
    here: bool, step: dict[str, Any]
) -> None:
    fields = {"chunks": (STAGED,), "scans": (), "mode": "merge", "newer": True}
    assert driver_places(PlaceChunks(**fields | step), BYTES_MAX) == here  # type: ignore[arg-type]


def test_a_limit_of_zero_leaves_all_rows_to_spark() -> None:
    assert not driver_places(PlaceChunks(chunks=(STAGED,), scans=(), mode="append"), 0)
