"""RENAME TABLE under writes and kills. The judge is the server's own SELECT under each name."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from penstock.testing.scenario import Scenario

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

Make = Callable[..., Scenario]


def decisions(case: Scenario, table: str) -> list[str]:
    history = json.loads(case.command("status", "--history", "--json").stdout)
    return [one["decision"] for one in history if one["table"] == f"{case.database}.{table}"]


def test_tables_that_change_names_again_and_again_under_kill_9_end_equal_and_are_not_read_again(
    scenario: Make,
) -> None:
    case = scenario("delta")
    rows = ", ".join(f"({n}, {n})" for n in range(300))
    case.server.execute(
        "CREATE TABLE one (id INT PRIMARY KEY, a INT)", f"INSERT INTO one VALUES {rows}",
        "CREATE TABLE two (id INT PRIMARY KEY, b BIGINT, c VARCHAR(9) DEFAULT 'x')",
        "INSERT INTO two (id, b) SELECT id, a * 2 FROM one",
        "CREATE TABLE calm (id INT PRIMARY KEY)",
    )  # fmt: skip
    with case.running() as pipeline:
        case.drain(pipeline)
        for number in range(3):
            case.server.execute(
                f"DELETE FROM one WHERE id = {number}",
                f"INSERT INTO calm VALUES ({number})",
                "RENAME TABLE one TO tmp, two TO one, tmp TO two",
                f"INSERT INTO one (id) VALUES ({1000 + number})",
                f"DELETE FROM two WHERE id = {100 + number}",
            )
            pipeline.next_epoch(seconds=400, restart=True)
            pipeline.kill(("driver", "jvm", "receiver")[number])
            pipeline.ensure_alive()
        case.drain(pipeline, restart=True)
        status = {table["table"].split(".")[1]: table["status"] for table in case.status()["tables"]}
        assert status == {"one": "live", "two": "live", "calm": "live"}
    case.assert_equal("one", "two", "calm")
    assert decisions(case, "one") == ["captured", *["its target has come with it"] * 3]


@pytest.mark.parametrize("sink", ["iceberg", "delta"])
def test_a_table_renamed_out_of_the_captured_set_keeps_its_target_and_one_renamed_into_it_is_read(
    scenario: Make, sink: str
) -> None:
    case = scenario(sink)
    case.write_file(tables={"include": [f"{case.database}.*"], "exclude": [f"{case.database}.out_*"]})
    for name in ("leaves", "out_comes", "goes", "replaced", "changed"):
        case.server.execute(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, a VARCHAR(20))",
            f"INSERT INTO {name} VALUES (1, '{name}'), (2, '{name}')",
        )
    with case.running() as pipeline:
        case.drain(pipeline)
        case.server.execute(
            "RENAME TABLE leaves TO out_left", "INSERT INTO out_left VALUES (3, 'unseen')",
            "INSERT INTO out_comes VALUES (3, 'before')",
            "RENAME TABLE out_comes TO comes", "INSERT INTO comes VALUES (4, 'after')",
            # One name is left by a table, and taken by another in the same statement.
            "RENAME TABLE replaced TO out_replaced, goes TO replaced",
            "UPDATE replaced SET a = 'later' WHERE id = 2",
            "ALTER TABLE changed ADD COLUMN c INT DEFAULT 5, RENAME TO renamed",
            "INSERT INTO renamed VALUES (3, 'c', 3)",
            # A name comes back.
            "CREATE TABLE goes (id INT PRIMARY KEY, z INT)", "INSERT INTO goes VALUES (9, 9)",
        )  # fmt: skip
        status = case.drain(pipeline)
    states = {table["table"].split(".")[1]: table["status"] for table in status["tables"]}
    assert (states["leaves"], states["changed"]) == ("dropped", "dropped")
    assert sorted(row["id"] for row in case.target("leaves").collect()) == [1, 2]
    case.assert_equal("comes", "replaced", "renamed", "goes")
    assert ("its target has come with it" in decisions(case, "replaced")) == (sink == "delta")
