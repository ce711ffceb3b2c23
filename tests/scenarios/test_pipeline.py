"""Whole pipelines as a user runs them: snapshot, stream, schema changes, stop and go on."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.scenarios import canaries

from penstock.testing import workload
from penstock.testing.scenario import Scenario
from penstock.testing.servers import Database
from penstock.testing.writer import Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., Scenario]


@pytest.mark.slow  # tests/crash/test_kill9.py has a quick one, with kills
@pytest.mark.parametrize("sink", ["iceberg", "delta"])
def test_source_and_target_are_equal_after_snapshot_and_stream_under_writes(
    scenario: Make, sink: str
) -> None:
    case = scenario(sink, snapshot={"chunk_rows": 2000})
    shop = workload.Shop.of_rows(20_000, database=f"{case.database}_shop")
    workload.load(case.server, shop)
    case.write_file(tables=[f"{shop.database}.*"])
    case.database = shop.database
    try:
        with case.running() as pipeline:
            with Writer(case.server, shop, rate=400, large_every_s=4, large_rows=5000):
                pipeline.wait_until(
                    lambda s: s["snapshot"]["done"] and s["epoch"] > 3, "the snapshot", seconds=240
                )
            case.drain(pipeline)
            assert pipeline.stop() == 0
        case.assert_equal(*workload.TABLES)
    finally:
        case.server.execute(f"DROP DATABASE {shop.database}")


BEFORE = (
    "CREATE TABLE kept (id INT PRIMARY KEY, name VARCHAR(20))",
    "INSERT INTO kept VALUES (1, 'a'), (2, 'b')",
    "CREATE TABLE emptied (id INT PRIMARY KEY)",
    "INSERT INTO emptied VALUES (1), (2), (3)",
    "CREATE TABLE stable (id INT PRIMARY KEY, v INT)",
    "INSERT INTO stable VALUES (1, 1)",
    "CREATE TABLE altered (id INT PRIMARY KEY, v INT, w INT)",
    "INSERT INTO altered VALUES (1, 1, 1), (2, 2, 2)",
    "CREATE TABLE unchanged (id INT PRIMARY KEY, v INT)",
    "INSERT INTO unchanged VALUES (1, 1), (2, 2), (3, 3)",
    "CREATE TABLE keyless (v INT)",
    "INSERT INTO keyless VALUES (1), (1)",
    "CREATE TABLE keyed (a INT NOT NULL, b INT, UNIQUE KEY (a))",
    "INSERT INTO keyed VALUES (1, 1)",
)
CHANGES = (
    "ALTER TABLE kept ADD COLUMN price DECIMAL(8,2) NOT NULL DEFAULT 12.50, ADD COLUMN note TEXT",
    "INSERT INTO kept VALUES (3, 'c', 1.25, 'n')",
    "UPDATE kept SET name = 'bb' WHERE id = 2",
    "ALTER TABLE kept ADD COLUMN code CHAR(3) NOT NULL AFTER id",
    "INSERT INTO kept VALUES (4, 'xyz', 'd', 2, NULL)",
    "CREATE TABLE born (id BIGINT UNSIGNED PRIMARY KEY, at DATETIME(3))",
    "INSERT INTO born VALUES (18446744073709551615, '2024-02-29 12:00:00.125')",
    "TRUNCATE TABLE emptied",
    "INSERT INTO emptied VALUES (3), (4)",
    "ALTER TABLE altered DROP COLUMN w, DROP PRIMARY KEY",
    "INSERT INTO altered VALUES (3, 3)",
    "DELETE FROM altered WHERE id = 1",
    "INSERT INTO stable VALUES (2, 2)",
    # Behind the log's back: only a new look at the table can find this.
    "SET sql_log_bin = 0",
    "DELETE FROM unchanged WHERE id = 2",
    "SET sql_log_bin = 1",
)


@dataclass
class Seen:
    """One pipeline over tables with a matter of its own each: why tables are parked at its start and after
    the changes, and how `unchanged` differs then."""

    case: Scenario
    parked_first: dict[str, Any] = field(default_factory=dict)
    parked_then: dict[str, Any] = field(default_factory=dict)
    unseen: str = ""
    stable: str = ""
    said: str = ""
    """What the pipeline and two commands printed."""


def parked(status: dict[str, Any]) -> dict[str, Any]:
    return {one["table"].split(".")[1]: one["parked"] for one in status["tables"] if one["parked"]}


@pytest.fixture(scope="module")
def seen(
    mysql_server: Any, spark: SparkSession, lake_root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Seen]:
    database = Database(mysql_server)
    folder, options = tmp_path_factory.mktemp("pipeline"), {**canaries.OPTIONS, "snapshot": {"chunk_rows": 4}}
    case = Scenario(database, database.name, folder, spark, lake_root, options=options)
    seen = Seen(case)
    database.execute(*BEFORE, *canaries.BEFORE)
    with case.running() as pipeline:
        seen.parked_first = parked(case.drain(pipeline))
        canaries.assert_only_loopback_and_no_secret(pipeline)
        database.execute(*CHANGES, *canaries.CHANGES)
        seen.parked_then = parked(case.drain(pipeline))
        seen.unseen, seen.stable = case.difference("unchanged"), case.difference("stable")
        database.execute("ALTER TABLE altered ADD PRIMARY KEY (id)")
        again = case.command("resnapshot", f"{database.name}.altered", f"{database.name}.unchanged")
        assert again.returncode == 0, again.stderr
        # Committed after the answer: what the pipeline says once it has these is no older than the request.
        database.execute("INSERT INTO altered VALUES (4, 4)", "INSERT INTO unchanged VALUES (9, 9)")
        case.drain(pipeline)
        pipeline.wait_until(lambda s: "altered" not in parked(s), "the table to come back", seconds=240)
        database.execute("ALTER TABLE born ADD COLUMN late INT NOT NULL DEFAULT 5")
        verified = case.command("verify", *[f"{database.name}.{one}" for one in ("kept", "emptied", "born")])
        assert verified.returncode == 0, verified.stdout + verified.stderr
        case.drain(pipeline)
        seen.said = pipeline.errors
        seen.said += case.command("status", "--json").stdout + case.command("status", "--history").stdout
        assert pipeline.stop() == 0
        seen.said += pipeline.errors
    yield seen
    database.drop()


@pytest.mark.parametrize("table", ["kept", "emptied", "born"])
def test_create_add_column_and_truncate_arrive_without_a_restart(seen: Seen, table: str) -> None:
    seen.case.assert_equal(table)


def test_a_table_that_loses_its_key_is_parked_alone_and_resnapshot_brings_it_back(seen: Seen) -> None:
    assert "resnapshot" in seen.parked_then["altered"]["hint"]
    assert seen.parked_then.keys() == {"altered", "keyless"}
    assert not seen.stable, seen.stable
    seen.case.assert_equal("stable", "altered")


def test_a_resnapshot_of_an_unchanged_table_removes_rows_that_are_gone_at_the_source(seen: Seen) -> None:
    assert seen.unseen
    seen.case.assert_equal("unchanged")


def test_a_table_without_a_key_is_parked_with_the_sql_that_adds_one(seen: Seen) -> None:
    assert list(seen.parked_first) == ["keyless"]
    assert "PRIMARY KEY" in seen.parked_first["keyless"]["hint"]
    seen.case.assert_equal("keyed")


def test_only_loopback_is_listened_on_and_row_values_stay_where_they_belong(seen: Seen) -> None:
    """The first half was looked at while it ran."""
    canaries.assert_words_stay_where_they_belong(seen.case.folder, seen.said)
    seen.case.assert_equal("words")


@pytest.mark.slow  # `test_cli.py` has the same without Spark
def test_the_log_of_errors_is_for_this_account_alone(scenario: Make) -> None:
    case = scenario(spark={"master": "local[2]", "conf": {"spark.sql.catalog.lake": "org.nonsense"}})
    case.server.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    done = case.command("run", "--once")
    log = case.folder / "state" / "logs" / "errors.log"
    assert done.returncode == 1 and stat.S_IMODE(log.stat().st_mode) == 0o600


@pytest.mark.slow  # tests/sinks/conformance/test_changes.py has quick ones of the sink
def test_a_change_log_holds_every_change_once_also_of_a_table_without_a_key(scenario: Make) -> None:
    case = scenario("parquet")
    case.server.execute("CREATE TABLE t (v INT)", "INSERT INTO t VALUES (1), (1)")
    with case.running() as pipeline:
        case.drain(pipeline)
        case.server.execute(
            "INSERT INTO t VALUES (2)", "UPDATE t SET v = 3 WHERE v = 2", "DELETE FROM t WHERE v = 1"
        )
        case.drain(pipeline)
        case.server.execute("INSERT INTO t VALUES (4)", "TRUNCATE TABLE t", "INSERT INTO t VALUES (5)")
        assert case.drain(pipeline)["lag"] == {"bytes": 0, "transactions": 0, "seconds": 0.0, "tables": 0}
        assert pipeline.stop() == 0
    found = case.target("t").collect()
    at = {
        row["v"]: row["_commit_timestamp"] for row in found if row["_change_type"] in ("insert", "truncate")
    }
    assert at[4] < at[None] < at[5], "a TRUNCATE has its own commit time"
    rows = sorted((row["_change_type"], row["v"]) for row in found if row["v"] is not None)
    assert rows == [
        ("delete", 1),
        ("delete", 1),
        ("insert", 2),
        ("insert", 4),
        ("insert", 5),
        ("read", 1),
        ("read", 1),
        ("update_postimage", 3),
        ("update_preimage", 2),
    ]


@pytest.mark.slow
def test_once_ends_by_itself_and_the_next_run_goes_on_with_a_table_added_to_the_file_from_its_beginning(
    scenario: Make,
) -> None:
    case = scenario()
    case.server.execute(
        "CREATE TABLE a (id INT PRIMARY KEY)",
        "CREATE TABLE b (id INT PRIMARY KEY, v INT)",
        "INSERT INTO a VALUES (1), (2)",
        "INSERT INTO b VALUES (1, 1), (2, 2)",
    )
    case.write_file(tables=[f"{case.database}.a"])
    first = case.command("run", "--once")
    assert first.returncode == 0, first.stderr
    case.assert_equal("a")
    case.server.execute(
        "UPDATE b SET v = 5 WHERE id = 1",
        "INSERT INTO a VALUES (3)",
        "DELETE FROM a WHERE id = 1",
        "DELETE FROM b WHERE id = 2",
    )
    case.write_file()
    second = case.command("run", "--once")
    assert second.returncode == 0, second.stderr
    case.assert_equal("a", "b")
