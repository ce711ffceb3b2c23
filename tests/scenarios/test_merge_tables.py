"""Rows that are written through a MERGE table stand in the log under its name: what it unites is parked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.testing.scenario import Scenario, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_table_that_comes_under_a_merge_table_is_parked_and_comes_back_when_that_has_gone(
    scenario: Callable[..., Scenario],
) -> None:
    case = scenario()
    server, database = case.server, case.database
    server.execute(
        f"CREATE TABLE {database}.part (id INT PRIMARY KEY) ENGINE = MyISAM",
        f"CREATE TABLE {database}.other (id INT PRIMARY KEY)",
        f"INSERT INTO {database}.part VALUES (1)",
    )
    with case.running() as pipeline:
        case.drain(pipeline)
        server.execute(
            f"CREATE TABLE {database}.whole (id INT PRIMARY KEY) ENGINE = MERGE "
            f"UNION = ({database}.part) INSERT_METHOD = LAST",
            f"INSERT INTO {database}.whole VALUES (2)",
            f"INSERT INTO {database}.other VALUES (1)",
        )
        case.drain(pipeline)

        def parked() -> dict[str, dict[str, str]]:
            return {one["table"]: one["parked"] for one in case.status()["tables"] if one["parked"]}

        both = {f"{database}.part", f"{database}.whole"}
        wait_for(lambda: parked().keys() == both, "both tables to be parked")
        assert f"the MERGE table {database}.whole" in parked()[f"{database}.part"]["reason"]
        server.execute(f"DROP TABLE {database}.whole")
        assert case.command("resnapshot", f"{database}.part").returncode == 0
        case.drain(pipeline)
        assert pipeline.stop() == 0
    case.assert_equal("part", "other")
