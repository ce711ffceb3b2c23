"""What happens to targets beside what the conformance suite tries."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.conformance import with_servers

from penstock.errors import DriverReplaced, TableError
from penstock.model.change import DELETED, SEQUENCE
from penstock.model.schema import Column, TableId, TableSchema
from penstock.sinks import registry
from penstock.sinks.base import Commit, Foreign, Ours
from penstock.sinks.clickhouse.client import Client
from penstock.sinks.rows import Newer, Rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
FIELDS = pa.schema([("id", pa.int64()), ("day", pa.date32())])
DAY = datetime.date(2026, 1, 2)

Row = tuple[int, datetime.date | None, bool]


class Place:
    def __init__(self, server: str, key: tuple[str, ...] = ("id",)) -> None:
        self.options = with_servers.options(server)
        self.table = TableId(f"s{uuid.uuid4().hex[:8]}", "orders")
        self.key = key
        self.pipeline = str(uuid.uuid4())
        self.client = Client(self.options)
        self.sink = self.opened()

    def opened(self) -> Any:
        return registry.open_sink(self.options, None, self.pipeline)  # type: ignore[arg-type]

    def create(self) -> None:
        columns = (Column("id", "bigint"), Column("day", "date"))
        self.sink.create(TableSchema(self.table, columns, self.key), FIELDS)

    def merge(self, epoch: int, *rows: Row, sink: Any = None) -> bool:
        columns = list(zip(*rows, strict=True))
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(columns[0], pa.int64()),
                pa.array(columns[1], pa.date32()),
                pa.array(columns[2], pa.bool_()),
                pa.array([epoch * 10] * len(rows), pa.int64()),
            ],
            ["id", "day", DELETED, SEQUENCE],
        )

        def frame() -> Any:
            raise AssertionError("few rows need no Spark")

        made = Rows(frame, Newer(lambda: iter([batch])))
        commit = Commit(self.pipeline, epoch)
        return bool((sink or self.sink).merge(self.table, made, self.key, commit))

    def rows(self) -> list[list[Any]]:
        place = f"`{self.table.database}`.orders"
        return self.client.rows(f"SELECT toInt32(id), toString(day) FROM {place} ORDER BY id, day")


@pytest.fixture(params=["clickhouse", "clickhouse-modern"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    made = Place(request.param)
    made.create()
    yield made
    made.sink.close()


def test_a_driver_that_was_replaced_is_refused_and_its_records_count_no_more(place: Place) -> None:
    place.merge(1, (1, DAY, False))
    other = place.opened()
    other.begin(2)
    other.fence(place.table)
    with pytest.raises(DriverReplaced):
        place.merge(2, (2, DAY, False))
    assert place.merge(2, (1, None, True), sink=other) and place.rows() == []
    found = other.open(place.table)
    assert isinstance(found, Ours) and found.last_commit == Commit(place.pipeline, 2)


def test_a_date_that_the_server_would_change_stops_the_table(place: Place) -> None:
    old = datetime.date(1899, 12, 31)
    if not place.client.is_modern:
        assert place.merge(1, (1, old, False)) and place.rows() == [[1, "1899-12-31"]]
        return
    with pytest.raises(TableError, match="`day`") as refused:
        place.merge(1, (1, old, False))
    assert "sink.dates: text" in refused.value.hint and "1899" not in str(refused.value).replace("1900", "")
    assert place.merge(1, (1, datetime.date(1900, 1, 1), False), (2, datetime.date(2299, 12, 31), False))
    assert place.rows() == [[1, "1900-01-01"], [2, "2299-12-31"]]


def test_compacting_leaves_one_version_of_each_row(place: Place) -> None:
    for epoch in range(1, 5):
        place.merge(epoch, (1, DAY, False), (epoch, DAY, False))
    before = place.rows()
    compacted = place.sink.compact(place.table)
    assert compacted.after == 1 <= compacted.before and place.rows() == before
    database = place.table.database
    [[name]] = place.client.rows(
        f"SELECT name FROM system.tables WHERE database = '{database}' AND name != 'orders'"
    )
    assert place.client.rows(f"SELECT toInt32(count()) FROM `{database}`.`{name}`") == [[4]]


def test_a_view_that_was_not_made_before_a_kill_is_made_with_the_rows_that_are_there(place: Place) -> None:
    place.merge(1, (1, DAY, False))
    place.client.run(f"DROP TABLE `{place.table.database}`.orders")
    place.create()
    assert place.rows() == [[1, "2026-01-02"]]


def test_a_table_whose_name_is_like_that_of_versions_keeps_its_rows(place: Place) -> None:
    other = replace(place.table, table="orders__rows_x")
    columns = (Column("id", "bigint"), Column("day", "date"))
    place.sink.create(TableSchema(other, columns, place.key), FIELDS)
    first, place.table = place.table, other
    place.merge(1, (7, DAY, False))
    place.table = first
    place.merge(1, (1, DAY, False))
    assert place.sink.truncate(first, Commit(place.pipeline, 2), sequence=9)
    shown = f"SELECT toInt32(id) FROM `{other.database}`.`{other.table}`"
    assert place.rows() == [] and place.client.rows(shown) == [[7]]


def test_records_of_earlier_commits_go(place: Place) -> None:
    for epoch in range(1, 6):
        place.merge(epoch, (epoch, DAY, False))
    control = f"{place.options.control}.targets"
    place.client.run(f"OPTIMIZE TABLE {control} FINAL")
    where = f"position(target, '{place.table.database}') > 0"
    assert place.client.rows(f"SELECT toInt32(count()) FROM {control} WHERE {where}") == [[1]]
    found = place.sink.open(place.table)
    assert isinstance(found, Ours) and found.last_commit == Commit(place.pipeline, 5)


@pytest.mark.parametrize("server", ["clickhouse", "clickhouse-modern"])
def test_a_date_in_a_key_may_be_null(server: str) -> None:
    place = Place(server, ("id", "day"))
    place.create()
    place.merge(1, (1, None, False), (1, DAY, False), (1, datetime.date(1970, 1, 1), False))
    place.merge(2, (1, None, False), (1, DAY, True))
    assert place.rows() == [[1, "1970-01-01"], [1, None]]


def test_a_table_of_others_is_not_touched(place: Place) -> None:
    database = place.table.database
    place.client.run(f"CREATE TABLE `{database}`.others (id Int64) ENGINE = MergeTree ORDER BY id")
    other = TableId(database, "others")
    assert isinstance(place.sink.open(other), Foreign)
    place.sink.drop(other)
    assert place.client.rows(f"SELECT toInt32(count()) FROM `{database}`.others") == [[0]]
