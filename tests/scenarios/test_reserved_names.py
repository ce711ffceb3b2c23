"""What is wrong with one table, by its names or its target, parks that table. The others go on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from penstock.testing.scenario import Scenario

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Make = Callable[..., Scenario]
PARKED = 4
QUICK_RETRIES = {"attempts_max": 2, "wait_max": 100}


def parked(case: Scenario) -> dict[str, Any]:
    found = case.status()["tables"]
    return {one["table"].partition(".")[2]: one["parked"] for one in found if one["status"] == "parked"}


def run_once(case: Scenario, code: int) -> None:
    done = case.command("run", "--once", timeout=600)
    assert done.returncode == code, done.stderr[-3000:]


def test_a_column_that_iceberg_has_for_itself_parks_its_table_until_it_is_renamed(scenario: Make) -> None:
    case = scenario()
    case.server.execute(
        "CREATE TABLE a (id INT PRIMARY KEY, _file INT, v INT)", "INSERT INTO a VALUES (1, 2, 3)",
        "CREATE TABLE b (id INT PRIMARY KEY, v INT)", "INSERT INTO b VALUES (1, 1)",
    )  # fmt: skip
    run_once(case, PARKED)
    case.assert_equal("b")
    why = parked(case)["a"]
    assert "`_file`" in why["reason"] and "metadata column" in why["reason"] and "`rename`" in why["hint"]
    case.write_file(transforms=[{"tables": f"{case.database}.a", "rename": {"_file": "file_number"}}])
    assert case.command("unpark", f"{case.database}.a").returncode == 0
    case.server.execute(
        "INSERT INTO a VALUES (2, 7, 7)", "ALTER TABLE a MODIFY v VARCHAR(20)", "UPDATE a SET v = 'x'"
    )
    run_once(case, 0)
    rows = case.target("a").select("id", "file_number", "v").collect()
    assert sorted(map(tuple, rows)) == [(1, 2, "x"), (2, 7, "x")]


def test_a_column_that_penstock_adds_itself_arrives_after_it_is_renamed(scenario: Make) -> None:
    case = scenario("delta", history={"*.h": "scd2"})
    case.server.execute(
        "CREATE TABLE a (id INT PRIMARY KEY, _sequence INT, v INT)",
        "INSERT INTO a VALUES (1, 2, 3), (4, 5, 6)",
        "CREATE TABLE k (_SEQUENCE INT PRIMARY KEY, v INT)", "INSERT INTO k VALUES (7, 1), (8, 1)",
        "CREATE TABLE h (id INT PRIMARY KEY, _commit_timestamp INT)", "INSERT INTO h VALUES (1, 1)",
        "CREATE TABLE b (id INT PRIMARY KEY, _commit_timestamp INT)", "INSERT INTO b VALUES (1, 1)",
    )  # fmt: skip
    run_once(case, PARKED)
    case.assert_equal("b")
    why = parked(case)
    assert list(why) == ["a", "h", "k"] and all("`rename`" in one["hint"] for one in why.values()), why
    assert "`_SEQUENCE`, which Penstock adds" in why["k"]["reason"], why
    rules: list[dict[str, Any]] = [
        {"tables": f"{case.database}.a", "columns": {"twice": "_sequence * 2"}, "where": "_sequence <> 99"},
        {"tables": f"{case.database}.a", "rename": {"_sequence": "number"}},
        {"tables": f"{case.database}.k", "rename": {"_sequence": "number"}},
        {"tables": f"{case.database}.h", "rename": {"_commit_timestamp": "time"}},
    ]
    case.write_file(transforms=rules, history={"*.h": "scd2"})
    for table in why:
        assert case.command("unpark", f"{case.database}.{table}").returncode == 0
    case.server.execute(
        "INSERT INTO a VALUES (9, 99, 0), (10, 11, 12)", "UPDATE a SET _sequence = 50 WHERE id = 1",
        "DELETE FROM k WHERE _SEQUENCE = 7", "UPDATE k SET v = 2",
    )  # fmt: skip
    run_once(case, 0)
    case.server.execute(
        "DELETE FROM a WHERE id = 4", "INSERT INTO k VALUES (9, 9)", "UPDATE h SET _commit_timestamp = 2"
    )
    run_once(case, 0)
    found = case.target("a").select("id", "number", "v", "twice").collect()
    assert sorted(map(tuple, found)) == [(1, 50, 3, 100), (10, 11, 12, 22)]
    assert sorted(map(tuple, case.target("k").select("number", "v").collect())) == [(8, 2), (9, 9)]
    assert sorted(map(tuple, case.target("h").select("id", "time").collect())) == [(1, 1), (1, 2)]
    done = case.command("verify", timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_columns_named_as_those_of_a_change_log_arrive_in_one_after_they_are_renamed(scenario: Make) -> None:
    case = scenario("parquet")
    names = ["_change_type", "_sequence", "_commit_timestamp"]
    case.server.execute(
        f"CREATE TABLE a (id INT PRIMARY KEY, {', '.join(f'{name} INT' for name in names)})",
        "INSERT INTO a VALUES (1, 2, 3, 4)",
    )  # fmt: skip
    run_once(case, PARKED)
    assert list(parked(case)) == ["a"]
    rename = {name: f"old{name}" for name in names}
    case.write_file(transforms=[{"tables": f"{case.database}.a", "where": "_sequence < 9", "rename": rename}])
    assert case.command("unpark", f"{case.database}.a").returncode == 0
    run_once(case, 0)
    case.server.execute("INSERT INTO a VALUES (5, 6, 7, 8)", "UPDATE a SET _sequence = 10 WHERE id = 5")
    run_once(case, 0)
    found = case.target("a").orderBy("_sequence").select("id", *rename.values(), "_change_type").collect()
    assert [tuple(row) for row in found] == [
        (1, 2, 3, 4, "read"), (5, 6, 7, 8, "insert"), (5, 6, 7, 8, "delete"),
    ]  # fmt: skip


def test_a_target_that_spark_cannot_change_parks_its_table_and_the_others_go_on(scenario: Make) -> None:
    case = scenario(retries=QUICK_RETRIES)
    case.server.execute(
        "CREATE TABLE a (id INT PRIMARY KEY, v INT)", "INSERT INTO a VALUES (1, 1), (2, 2)",
        "CREATE TABLE b (id INT PRIMARY KEY, v INT)", "INSERT INTO b VALUES (1, 1)",
    )  # fmt: skip
    run_once(case, 0)
    case.spark.sql(f"ALTER TABLE lake.{case.namespace}.a ADD COLUMN _spec_id INT")
    with pytest.raises(Exception, match="_spec_id"):
        case.spark.sql(f"UPDATE lake.{case.namespace}.a SET v = v + 1")
    case.server.execute("ALTER TABLE a MODIFY v VARCHAR(20)", "INSERT INTO b VALUES (2, 2)")
    run_once(case, PARKED)
    why = parked(case)
    assert list(why) == ["a"] and "penstock unpark" in why["a"]["hint"], why
    case.server.execute("INSERT INTO b VALUES (3, 3)", "INSERT INTO a VALUES (3, 'c')")
    run_once(case, PARKED)
    case.assert_equal("b")
    case.spark.sql(f"ALTER TABLE lake.{case.namespace}.a DROP COLUMN _spec_id")
    assert case.command("unpark", f"{case.database}.a").returncode == 0
    run_once(case, 0)
    case.assert_equal("a", "b")


def test_of_two_names_that_sqlite_takes_for_one_the_later_table_is_parked(scenario: Make) -> None:
    case = scenario("jdbc")
    file = case.folder / "targets.db"
    case.write_file(sink={"type": "jdbc", "url": f"sqlite://{file}"})
    case.server.execute("CREATE TABLE orders (id INT PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
    run_once(case, 0)
    case.server.execute(
        "CREATE TABLE ORDERS (id INT PRIMARY KEY)", "INSERT INTO ORDERS VALUES (7)",
        "INSERT INTO orders VALUES (2)",
    )  # fmt: skip
    for _ in range(2):
        run_once(case, PARKED)
        why = parked(case)
        assert list(why) == ["ORDERS"], why
        assert f"{case.database}.orders" in why["ORDERS"]["reason"] and "`to`" in why["ORDERS"]["hint"]
        with sqlite3.connect(file) as database:
            assert database.execute(f"SELECT id FROM {case.database}_orders").fetchall() == [(1,), (2,)]
    other = {"tables": f"{case.database}.ORDERS", "to": "{database}.orders_2"}
    case.write_file(sink={"type": "jdbc", "url": f"sqlite://{file}"}, transforms=[other])
    assert case.command("resnapshot", f"{case.database}.ORDERS").returncode == 0
    run_once(case, 0)
    with sqlite3.connect(file) as database:
        assert database.execute(f"SELECT id FROM {case.database}_orders_2").fetchall() == [(7,)]
