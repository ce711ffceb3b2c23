"""`penstock doctor` says before the first run which tables `penstock run` parks, and why."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock.testing.scenario import Scenario

PARKED = 4

Make = Callable[..., Scenario]

CHILD = "FOREIGN KEY (up) REFERENCES {} (id) ON DELETE CASCADE"
CASES: dict[str, tuple[dict[str, Any], list[str], dict[str, str]]] = {
    "nothing": ({}, ["CREATE TABLE t (id INT PRIMARY KEY)"], {}),
    "keys, names and cascades": (
        {},
        [
            "CREATE TABLE t (id INT PRIMARY KEY)",
            "CREATE TABLE keyless (a INT)",
            "CREATE TABLE ours (id INT PRIMARY KEY, _Sequence INT)",
            f"CREATE TABLE child (id INT PRIMARY KEY, up INT, {CHILD.format('t')})",
            f"CREATE TABLE keyless_child (up INT, {CHILD.format('t')})",
        ],
        {"keyless": "no primary key", "ours": "_Sequence", "child": "changed by a foreign key",
         "keyless_child": "no primary key"},
    ),
    "a circle and what hangs on it": (
        {"cascades": "apply"},
        [
            "CREATE TABLE t (id INT PRIMARY KEY)",
            f"CREATE TABLE leaf (id INT PRIMARY KEY, up INT, {CHILD.format('t')})",
            "CREATE TABLE a (id INT PRIMARY KEY, up INT)",
            f"CREATE TABLE b (id INT PRIMARY KEY, up INT, {CHILD.format('a')})",
            f"ALTER TABLE a ADD {CHILD.format('b')}",
            f"CREATE TABLE below (id INT PRIMARY KEY, up INT, {CHILD.format('b')})",
            f"CREATE TABLE deeper (id INT PRIMARY KEY, up INT, {CHILD.format('below')})",
        ],
        {"a": "circle", "b": "circle", "below": "which is parked", "deeper": "which is parked"},
    ),
    "tables under a MERGE table": (
        {"cascades": "ignore"},
        [
            "CREATE TABLE t (id INT PRIMARY KEY)",
            "CREATE TABLE part (id INT PRIMARY KEY) ENGINE = MyISAM",
            "CREATE TABLE whole (id INT PRIMARY KEY) ENGINE = MERGE UNION = (part) INSERT_METHOD = LAST",
        ],
        {"part": "is under the MERGE table", "whole": "is a MERGE table"},
    ),
    "a parent that is left out": (
        {"cascades": "apply", "leaves_out": "t"},
        [
            "CREATE TABLE t (id INT PRIMARY KEY)",
            f"CREATE TABLE leaf (id INT PRIMARY KEY, up INT, {CHILD.format('t')})",
            f"CREATE TABLE deeper (id INT PRIMARY KEY, up INT, {CHILD.format('leaf')})",
        ],
        {"leaf": "does not follow", "deeper": "which is parked"},
    ),
    "shards of different keys": (
        {"merge_shards": [{"tables": "*.t_*", "into": "all.t"}]},
        [
            "CREATE TABLE t_1 (id INT PRIMARY KEY, n INT NOT NULL)",
            "CREATE TABLE t_2 (id INT, n INT NOT NULL, PRIMARY KEY (id, n))",
        ],
        {"t_2": "The key of"},
    ),
}  # fmt: skip


def foretold(case: Scenario) -> dict[str, str]:
    """By table, what `doctor` says of those that are parked."""
    done = case.command("doctor", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = [one for one in json.loads(done.stdout)["findings"] if one["parks"]]
    assert len({one["subject"] for one in found}) == len(found)
    return {one["subject"]: one["message"] for one in found}


def parked(case: Scenario) -> dict[str, dict[str, str]]:
    return {one["table"]: one["parked"] for one in case.status()["tables"] if one["parked"]}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", CASES)
def test_doctor_and_run_name_the_same_tables_with_the_same_reasons(scenario: Make, name: str) -> None:
    options, statements, expected = CASES[name]
    options = dict(options)
    left_out = options.pop("leaves_out", None)
    case = scenario(**options)
    if left_out:
        case.write_file(
            tables={"include": [f"{case.database}.*"], "exclude": [f"{case.database}.{left_out}"]}
        )
    case.server.execute(*statements)
    before = foretold(case)
    assert {table.partition(".")[2] for table in before} == expected.keys()
    done = case.command("run", "--once", "--json", timeout=600)
    assert done.returncode == (PARKED if expected else 0), done.stderr[-3000:]
    now = parked(case)
    assert now.keys() == before.keys()
    for table, why in now.items():
        assert why["reason"] in before[table] and why["hint"] in before[table]
        assert expected[table.partition(".")[2]] in why["reason"]
    assert foretold(case).keys() == now.keys(), "and it says so of a pipeline that has run"
    others = [row[0] for row in case.server.query("SHOW TABLES") if row[0] not in {*expected, left_out}]
    if "merge_shards" not in options:
        case.assert_equal(*others)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_of_two_tables_with_one_target_doctor_and_run_park_the_same_one(scenario: Make) -> None:
    case = scenario(sink_options={"namespace": "together"})
    other = f"{case.database}_2"
    case.server.execute(
        f"CREATE DATABASE {other}", f"CREATE TABLE {other}.t (id INT PRIMARY KEY)",
        "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)",
    )  # fmt: skip
    try:
        case.namespace = "together"
        case.write_file(tables=[f"{case.database}.*", f"{other}.*"])
        before = foretold(case)
        assert list(before) == [f"{other}.t"]
        assert case.command("run", "--once", "--json", timeout=600).returncode == PARKED
        now = parked(case)
        assert now.keys() == before.keys()
        assert all(why["reason"] in before[table] for table, why in now.items())
        case.assert_equal("t")
    finally:
        case.server.execute(f"DROP DATABASE {other}")


@pytest.mark.slow  # tests/planning/test_parked_reasons.py is quick
def test_status_verify_and_doctor_say_that_a_cause_is_mended_and_unpark_brings_the_table_back(
    scenario: Make,
) -> None:
    case = scenario()
    at = case.database
    case.server.execute(
        f"CREATE TABLE {at}.keyless (a INT NOT NULL)", f"INSERT INTO {at}.keyless VALUES (1), (2)",
        f"CREATE TABLE {at}.good (id INT PRIMARY KEY)", f"INSERT INTO {at}.good VALUES (1)",
    )  # fmt: skip

    def hint(document: dict[str, Any]) -> str:
        [one] = [table for table in document["tables"] if table["table"] == f"{at}.keyless"]
        return str(one["parked"]["hint"]) if one["parked"] else ""

    with case.running() as pipeline:
        pipeline.wait_until(lambda s: "PRIMARY KEY" in hint(s), "the table to be parked", seconds=300)
        case.server.execute(f"ALTER TABLE {at}.keyless ADD PRIMARY KEY (a)")
        mended = f"Run `penstock unpark FILE {at}.keyless`"
        pipeline.wait_until(lambda s: mended in hint(s), "the cause to be seen as mended", seconds=180)
        verified = case.command("verify", "--json")
        assert verified.returncode == PARKED and mended in verified.stdout
        assert mended in foretold(case)[f"{at}.keyless"]
        assert case.command("unpark", f"{at}.keyless").returncode == 0
        case.drain(pipeline)
        assert pipeline.stop() == 0
    case.assert_equal("keyless", "good")
