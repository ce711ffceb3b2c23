"""A pipeline that keeps up commits without Spark jobs; what that leaves behind is cleared away beside it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from penstock.testing.running import RunningPipeline
from penstock.testing.scenario import Scenario

pytestmark = pytest.mark.timeout(900)

Make = Callable[..., Scenario]


def snapshots(case: Scenario, table: str) -> list[dict[str, str]]:
    """Summaries, oldest first."""
    name = f"lake.{case.namespace}.`{table}`.snapshots"
    return [row[0] for row in case.spark.sql(f"SELECT summary FROM {name} ORDER BY committed_at").collect()]


def compacted(case: Scenario) -> dict[str, dict[str, int]]:
    done = case.command("compact", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, int]] = json.loads(done.stdout)["tables"]
    return found


@pytest.mark.slow
def test_epochs_without_the_key_index_are_merged_by_files(scenario: Make) -> None:
    """First those of one table, then those of six at once, for which the log is walked once."""
    case = scenario(sink_options={"key_index": False})
    names = [f"t{number}" for number in range(6)]
    for name in names:
        case.server.execute(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, a INT, b VARCHAR(20))",
            f"INSERT INTO {name} VALUES " + ", ".join(f"({n}, 0, 'first')" for n in range(500)),
        )
    with case.running() as pipeline:
        case.drain(pipeline)
        for number in range(4):
            changed = names[:1] if number < 2 else names
            case.server.execute("BEGIN", *[statement for name in changed for statement in (
                f"UPDATE {name} SET a = a + 1 WHERE id % 7 = {number}",
                f"DELETE FROM {name} WHERE id = {number}",
                f"INSERT INTO {name} VALUES ({1000 + number}, {number}, 'new')",
                f"UPDATE {name} SET id = id + 2000 WHERE id = {100 + number}",
            )], "COMMIT")  # fmt: skip
            case.drain(pipeline)
        assert pipeline.stop() == 0
    for name in names:
        case.assert_equal(name)
        found = snapshots(case, name)
        merged = sum("added-dvs" in one and "spark.app.id" not in one for one in found)
        assert merged >= (4 if name == names[0] else 2)
        assert not any(one.get("penstock.small") for one in found)


@pytest.mark.slow
def test_small_commits_leave_vectors_and_large_ones_merged_by_files_while_the_stream_goes_on(
    scenario: Make,
) -> None:
    """`large` has 30,000 rows in chunks of 20,000, which are too many for a small epoch."""
    case = scenario(
        epoch={"interval": "50ms"}, sink_options={"fold_commits": 4}, snapshot={"chunk_rows": 20_000}
    )
    case.server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(20))",
        "CREATE TABLE pair (x VARCHAR(10), y BIGINT UNSIGNED, v JSON, PRIMARY KEY (x, y))",
        "INSERT INTO t VALUES " + ", ".join(f"({n}, 0, 'first')" for n in range(500)),
        "INSERT INTO pair VALUES ('a', 18446744073709551615, '[1]'), ('b', 0, '{}')",
        "CREATE TABLE large (id INT PRIMARY KEY, a INT)", "SET SESSION cte_max_recursion_depth = 100000",
        "INSERT INTO large WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 30000) "
        "SELECT n, 0 FROM n",
    )  # fmt: skip
    with case.running() as pipeline:
        case.drain(pipeline)
        write_small(case, pipeline)
        case.assert_equal("t", "pair")
        found = snapshots(case, "t")
        small = [one for one in found if one.get("penstock.small")]
        assert len(small) >= 10, "they were merged by Spark"
        assert not any(int(one["total-equality-deletes"]) for one in found)
        again = read_again(case, pipeline, "large")
        assert any("added-dvs" in one and "spark.app.id" not in one for one in again), again
        files = compacted(case)
        assert files[f"{case.database}.t"]["files_after"] == 1
        case.server.execute("UPDATE t SET a = -a WHERE id % 2 = 0", "DELETE FROM pair WHERE y = 3")
        case.drain(pipeline)
        assert pipeline.stop() == 0
    case.assert_equal("t", "pair", "large")
    compacted(case)
    case.assert_equal("t", "pair")
    for table in ("t", "pair"):
        assert snapshots(case, table)[-1]["total-equality-deletes"] == "0"


def write_small(case: Scenario, pipeline: RunningPipeline) -> None:
    """A dozen small epochs."""
    for number in range(12):
        case.server.execute(
            f"UPDATE t SET a = a + 1 WHERE id % 7 = {number % 7}",
            f"DELETE FROM t WHERE id = {number}",
            f"INSERT INTO t VALUES ({1000 + number}, {number}, 'new')",
            f"UPDATE t SET id = id + 2000 WHERE id = {100 + number}",
            f"REPLACE INTO pair VALUES ('a', 18446744073709551615, '{number}')",
            f"INSERT INTO pair VALUES ('A', {number}, NULL)",
        )
        case.drain(pipeline)


def read_again(case: Scenario, pipeline: RunningPipeline, table: str) -> list[dict[str, str]]:
    """Resnapshots a table whose rows have changed without row events; the commits which that took."""
    before = len(snapshots(case, table))
    case.server.execute(
        "SET SESSION sql_log_bin = 0", f"UPDATE {table} SET a = 7 WHERE id % 3 = 0",
        f"DELETE FROM {table} WHERE id % 10 = 9",
    )  # fmt: skip
    case.server.execute(f"UPDATE {table} SET a = 8 WHERE id < 100")
    done = case.command("resnapshot", f"{case.database}.{table}")
    assert done.returncode == 0, done.stderr
    # Committed after the answer: a pipeline that has this has seen the request.
    case.server.execute(f"INSERT INTO {table} VALUES (-1, 1)")
    case.drain(pipeline)
    return snapshots(case, table)[before:]
