"""A pipeline takes over Iceberg tables that others made, and makes them equal to their sources."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing

import pytest
from tests.readers import environment as readers

from penstock.errors import PenstockError
from penstock.model.schema import TableId
from penstock.state import StateStore
from penstock.testing.scenario import Scenario, refusal, wait_for

pytestmark = pytest.mark.timeout(900)

Make = Callable[..., Scenario]

SPECS = {
    "by_day": "days(created)",
    "by_hash": "bucket(4, id)",
    "by_text": "truncate(1, region)",
    "by_value": "region",
}


def adopting(scenario: Make) -> Scenario:
    return scenario(sink_options={"tables": [{"match": "*.*", "adopt": True}]})


def made_by_others(case: Scenario, table: str, spec: str, version: int = 3) -> str:
    """A table with rows that the source changed or deleted since, one that it never had, and one that
    equals its source."""
    name = f"lake.{case.namespace}.{table}"
    case.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{case.namespace}")
    case.spark.sql(
        f"CREATE TABLE {name} (id BIGINT NOT NULL, region STRING, created TIMESTAMP_NTZ, n INT) "
        f"USING iceberg PARTITIONED BY ({spec}) TBLPROPERTIES ('format-version' = '{version}')"
    )
    case.spark.sql(
        f"INSERT INTO {name} VALUES (1, 'eu', TIMESTAMP_NTZ '2026-01-01 00:00:00', 1), "
        "(2, 'eu', TIMESTAMP_NTZ '2026-01-01 00:00:00', -2), "
        "(3, 'us', TIMESTAMP_NTZ '2026-01-05 00:00:00', 3), (77, 'xx', NULL, 7)"
    )
    return name


@pytest.mark.slow  # tests/sinks/lake/iceberg/test_adoption.py has quick ones
@pytest.mark.parametrize("names", [("by_day", "by_hash"), tuple(SPECS)])
def test_partitioned_tables_of_others_become_equal_and_follow_across_partitions(
    scenario: Make, names: tuple[str, ...]
) -> None:
    case = adopting(scenario)
    for table in names:
        made_by_others(case, table, SPECS[table])
        case.server.execute(
            f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, region VARCHAR(9), created DATETIME, n INT)",
            f"INSERT INTO {table} VALUES (1, 'eu', '2026-01-01', 1), (2, 'us', '2026-01-02', 2), "
            "(4, 'eu', NULL, 4)",
        )
    doctor = json.loads(case.command("doctor", "--json").stdout)
    adopts = [one for one in doctor["findings"] if one["check"] == "adopt"]
    assert [one["level"] for one in adopts] == ["ok"] * len(names)
    with case.running() as pipeline:
        case.drain(pipeline)
        case.assert_equal(*names)
        for table in names:
            case.server.execute(
                f"UPDATE {table} SET id = id + 100, region = 'us', created = '2026-02-01' WHERE id = 4",
                f"UPDATE {table} SET region = 'ap', created = '2026-03-01' WHERE id = 1",
                f"DELETE FROM {table} WHERE id = 2",
            )
        case.drain(pipeline)
        assert pipeline.stop() == 0
    case.assert_equal(*names)
    verified = case.command("verify", "--json")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    for table in names:
        name = f"lake.{case.namespace}.{table}"
        kinds = case.spark.sql(f"SELECT summary['penstock.small'] FROM {name}.snapshots").collect()
        assert any(row[0] == "true" for row in kinds), "no epoch went without a Spark job"


@pytest.mark.slow
def test_an_adopted_partitioned_table_is_read_right_by_other_engines_while_it_is_written(
    scenario: Make,
) -> None:
    """With version 2, ClickHouse reads it, too."""
    case = scenario(sink_options={"tables": [{"match": "*.*", "adopt": True}]})
    made_by_others(case, "t", "days(created), bucket(4, id)", version=2)
    case.server.execute(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, region VARCHAR(9), created DATETIME, n INT)",
        "INSERT INTO t VALUES (1, 'eu', '2026-01-01', 1), (2, 'us', '2026-01-02', 2), (4, 'eu', NULL, 4)",
    )
    place = case.sink_path / case.namespace / "t"

    def expected() -> list[tuple[str | None, ...]]:
        rows = case.server.query("SELECT id, region, created, n FROM t ORDER BY id")
        return [tuple(None if value is None else str(value) for value in row) for row in rows]

    def read(engine: str) -> list[tuple[str | None, ...]] | str:
        found = readers.read(engine, "iceberg", place)
        if isinstance(found, str):
            return found
        # ClickHouse shows the microseconds of a time that has none.
        return [tuple(one and one.removesuffix(".000000") for one in row[:4]) for row in found]

    with case.running() as pipeline:
        for statements in (
            (),
            ("UPDATE t SET id = id + 100, region = 'us', created = '2026-02-01' WHERE id = 4",
             "UPDATE t SET region = 'ap', created = '2026-03-01 04:05:06' WHERE id = 1",
             "DELETE FROM t WHERE id = 2"),
            ("UPDATE t SET created = created + INTERVAL 1 DAY", "INSERT INTO t VALUES (9, NULL, NULL, NULL)"),
        ):  # fmt: skip
            case.server.execute(*statements)
            case.drain(pipeline)
            for engine in ("duckdb", "pyiceberg", "chdb"):
                assert read(engine) == expected(), engine
        assert pipeline.stop() == 0
    case.assert_equal("t")


@pytest.mark.slow  # the sink has a quick one
def test_a_table_that_does_not_fit_is_one_message_that_names_each_difference(scenario: Make) -> None:
    case = adopting(scenario)
    made_by_others(case, "t", "region")
    case.server.execute("CREATE TABLE t (id VARCHAR(9) PRIMARY KEY, region VARCHAR(9), n INT, extra INT)")
    paragraph = refusal(case.command("run", "--once"), "cannot be adopted")
    for part in (
        "its column id is of type bigint, and string is needed",
        "it has no column extra",
        "its column created is not in the source",
    ):
        assert part in paragraph.replace("\n", " ")
    found = [one for one in json.loads(case.command("doctor", "--json").stdout)["findings"]
             if one["check"] == "adopt"]  # fmt: skip
    assert [one["level"] for one in found] == ["error"] and "no column extra" in found[0]["message"]
    assert case.spark.sql(f"SELECT count(*) FROM lake.{case.namespace}.t").collect()[0][0] == 4


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["found", "adopted"])
def test_a_pipeline_that_is_killed_while_it_adopts_goes_on(scenario: Make, moment: str) -> None:
    """`found`: that it will adopt the table is in the state, maybe with a plan. `adopted`: the table is ours,
    and maybe its snapshot has begun."""
    case = adopting(scenario)
    name = made_by_others(case, "t", "region")
    case.server.execute(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, region VARCHAR(9), created DATETIME, n INT)",
        "INSERT INTO t VALUES (1, 'eu', '2026-01-01', 1), (2, 'us', '2026-01-02', 2), (4, 'eu', NULL, 4)",
    )

    def reached() -> bool:
        if moment == "found":
            try:
                with closing(StateStore(case.folder / "state", read_only=True)) as store:
                    found = store.table(TableId(case.database, "t"))
            except PenstockError:
                return False  # it is being made
            return found is not None and found.target_reset == "adopt"
        shown = case.spark.sql(f"SHOW TBLPROPERTIES {name}").collect()
        return any(row[0] == "penstock.pipeline" for row in shown)

    with case.running() as pipeline:
        wait_for(reached, f"the table to be {moment}", seconds=300)
        pipeline.kill("driver")
    case.server.execute("UPDATE t SET region = 'ap' WHERE id = 1", "DELETE FROM t WHERE id = 2")
    done = case.command("run", "--once", timeout=600)
    assert done.returncode == 0, done.stderr
    case.assert_equal("t")


@pytest.mark.slow
def test_a_table_that_is_added_later_is_adopted_or_parked(scenario: Make) -> None:
    case = adopting(scenario)
    case.write_file(tables=[f"{case.database}.first"])
    made_by_others(case, "fits", "region", version=2)
    name = made_by_others(case, "twice", "region")
    case.spark.sql(f"INSERT INTO {name} VALUES (1, 'us', NULL, 5)")
    columns = "(id BIGINT PRIMARY KEY, region VARCHAR(9), created DATETIME, n INT)"
    for table in ("first", "fits", "twice"):
        case.server.execute(
            f"CREATE TABLE {table} {columns}", f"INSERT INTO {table} VALUES (1, 'x', NULL, 9)"
        )
    with case.running() as pipeline:
        case.drain(pipeline)
        for table, code in (("fits", 0), ("twice", 1)):
            done = case.command("signal", "add-table", f"{case.database}.{table}", "--wait")
            assert done.returncode == code, done.stdout + done.stderr
        assert "several of its rows have the same key" in done.stdout
        assert parked(case) == {"twice"}
        case.drain(pipeline)
        assert pipeline.stop() == 0
    case.assert_equal("first", "fits")
    assert case.target("twice").count() == 5, "nothing was done to it"


def parked(case: Scenario) -> set[str]:
    tables = case.status()["tables"]
    return {one["table"].rpartition(".")[2] for one in tables if one["status"] == "parked"}
