"""Delta targets with partitions and with clustering. Spark's own reading judges."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.conftest import Place, column
from tests.sinks.lake.delta.test_files import delta, live_files, sql
from tests.sinks.lake.iceberg.test_small_commit import few
from tests.sinks.lake.test_file_merge import by_files, newer

from penstock.errors import TableError
from penstock.sinks.lake.delta.table_options import DeltaShape

Make = Callable[..., Place]
COLUMNS = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("day", pa.date32()), ("n", pa.int32()),
     ("at", pa.timestamp("us"))]
)  # fmt: skip
DAYS = [date(2026, 1, 1), date(2026, 1, 2), date(1999, 12, 31), None]
TIMES = [datetime(2026, 1, 1, 3, 4, 5, 678901), datetime(1970, 1, 1), None]


def laid_out(place: Make, **shape: Any) -> Place:
    tables = [{"match": "*.*", **shape}]
    return place("delta", arrow=COLUMNS, config={"tables": tables}).create()


def row(key: int, sequence: int, chance: random.Random, *, deleted: bool = False) -> tuple[Any, ...]:
    values = (f"name {key}", chance.choice(DAYS), chance.randrange(3), chance.choice(TIMES))
    return (key, *values, deleted, sequence)


@pytest.mark.parametrize(
    ("shape", "epochs"),
    [
        pytest.param({"partition_by": ["day", "N"]}, 3, id="partitions"),
        pytest.param({"partition_by": ["day", "N"]}, 6, id="partitions, compacted", marks=pytest.mark.slow),
        pytest.param({"cluster_by": ["at", "name"]}, 6, id="clustered", marks=pytest.mark.slow),
    ],
)
def test_rows_that_move_between_partitions_are_right_after_any_number_of_merges(
    place: Make, shape: dict[str, Any], epochs: int
) -> None:
    it, chance, expected = laid_out(place, **shape), random.Random(7), dict[int, tuple[Any, ...]]()
    for epoch in range(1, epochs + 1):
        keys = chance.sample(range(60), 25)
        rows = [row(key, epoch, chance, deleted=chance.random() < 0.2) for key in keys]
        make = few if epoch % 2 else newer
        assert it.sink.merge(it.table, make(it, *rows), it.key, it.commit(epoch))
        assert by_files(it)
        for one in rows:
            expected.pop(one[0], None)
            if not one[-2]:
                expected[one[0]] = (*one[:-2], one[-1])
        if epoch == 4:
            sql(it, "OPTIMIZE {}")
    assert it.rows() == sorted(expected.values())
    for day in DAYS[:3]:
        found = it.sink.read(it.table).where(f"day = DATE '{day}'").count()
        assert found == sum(one[2] == day for one in expected.values()), day
    for number in range(3):
        found = it.sink.read(it.table).where(f"n = {number}").count()
        assert found == sum(one[3] == number for one in expected.values())
    moment = TIMES[0]
    found = it.sink.read(it.table).where(f"at = TIMESTAMP_NTZ '{moment}'").count()
    assert found == sum(one[4] == moment for one in expected.values())


def test_spark_reads_only_the_files_of_a_partition(place: Make) -> None:
    it = laid_out(place, partition_by=["day"])
    rows = [(n, "a", DAYS[n % 4], 1, None, False, 1) for n in range(40)]
    it.sink.append(it.table, few(it, *rows), it.commit(1))
    assert by_files(it)
    frame = it.sink.read(it.table)
    assert len(frame.inputFiles()) == 4
    assert len(frame.where("day = DATE '2026-01-02'").inputFiles()) == 1
    assert frame.where("day IS NULL").count() == 10


def test_a_table_with_partitions_by_its_key_is_merged_by_spark(place: Make) -> None:
    """Files that Spark has written lack the column, so keys are not found in them."""
    it = laid_out(place, partition_by=["id"])
    it.sink.append(it.table, few(it, (1, "a", None, 1, None, False, 1)), it.commit(1))
    assert by_files(it)
    it.sink.merge(it.table, newer(it, (1, "b", None, 2, None, False, 2)), it.key, it.commit(2))
    assert not by_files(it) and [one[:2] for one in it.rows()] == [(1, "b")]


def test_files_of_a_clustered_table_have_statistics_of_its_columns(place: Make) -> None:
    it = laid_out(place, cluster_by=["at", "name"])
    long = "x" * 100
    it.sink.append(it.table, few(it, (1, long, None, 1, TIMES[0], False, 1)), it.commit(1))
    assert by_files(it)
    [file] = live_files(it)
    stats = json.loads(file["stats"])
    fields = json.loads(delta(it).load(it.table).schema().json())["fields"]
    names = {one["name"]: one["metadata"]["delta.columnMapping.physicalName"] for one in fields}
    assert stats["minValues"][names["at"]] == "2026-01-01T03:04:05.678"
    assert stats["maxValues"][names["name"]] == long
    detail = it.spark.sql(f"DESCRIBE DETAIL {delta(it).name(it.table)}").collect()[0]
    assert detail["clusteringColumns"] == ["at", "name"]
    sql(it, "OPTIMIZE {}")
    assert it.rows() == [(1, long, None, 1, TIMES[0], 1)]


def test_a_renamed_column_stays_one_of_the_layout_and_a_dropped_one_is_refused(place: Make) -> None:
    it = laid_out(place, partition_by=["day"])
    it.sink.append(it.table, few(it, (1, "a", DAYS[0], 1, None, False, 1)), it.commit(1))
    same = [column(name, COLUMNS.field(name).type, name) for name in ("id", "name", "n", "at")]
    it.evolve(2, *same, column("date", pa.date32(), "day"))
    it.sink.append(it.table, few(it, (2, "a", 1, None, DAYS[1], False, 1)), it.commit(3))
    assert by_files(it)
    assert it.spark.sql(f"DESCRIBE DETAIL {delta(it).name(it.table)}").collect()[0]["partitionColumns"] == [
        "date"
    ]
    assert it.sink.read(it.table).where("date = DATE '2026-01-02'").count() == 1
    with pytest.raises(TableError, match="partitioned or clustered by date"):
        it.evolve(4, *same)
    assert it.sink.read(it.table).count() == 2


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"partition_by": "name"}, "`partition_by` has `name`, but the column is of type string"),
        ({"partition_by": "gone"}, "there is no such column"),
        ({"cluster_by": "gone"}, "there is no such column"),
        ({"properties": {"delta.nonsense": "1"}}, "Delta says"),
        ({"properties": {"delta.logRetentionDuration": "interval 1 day"}}, "Delta says.*greater than"),
    ],
)
def test_a_layout_that_does_not_fit_is_told(place: Make, shape: dict[str, Any], message: str) -> None:
    with pytest.raises(TableError, match=message) as caught:
        laid_out(place, **shape)
    assert "sink.tables" in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"match": "orders"}, "names no database"),
        ({"match": "*.*", "partition_by": "a", "cluster_by": "b"}, "not both"),
        ({"match": "*.*", "cluster_by": ["a", "b", "c", "d", "e"]}, "at most 4"),
        ({"match": "*.*", "cluster_by": ["a", "A"]}, "twice"),
        ({"match": "*.*", "partition_by": "_sequence"}, "Penstock itself writes"),
        ({"match": "*.*", "properties": {"penstock.x": "1"}}, "set by Penstock itself"),
        ({"match": "*.*", "properties": {"delta.appendOnly": True}}, "would refuse updates and deletes"),
        (
            {"match": "*.*", "properties": {"delta.setTransactionRetentionDuration": "interval 1 day"}},
            "would forget what was committed",
        ),
    ],
)
def test_what_cannot_work_is_refused_at_once(shape: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DeltaShape.model_validate(shape)
