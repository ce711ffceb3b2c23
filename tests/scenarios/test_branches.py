"""A pipeline that writes to a branch of its targets, until somebody publishes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.testing.scenario import Scenario

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]


def test_what_is_verified_on_the_branch_is_equal_once_it_is_published(
    scenario: Callable[..., Scenario],
) -> None:
    case = scenario(sink_options={"tables": [{"match": "*.*", "branch": "audit"}]})
    case.server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)"
    )
    with case.running() as pipeline:
        case.drain(pipeline)
        case.server.execute("UPDATE t SET a = 7 WHERE id = 1", "DELETE FROM t WHERE id = 2")
        case.drain(pipeline)
        verified = case.command("verify", "--json")
        assert verified.returncode == 0, verified.stdout + verified.stderr
        assert case.target("t").count() == 0
        case.spark.sql(f"CALL lake.system.fast_forward('{case.namespace}.t', 'main', 'audit')")
        case.assert_equal("t")
        case.server.execute("INSERT INTO t VALUES (9, 9)")
        case.drain(pipeline)
        assert pipeline.stop() == 0
    assert case.target("t").count() == 2
