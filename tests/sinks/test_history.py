"""The history of definitions as a table: each entry once, whatever is repeated or undone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.errors import ConfigError, TransientError
from penstock.model.change import CHANGE_TYPE, COMMIT_TIMESTAMP, DELETED, SEQUENCE
from penstock.model.offset import Offset
from penstock.model.schema import TableId
from penstock.model.table import Change
from penstock.sinks.base import readable
from penstock.sinks.kind import SinkOptions
from penstock.sinks.registry import kind, open_sink
from penstock.sinks.rows import Rows
from penstock.spark.history import COLUMNS, HistoryTable
from penstock.state import StateStore

HISTORY = TableId("penstock", "shop_history")


@pytest.fixture(params=["iceberg", pytest.param("delta", marks=pytest.mark.slow), "parquet"])
def config(request: pytest.FixtureRequest, lake_root: Path, tmp_path: Path) -> SinkOptions:
    path = lake_root / "iceberg" if request.param == "iceberg" else tmp_path / "sink"
    namespace = f"history_{tmp_path.name}".replace("-", "_")
    found: SinkOptions = kind(request.param).options(type=request.param, path=path, namespace=namespace)
    return found


def table(spark: SparkSession, config: SinkOptions, state: StateStore) -> HistoryTable:
    return HistoryTable(spark, open_sink(config, spark, state.uuid), state, HISTORY)


def note(state: StateStore, what: str, *, commit_us: int | None = 1_700_000_000_123_456) -> None:
    change = Change(TableId("shop", "orders"), 2, Offset(900), what, "applied", "ALTER TABLE …", commit_us)
    state.add_change(change)


def rows(spark: SparkSession, config: SinkOptions, state: StateStore) -> list[tuple[Any, ...]]:
    frame = readable(open_sink(config, spark, state.uuid)).read(HISTORY)
    return [(row["id"], row["what"]) for row in frame.orderBy("id").collect()]


def test_entries_come_once_and_in_order_also_from_a_process_that_knows_nothing_of_the_last(
    spark: SparkSession, config: SinkOptions, tmp_path: Path
) -> None:
    state = StateStore(tmp_path / "state")
    note(state, "adds a")
    note(state, "adds b", commit_us=None)
    first = table(spark, config, state)
    first.write()
    first.write()
    note(state, "drops a")
    table(spark, config, state).write()
    table(spark, config, state).write()
    assert rows(spark, config, state) == [(1, "adds a"), (2, "adds b"), (3, "drops a")]
    frame = readable(open_sink(config, spark, state.uuid)).read(HISTORY)
    [text] = frame.where("id = 1").selectExpr("CAST(committed AS STRING) AS text").collect()
    assert text["text"].endswith("13:20.123456")
    [second] = frame.where("id = 2").collect()
    assert second["committed"] is None


def test_a_table_of_somebody_else_is_refused(
    spark: SparkSession, config: SinkOptions, tmp_path: Path
) -> None:
    state, other = StateStore(tmp_path / "state"), StateStore(tmp_path / "other")
    note(state, "adds a")
    table(spark, config, state).write()
    with pytest.raises(ConfigError, match="is taken"):
        table(spark, config, other).check()


def test_rows_have_every_column_of_their_layout(
    spark: SparkSession, config: SinkOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateStore(tmp_path / "state")
    note(state, "adds a")
    sink = open_sink(config, spark, state.uuid)
    written: list[Rows] = []
    write = "append" if kind(config.type).keeps_tables else "write_changes"
    monkeypatch.setattr(sink, write, lambda table, rows, commit: written.append(rows))
    HistoryTable(spark, sink, state, HISTORY).write()
    layout = {DELETED} if kind(config.type).keeps_tables else {CHANGE_TYPE, COMMIT_TIMESTAMP}
    [found] = written
    assert set(found.frame.columns) == {*COLUMNS.names, SEQUENCE, *layout}


@pytest.mark.parametrize(("error", "traced"), [(KeyError("x"), True), (TransientError("away"), False)])
def test_an_error_that_nobody_expects_has_its_stack_trace_in_the_log(
    error: Exception,
    traced: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> None:
        raise error

    table: Any = HistoryTable(None, None, StateStore(tmp_path / "state"), HISTORY)  # type: ignore[arg-type]
    monkeypatch.setattr(table, "write", fail)
    assert not table._try()
    [record] = caplog.records
    assert bool(record.exc_info and record.exc_info[0]) == traced


def test_a_run_that_is_stopped_meanwhile_says_that_the_next_one_writes_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def cancelled() -> None:
        raise RuntimeError("SPARK_JOB_CANCELLED")

    table: Any = HistoryTable(None, None, StateStore(tmp_path / "state"), HISTORY)  # type: ignore[arg-type]
    monkeypatch.setattr(table, "write", cancelled)
    table.stop()
    table._run()
    [record] = caplog.records
    assert "left to the next run" in record.message and not record.exc_info
