"""How the rows of a step are made follows from the step alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from penstock.epochs import strategy
from penstock.epochs.strategy import (
    KEYS_BYTES_MAX,
    REMOTE_SHARES_MAX,
    SHARE_BYTES,
    WHOLE_RANGE_BYTES_MAX,
    EventStrategy,
    SharesOfChunks,
    SharesOfRange,
    ShuffleByKey,
    TaskPerSplit,
    kind_of,
    mode_of,
)
from penstock.model.chunk import Chunk, StagedChunk
from penstock.model.offset import Offset
from penstock.model.plan import ApplyEvents, PlaceChunks
from penstock.model.schema import TableId
from penstock.sinks.rows import AnyOrder, Incomplete, Newer
from penstock.sources.mysql.binlog_position import BinlogPosition
from penstock.sources.mysql.snapshot.window import MySqlWindow

CORES = 4
DRIVER_BYTES_MAX = 16 * 1024**2


def for_events(
    step: ApplyEvents, *, partial_images: bool = False, cores: int = CORES, fetched: bool = False
) -> EventStrategy:
    return strategy.for_events(
        step,
        partial_images=partial_images,
        cores=cores,
        driver_bytes_max=DRIVER_BYTES_MAX,
        fetched=fetched,
    )


def for_chunks(step: PlaceChunks) -> SharesOfChunks:
    return strategy.for_chunks(step, cores=CORES, driver_bytes_max=DRIVER_BYTES_MAX)


def events(size: int, *, newer: bool = True) -> ApplyEvents:
    return ApplyEvents((), "merge", size, newer=newer)


def test_a_change_log_has_every_image_so_each_split_is_a_task_whatever_its_size() -> None:
    for size in (1, WHOLE_RANGE_BYTES_MAX + 1):
        step = replace(events(size), mode="changes")
        assert for_events(replace(step, newer=False)) == TaskPerSplit()
        assert for_events(step) == TaskPerSplit(newer=True, driver_side=size == 1)
        assert mode_of(step, partial_images=True) == "changes"


@pytest.mark.parametrize(
    ("size", "tasks", "driver_side"),
    [
        (0, 1, True),
        (DRIVER_BYTES_MAX, 1, True),
        (DRIVER_BYTES_MAX + 1, 1, False),
        (2 * SHARE_BYTES, 2, False),
        (20 * SHARE_BYTES, CORES, False),
        (WHOLE_RANGE_BYTES_MAX, CORES, False),
    ],
)
def test_up_to_a_limit_each_task_reads_the_whole_range_and_few_events_need_no_job(
    size: int, tasks: int, driver_side: bool
) -> None:
    assert for_events(events(size)) == SharesOfRange(tasks, newer=True, driver_side=driver_side)


def test_no_task_holds_more_keys_than_it_may_however_few_cores_there_are() -> None:
    found = for_events(events(WHOLE_RANGE_BYTES_MAX), cores=1)
    assert isinstance(found, SharesOfRange)
    assert found.tasks * KEYS_BYTES_MAX >= WHOLE_RANGE_BYTES_MAX


def test_beyond_the_limit_keys_are_brought_together_by_a_shuffle() -> None:
    step = events(WHOLE_RANGE_BYTES_MAX + 1)
    assert for_events(step) == ShuffleByKey(step.bytes // (2 * SHARE_BYTES), newer=True)
    assert for_events(step, cores=500) == ShuffleByKey(500, newer=True)


@pytest.mark.parametrize("cores", [1, REMOTE_SHARES_MAX, 100])
@pytest.mark.parametrize("size", [SHARE_BYTES, 20 * SHARE_BYTES, WHOLE_RANGE_BYTES_MAX])
def test_a_range_that_tasks_fetch_is_fetched_by_few_tasks_or_each_byte_by_one(cores: int, size: int) -> None:
    fetched, local = (
        for_events(events(size), cores=cores, fetched=True),
        for_events(events(size), cores=cores),
    )
    assert isinstance(local, SharesOfRange)
    if local.tasks > REMOTE_SHARES_MAX:
        assert fetched == ShuffleByKey(local.tasks, newer=True)
    else:
        assert fetched == local


@pytest.mark.parametrize("size", [1, WHOLE_RANGE_BYTES_MAX + 1])
def test_rows_that_lack_columns_are_merged_with_those_of_the_target_by_a_job(size: int) -> None:
    step = replace(events(size), mode="append")
    found = for_events(step, partial_images=True)
    assert not isinstance(found, TaskPerSplit) and not found.newer
    assert isinstance(found, ShuffleByKey) or not found.driver_side
    assert mode_of(step, partial_images=True) == "merge" and mode_of(step, partial_images=False) == "append"


def test_events_that_may_be_in_the_target_already_need_a_job() -> None:
    found = for_events(events(1, newer=False))
    assert found == SharesOfRange(1, newer=False, driver_side=False)


def chunks(count: int, *, rows: int = 5, size: int = 100) -> PlaceChunks:
    marks = MySqlWindow("", BinlogPosition("binlog.000001", 4)).watermarks
    staged = [
        StagedChunk(Chunk(TableId("shop", "t"), number, None, None), "a", "p", rows, 1, "s", 1, marks, "u",
                    bytes_read=size)
        for number in range(count)
    ]  # fmt: skip
    return PlaceChunks(tuple(staged), (), "merge", newer=True)


def test_chunks_are_shared_out_among_the_cores() -> None:
    assert for_chunks(chunks(3)) == SharesOfChunks(3, newer=True, driver_side=True)
    many = for_chunks(chunks(9, size=DRIVER_BYTES_MAX))
    assert many == SharesOfChunks(CORES, newer=True, driver_side=False)


def test_chunks_whose_rows_foreign_keys_change_in_their_window_are_not_newer() -> None:
    step = replace(chunks(1), window=Offset(7))
    assert for_chunks(step) == SharesOfChunks(1, newer=False, driver_side=False)


def few_rows() -> Iterator[Any]:
    return iter([])


NEWER_WAYS: list[Any] = [
    SharesOfRange(1, newer=True, driver_side=False),
    ShuffleByKey(2, newer=True),
    SharesOfChunks(1, newer=True, driver_side=False),
]


@pytest.mark.parametrize("way", NEWER_WAYS)
def test_the_sink_knows_that_rows_are_newer(way: Any) -> None:
    assert kind_of(way, None, in_driver=few_rows) == Newer()
    assert kind_of(replace(way, newer=False), None, in_driver=few_rows) == AnyOrder()


@pytest.mark.parametrize("way", [SharesOfRange(1, newer=True, driver_side=True),
                                 SharesOfChunks(1, newer=True, driver_side=True)])  # fmt: skip
def test_the_sink_can_have_few_rows_made_by_the_driver(way: Any) -> None:
    assert kind_of(way, None, in_driver=few_rows) == Newer(few_rows)


def test_rows_that_may_lack_columns_are_never_newer() -> None:
    incomplete = Incomplete({"id": 0}, target_is_complete=True)
    for way in NEWER_WAYS:
        assert kind_of(way, incomplete, in_driver=few_rows) == incomplete


def test_appended_chunks_are_newer_and_their_window_does_not_matter() -> None:
    step = replace(chunks(1), mode="append", newer=False, window=Offset(7))
    assert for_chunks(step) == SharesOfChunks(1, newer=True, driver_side=True)
