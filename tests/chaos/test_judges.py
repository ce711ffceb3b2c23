"""Each judge can fail: what is broken on purpose is reported. A judge that cannot is worth nothing."""

from __future__ import annotations

import json
import os
import shutil
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.chaos import judge, orphans, results
from tests.chaos.leaks import Footprint, grown
from tests.chaos.play import verdict_of
from tests.chaos.schedule import schedule

from penstock.testing.oracle import OracleColumn
from penstock.testing.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOW = datetime(2026, 1, 2, 3, 4, 5)
COLUMNS = [OracleColumn("id", "int", 1), OracleColumn("v", "varchar", None)]


@pytest.fixture
def source(mysql: Database) -> Database:
    mysql.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))", "INSERT INTO t VALUES (1, 'a'), (2, 'b')"
    )
    return mysql


def frame(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), "id INT, v STRING")


def test_rows_that_are_missing_too_many_or_other_ones_are_reported(
    source: Database, spark: SparkSession
) -> None:
    name = f"{source.name}.t"
    assert judge.rows_differ(source, name, frame(spark, (2, "b"), (1, "a"))) == ""
    for rows, said in (
        ([(1, "a")], "1 missing, 0 too many"),
        ([(1, "a"), (2, "b"), (2, "b")], "0 missing, 1 too many"),
        ([(1, "a"), (2, "x")], "1 missing, 1 too many"),
    ):
        assert said in judge.rows_differ(source, name, frame(spark, *rows))
    lacking = spark.createDataFrame([(1,), (2,)], "id INT")
    assert "lacks the columns ['v']" in judge.rows_differ(source, name, lacking)


GOOD: list[tuple[Any, ...]] = [
    (10, "read", 1, "a"),
    (20, "insert", 2, "old"),
    (30, "update_preimage", 2, "old"),
    (30, "update_postimage", 2, "b"),
    (40, "insert", 3, "c"),
    (50, "delete", 3, "c"),
]


def changes(spark: SparkSession, rows: list[tuple[Any, ...]]) -> DataFrame:
    committed = [(sequence, kind, NOW, *values) for sequence, kind, *values in rows]
    names = "_sequence LONG, _change_type STRING, _commit_timestamp TIMESTAMP, id INT, v STRING"
    return spark.createDataFrame(committed, names)


def test_a_change_log_that_is_whole_is_the_table(source: Database, spark: SparkSession) -> None:
    assert judge.log_differs(source, f"{source.name}.t", changes(spark, GOOD)) == []


def test_an_event_twice_in_a_change_log_is_reported(source: Database, spark: SparkSession) -> None:
    said = judge.log_differs(source, f"{source.name}.t", changes(spark, [*GOOD, GOOD[1]]))
    assert any("there twice" in line for line in said)


@pytest.mark.parametrize("lost", [1, 3, 4, 5])
def test_an_event_that_is_missing_from_a_change_log_is_reported(
    source: Database, spark: SparkSession, lost: int
) -> None:
    rows = [row for number, row in enumerate(GOOD) if number != lost]
    assert judge.log_differs(source, f"{source.name}.t", changes(spark, rows))


def test_a_change_of_a_row_that_was_another_one_is_reported() -> None:
    rows = [(1, "insert", 1, "a"), (3, "update_preimage", 1, "b"), (3, "update_postimage", 1, "c")]
    _, wrong = judge.replayed(rows, COLUMNS)
    assert "a change is missing" in wrong[0]


def test_a_change_after_a_delete_is_reported_and_a_change_while_a_row_is_read_is_not() -> None:
    first = [(1, "update_preimage", 1, "a"), (1, "update_postimage", 1, "b"), (2, "delete", 1, "b")]
    assert judge.replayed(first, COLUMNS, read_to=1) == ([], [])
    assert judge.replayed(first, COLUMNS, read_to=0)[1] == ["update_preimage at 1 of a row that is not there"]
    assert judge.replayed([(0, "truncate", None, None), *first], COLUMNS, read_to=0) == ([], [])
    for kind in ("delete", "update_preimage"):
        _, wrong = judge.replayed([*first, (3, kind, 1, "b")], COLUMNS, read_to=1)
        assert wrong == [f"{kind} at 3 of a row that is not there"]


def test_a_key_read_as_absent_is_reported_only_if_its_row_was_never_deleted() -> None:
    gone = [(1, "insert", 1, "a"), (2, "delete", 1, "a"), (3, "absent", 1, None), (3, "absent", 7, None)]
    assert judge.replayed(gone, COLUMNS) == ([], [])
    _, wrong = judge.replayed([gone[0], gone[2]], COLUMNS)
    assert "a change is missing" in wrong[0]


def test_gaps_and_doubles_of_a_ledger_are_reported() -> None:
    assert judge.ledger_differs([0, 1, 2, 3], range(4)) == []
    assert judge.ledger_differs([0, 1, 3], range(4)) == ["ledger: 1 gaps, such as [2]"]
    assert judge.ledger_differs([0, 1, 1, 2], range(3)) == ["ledger: 1 doubles, such as [1]"]
    assert judge.ledger_differs([0, 1, 2], [0, 2]) == ["ledger: 1 that the source lacks, such as [1]"]


def test_a_run_that_ends_with_a_trace_or_without_a_word_is_reported() -> None:
    ours = json.dumps({"error": "TransientError", "message": "The source cannot be reached.", "hint": ""})
    assert judge.ends_differ(0, "WARNING x: y", may_end=False) == []
    assert judge.ends_differ(-9, "half a li", may_end=False) == []
    assert judge.ends_differ(1, f"WARNING x: y\n{ours}\n", may_end=True) == []
    assert "need not" in judge.ends_differ(1, ours, may_end=False)[0]
    bug = json.dumps({"error": "InternalError", "message": "A broken promise.", "hint": ""})
    assert "InternalError" in judge.ends_differ(1, bug, may_end=True)[0]
    assert "no error of ours" in judge.ends_differ(1, "killed", may_end=True)[0]
    assert "code 134" in judge.ends_differ(134, "", may_end=True)[0]
    for said in ("Traceback (most recent call last):\n  File …", "java.lang.X\n\tat org.apache.Y"):
        assert judge.ends_differ(0, said, may_end=True)


def test_files_that_nobody_owns_are_reported_in_relay_log_and_state(tmp_path: Path) -> None:
    relay, state = tmp_path / "relay", tmp_path / "state"
    for folder in (relay / "prepared", relay / "consumers", state / "chunks" / "1", state / "tmp"):
        folder.mkdir(parents=True)
    segment = f"{0:020d}-{1:06d}"
    for name in (f"{segment}.binlog", f"{segment}.index", "relay.json", "lease", "consumers/chaos.json"):
        (relay / name).touch()
    for name in ("state.sqlite", "lock"):
        (state / name).touch()
    assert orphans.in_relay(relay) == orphans.in_state(state) == []
    (relay / "receiver.json.17.tmp").touch()
    (relay / f"{5:020d}-{1:06d}.binlog").touch()
    (relay / "prepared" / "1-1.xa").touch()
    assert len(orphans.in_relay(relay)) == 3
    (state / "chunks" / "1" / "rows.parquet").touch()
    (state / "tmp" / "left").touch()
    (state / "state.sqlite.draft").touch()
    assert len(orphans.in_state(state)) == 3
    (state / "status.json").touch()
    assert len(orphans.in_state(state)) == 4
    assert len(orphans.in_state(state, by_force=True)) == 3
    drafts = state / "staging" / ".penstock" / "drafts"
    drafts.mkdir(parents=True)
    (drafts / "1").touch()
    assert len(orphans.in_state(state)) == 5
    assert len(orphans.in_state(state, was_cut=True)) == 4


@pytest.mark.parametrize("sink", ["iceberg", "delta", "parquet"])
def test_data_files_that_no_commit_names_are_reported(
    spark: SparkSession, lake_root: Path, tmp_path: Path, sink: str
) -> None:
    namespace = f"judged_{os.getpid()}"
    rows = frame(spark, (1, "a")).coalesce(1)
    if sink == "iceberg":
        place = lake_root / "iceberg" / namespace
        spark.sql(f"CREATE NAMESPACE lake.{namespace}")
        rows.writeTo(f"lake.{namespace}.t").create()
        rows.writeTo(f"lake.{namespace}.t").append()
    else:
        place = tmp_path / namespace
        folder = place / "t" / ("penstock_commit=e1s1" if sink == "parquet" else "")
        rows.write.format(sink).save(str(folder))
        for mark in folder.glob("_SUCCESS"):
            mark.unlink()
    assert orphans.in_lake(spark, sink, place) == []
    found = next(path for path in place.rglob("*.parquet") if "_delta_log" not in path.parts)
    lost = place / "t" / "_staging" / "x.parquet" if sink == "parquet" else found.with_name("lost.parquet")
    lost.parent.mkdir(exist_ok=True)
    shutil.copy(found, lost)
    assert orphans.in_lake(spark, sink, place) == [f"lake: {lost.relative_to(place)}"]


def test_memory_threads_and_handles_that_grow_are_reported() -> None:
    before = Footprint({"driver": (7, {"threads": 20, "handles": 50, "memory_mb": 200})})
    assert grown(before, before) == []
    after = Footprint({"driver": (7, {"threads": 60, "handles": 500, "memory_mb": 200})})
    assert grown(before, after) == ["driver: threads 20 -> 60", "driver: handles 50 -> 500"]
    assert grown(before, Footprint({"driver": (8, after.of["driver"][1])})) == []  # another process


def test_a_table_of_results_counts_kinds_and_what_they_found() -> None:
    one = {"faults": [str(fault) for fault in schedule(3).faults], "lead": schedule(3).lead, "skipped": ""}
    text = results.table([{**one, "found": ["x"]}, {**one, "found": []}])
    line = next(line for line in text.splitlines() if f"`{schedule(3).lead}`" in line)
    assert line.endswith("| 2 | 1 |")


def test_seeds_that_were_played_are_kept_with_their_newest_verdict(tmp_path: Path) -> None:
    played = tmp_path / "played.jsonl"
    verdict = verdict_of(schedule(3)).to_json()
    other = verdict_of(schedule(4)).to_json()
    results.keep([{**verdict, "found": ["x"]}, other], played)
    text = results.summary(results.load([played]), [{"lead": schedule(3).lead, "fixed": False}])
    line = next(line for line in text.splitlines() if f"`{schedule(3).lead}`" in line)
    assert line.endswith("| 1 | 1 | 0 | 1 |")  # runs, found, fixed, open
    results.keep([{**verdict, "found": [], "notes": ["of no use later"]}], played)
    kept = results.load([played])
    assert [(one["seed"], one["found"]) for one in kept] == [(3, []), (4, [])]
    assert "notes" not in kept[0]
