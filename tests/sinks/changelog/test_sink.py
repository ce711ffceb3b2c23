"""The Parquet change log: plain readers see whole commits, each once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession
from tests.sinks.conftest import Place, column

from penstock.errors import ConfigError, InternalError
from penstock.model.schema import TableId
from penstock.sinks.base import ChangeSink, Foreign, Missing, Ours, TableSink, table_sink
from penstock.sinks.changelog.sink import MARKER, MARKER_DRAFT, SCHEMA, STAGING, ParquetSink

Make = Callable[..., Place]


def path(place: Place) -> Path:
    assert isinstance(place.sink, ParquetSink)
    return place.sink.path(place.table)


def changes(place: Place) -> list[tuple[int, str]]:
    frame = place.sink.read(place.table)
    return sorted((row["id"], row["_change_type"]) for row in frame.collect())


def test_a_change_log_takes_every_change_and_a_replay_adds_nothing(place: Make) -> None:
    it = place("parquet")
    it.sink.check()
    assert it.sink.open(it.table) == Missing()
    it.create()
    assert it.sink.open(it.table) == Ours(None, ("id", "name"), True)
    assert changes(it) == []
    frame = it.changelog(
        (1, "a", "insert", 1), (1, "a", "update_preimage", 2), (1, "b", "update_postimage", 2)
    )
    assert it.sink.write_changes(it.table, frame, it.commit(1))
    assert not it.sink.write_changes(it.table, frame, it.commit(1))
    assert it.sink.write_changes(it.table, it.changelog((1, "b", "delete", 3)), it.commit(1, 1))
    assert not it.sink.write_changes(it.table, frame, it.commit(1))
    assert len(changes(it)) == 4
    assert it.sink.open(it.table) == Ours(it.commit(1, 1), ("id", "name"), False)


def test_plain_spark_and_pyarrow_read_the_directory(place: Make, spark: SparkSession) -> None:
    it = place(
        "parquet", arrow=pa.schema([("id", pa.int64()), ("a.b c", pa.string()), ("epoch", pa.int32())])
    ).create()
    it.sink.write_changes(it.table, it.changelog((1, "x", 5, "insert", 1)), it.commit(1))
    it.sink.write_changes(it.table, it.changelog((2, "y", 6, "insert", 2)), it.commit(2))
    columns = ["id", "a.b c", "epoch", "_change_type", "_sequence", "_commit_timestamp"]
    frame = spark.read.parquet(str(path(it)))
    assert frame.columns == [*columns, "penstock_commit"]
    assert sorted((row["id"], row["epoch"]) for row in frame.collect()) == [(1, 5), (2, 6)]
    table = ds.dataset(path(it), partitioning="hive").to_table()
    assert table.column_names == [*columns, "penstock_commit"]
    assert sorted(table["id"].to_pylist()) == [1, 2]


def test_what_a_killed_step_left_is_not_seen_and_replaced(place: Make, spark: SparkSession) -> None:
    it = place("parquet").create()
    staged = path(it) / STAGING / "e000000000001s0000"
    it.changelog((9, "torn", "insert", 1)).frame.write.parquet(str(staged))
    (staged / "part-torn.parquet").write_bytes(b"PAR1")
    assert changes(it) == []
    it.sink.write_changes(it.table, it.changelog((1, "a", "insert", 1)), it.commit(1))
    assert changes(it) == [(1, "insert")]
    assert spark.read.parquet(str(path(it))).count() == 1
    assert not staged.exists()


def test_old_commits_may_be_deleted_by_their_owner(place: Make) -> None:
    import shutil

    it = place("parquet").create()
    it.sink.write_changes(it.table, it.changelog((1, "a", "insert", 1)), it.commit(1))
    for directory in path(it).glob("penstock_commit=*"):
        shutil.rmtree(directory)
    assert not it.sink.write_changes(it.table, it.changelog((1, "a", "insert", 1)), it.commit(1))


def test_a_truncate_is_one_row_of_the_log(place: Make) -> None:
    it = place("parquet").create()
    it.sink.write_changes(it.table, it.changelog((1, "a", "insert", 1)), it.commit(1))
    assert it.sink.truncate(it.table, it.commit(2), sequence=7, timestamp_us=1_700_000_000_000_000)
    assert not it.sink.truncate(it.table, it.commit(2), sequence=7)
    row = it.sink.read(it.table).where("_change_type = 'truncate'").collect()
    assert [(one["id"], one["_sequence"], one["_commit_timestamp"].year) for one in row] == [(None, 7, 2023)]


def test_an_added_column_is_seen_by_plain_readers_and_null_before(place: Make, spark: SparkSession) -> None:
    it = place("parquet").create()
    it.sink.write_changes(it.table, it.changelog((1, "a", "insert", 1)), it.commit(1))
    columns = [
        column("id", pa.int64(), "id"),
        column("x", pa.int32(), default="5"),
        column("name", pa.string(), "name"),
    ]
    assert it.evolve(2, *columns)
    assert not it.evolve(2, *columns)
    it.sink.write_changes(it.table, it.changelog((2, 6, "b", "insert", 3)), it.commit(3))
    for frame in (it.sink.read(it.table), spark.read.parquet(str(path(it)))):
        assert sorted((row["id"], row["x"]) for row in frame.collect()) == [(1, None), (2, 6)]


def test_a_version_reads_as_it_was(place: Make) -> None:
    it = place("parquet").create()
    assert it.sink.version(it.table) is None
    it.sink.write_changes(it.table, it.changelog((1, "a", "insert", 1)), it.commit(1))
    version = it.sink.version(it.table)
    it.sink.write_changes(it.table, it.changelog((2, "a", "insert", 2)), it.commit(2))
    assert [row["id"] for row in it.sink.read(it.table, version).collect()] == [1]


def test_something_else_in_its_place_is_foreign(place: Make) -> None:
    it = place("parquet")
    path(it).mkdir(parents=True)
    (path(it) / "data.csv").write_text("x")
    assert isinstance(it.sink.open(it.table), Foreign)
    other = place("parquet").create()
    assert isinstance(Place(it.spark, other.config).sink.open(other.table), Foreign)


def test_a_change_log_keeps_no_tables(place: Make) -> None:
    it = place("parquet").create()
    assert isinstance(it.sink, ChangeSink) and not isinstance(it.sink, TableSink)
    with pytest.raises(InternalError, match="keeps no tables"):
        table_sink(it.sink)


def test_tables_may_have_any_name(place: Make) -> None:
    it = place("parquet", table=TableId("_x/..", "日本 %20=#?*")).create()
    it.sink.write_changes(it.table, it.changelog((1, "a", "insert", 1)), it.commit(1))
    assert changes(it) == [(1, "insert")]


def test_a_change_log_goes_on_under_new_names_and_types_and_keeps_what_was(
    place: Make, spark: SparkSession
) -> None:
    arrow = pa.schema([("id", pa.int32()), ("a", pa.string()), ("gone", pa.int32()), ("n", pa.int32())])
    it = place("parquet", arrow=arrow).create()
    it.sink.write_changes(it.table, it.changelog((1, "va", 7, 5, "insert", 1)), it.commit(1))
    it.sink.write_changes(it.table, it.changelog((2, "va", 7, None, "insert", 2)), it.commit(2))
    wanted = [column("id", pa.int64(), "id"), column("b", pa.string(), "a"), column("n", pa.string(), "n")]
    assert it.evolve(3, *wanted)
    assert not it.evolve(3, *wanted)
    it.sink.write_changes(it.table, it.changelog((2**40, "vb", "text", "insert", 4)), it.commit(4))
    assert it.sink.open(it.table) == Ours(it.commit(4), ("id", "b", "n"), False)
    for frame in (it.sink.read(it.table), spark.read.parquet(str(path(it)))):
        found = sorted((row["id"], row["a"], row["b"], row["gone"], row["n"]) for row in frame.collect())
        assert found == [
            (1, "va", None, 7, "5"), (2, "va", None, 7, None), (2**40, None, "vb", None, "text")
        ]  # fmt: skip


def test_a_damaged_marker_is_a_clear_error(place: Make) -> None:
    it = place("parquet").create()
    (path(it) / MARKER).write_bytes(b"\xff{")
    with pytest.raises(ConfigError, match=f"The change log of {it.table} is damaged") as raised:
        it.sink.open(it.table)
    assert "penstock resnapshot" in raised.value.hint


def test_what_a_killed_creation_has_left_is_no_target(place: Make) -> None:
    it = place("parquet")
    path(it).mkdir(parents=True)
    (path(it) / MARKER_DRAFT).write_text("{")
    assert it.sink.open(it.table) == Missing()
    assert isinstance(it.create().sink.open(it.table), Ours)


def test_others_may_read_a_change_log_as_far_as_the_umask_lets_them(place: Make) -> None:
    before = os.umask(0o027)
    try:
        it = place("parquet").create()
    finally:
        os.umask(before)
    assert {(path(it) / name).stat().st_mode & 0o777 for name in (MARKER, SCHEMA)} == {0o640}
