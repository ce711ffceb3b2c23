"""`penstock adopt`, `reset` and `move` of pipelines that do more than copy rows, and killed meanwhile.

The judges are the server's SELECT, and a reader of each target that knows nothing of Penstock."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.scenarios.judged_targets import judged
from tests.scenarios.test_cascades import TABLES as REFERRING
from tests.scenarios.test_cascades import load
from tests.scenarios.test_lost_state import adopt, lose, once, reset
from tests.scenarios.test_several_sinks import expected, rows, with_sinks
from tests.scenarios.test_views import difference
from tests.sinks.conformance import with_servers

from penstock.state import StateStore
from penstock.testing.scenario import Scenario, refusal, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Make = Callable[..., Scenario]
Again = Callable[[Scenario], Any]


def adopt_lost(case: Scenario) -> None:
    lose(case)
    adopt(case)


@pytest.mark.parametrize("again", [adopt_lost, reset])
@pytest.mark.parametrize("sink", ["iceberg", "delta"])
def test_versions_that_a_target_has_stay_and_its_current_ones_end_equal_to_the_source(
    scenario: Make, sink: str, again: Again
) -> None:
    case = scenario(sink, history={"*.h": "scd2"})
    case.server.execute(
        "CREATE TABLE h (id INT PRIMARY KEY, v INT)", "INSERT INTO h VALUES (1, 1), (2, 1), (3, 1)"
    )
    once(case)
    case.server.execute("UPDATE h SET v = 2 WHERE id = 1")
    once(case)
    again(case)
    case.server.execute("UPDATE h SET v = 3 WHERE id = 2", "DELETE FROM h WHERE id = 3")
    once(case)
    case.server.execute("UPDATE h SET v = 4 WHERE id = 1", "INSERT INTO h VALUES (9, 9)")
    once(case)
    found = case.target("h").select("id", "v", "_is_current").collect()
    assert sorted(map(tuple, found)) == [
        (1, 1, False), (1, 2, False), (1, 4, True), (2, 1, False), (2, 3, True), (3, 1, False), (9, 9, True),
    ]  # fmt: skip


@pytest.mark.parametrize("again", [adopt_lost, reset])
@pytest.mark.parametrize("sink", ["iceberg", "delta"])
def test_views_are_those_of_the_source_again(scenario: Make, sink: str, again: Again) -> None:
    case = scenario(sink)
    queries = {
        "sums": f"SELECT v, count(*) AS n, sum(id) AS total FROM {case.database}.t GROUP BY v",
        "some": f"SELECT id, v FROM {case.database}.t WHERE v > 1",
    }
    case.options["views"] = {name: {"sql": sql} for name, sql in queries.items()}
    case.write_file()
    case.server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2), (3, 2), (4, 3)"
    )
    once(case)
    assert difference(case, queries) == ""
    again(case)
    case.server.execute("UPDATE t SET v = 3 WHERE id = 2", "DELETE FROM t WHERE id IN (1, 4)")
    once(case)
    assert difference(case, queries) == ""
    case.server.execute("INSERT INTO t VALUES (7, 2)", "UPDATE t SET v = 1 WHERE id = 3")
    once(case)
    assert difference(case, queries) == ""
    assert all(one["error"] is None for one in case.status()["views"])


@pytest.mark.parametrize("again", [adopt_lost, reset])
def test_what_foreign_keys_change_meanwhile_and_later_is_changed_at_the_targets(
    scenario: Make, again: Again
) -> None:
    case = scenario(cascades="apply")
    load(case.server, case.database, 40)
    once(case)
    case.assert_equal(*REFERRING)
    again(case)
    at = case.database
    case.server.execute(f"DELETE FROM {at}.p WHERE id = 1", f"UPDATE {at}.p SET id = 100 WHERE id = 5")
    once(case)
    case.assert_equal(*REFERRING)
    case.server.execute(f"DELETE FROM {at}.p WHERE id = 100", f"UPDATE {at}.p SET code = 'x' WHERE id = 6")
    once(case)
    case.assert_equal(*REFERRING)
    assert not [one for one in case.status()["tables"] if one["parked"]]


@pytest.mark.parametrize("sink", ["postgresql", "opensearch"])
def test_rows_end_equal_though_driver_and_target_are_killed_while_they_are_read_again(
    scenario: Make, sink: str
) -> None:
    case, judge = judged(scenario, sink, snapshot={"chunk_rows": 100, "parallel": 1})
    case.server.execute(
        "CREATE TABLE many (id INT PRIMARY KEY, v INT)",
        "INSERT INTO many WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 900) "
        "SELECT i, 0 FROM n",
    )
    once(case)
    for round in range(10):  # the log becomes long, so old rows have large sequences
        case.server.execute(f"UPDATE many SET v = {round}")
    once(case)
    adopt_lost(case)
    case.server.execute("DELETE FROM many WHERE id % 3 = 0", "UPDATE many SET v = 50 WHERE id % 3 = 1")
    case.options["snapshot"] = {"chunk_rows": 100, "parallel": 1, "rows_per_second": 100}
    case.write_file()
    server = with_servers.server(sink)
    with case.running() as pipeline:
        pipeline.wait_until(lambda s: s["snapshot"]["rows_placed"] > 100, "some rows", seconds=300)
        pipeline.kill("driver")
        pipeline.wait(seconds=60)
        case.server.execute("UPDATE many SET v = v + 1 WHERE id < 300", "DELETE FROM many WHERE id = 899")
        pipeline.start()
        pipeline.wait_until(lambda s: s["snapshot"]["rows_placed"] > 200, "more rows", seconds=300)
        assert not case.status()["snapshot"]["done"], "it is in the middle"
        server.kill9()
        case.server.execute("INSERT INTO many VALUES (5000, 1)")
        server.start()
        case.drain(pipeline, restart=True)
        wait_for(lambda: case.status()["snapshot"]["done"], "the end of the snapshot", seconds=300)
        case.server.execute("UPDATE many SET v = 99 WHERE id = 500")
        case.drain(pipeline, restart=True)
        assert pipeline.stop() == 0
    judge(case, "many")


def test_a_pipeline_moves_in_the_middle_of_a_snapshot(scenario: Make) -> None:
    pace = {"chunk_rows": 100, "parallel": 1, "rows_per_second": 100}
    case, judge = judged(scenario, "sqlite", snapshot=pace)
    case.server.execute(
        "CREATE TABLE many (id INT PRIMARY KEY, v INT)",
        "INSERT INTO many WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 900) "
        "SELECT i, 0 FROM n",
    )
    with case.running() as pipeline:
        pipeline.wait_until(lambda s: s["snapshot"]["rows_placed"] > 100, "some rows", seconds=300)
        pipeline.kill("driver")
        pipeline.wait(seconds=60)
    before = case.status()["snapshot"]
    assert not before["done"] and before["chunks_placed"]
    case.server.execute("UPDATE many SET v = 1 WHERE id % 2 = 0", "DELETE FROM many WHERE id < 20")
    done = case.command("move", "--to", str(case.folder / "new"), "--yes", "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    shutil.rmtree(case.folder / "state")
    case.options["state"] = json.loads(done.stdout)["state"]
    case.options["snapshot"] = {"chunk_rows": 100}
    case.write_file()
    assert case.status()["snapshot"]["chunks_placed"] >= before["chunks_placed"]
    once(case)
    judge(case, "many")


def test_all_sinks_of_a_file_move_together_are_reset_together_and_adopted_one_by_one(
    scenario: Make, tmp_path: Path
) -> None:
    files = [tmp_path / "one.db", tmp_path / "two.db"]
    sinks = [
        {"type": "jdbc", "name": name, "url": f"sqlite://{file}"}
        for name, file in zip(("one", "two"), files, strict=True)
    ]
    case = with_sinks(scenario, *sinks)

    def run_once() -> None:
        done = case.command("run", "--once", timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]
        assert all(rows(case, file) == expected(case) for file in files)

    case.server.execute("CREATE TABLE a (id INT PRIMARY KEY, v INT)", "INSERT INTO a VALUES (1, 1), (2, 2)")
    run_once()
    case.server.execute("UPDATE a SET v = 3 WHERE id = 1")
    done = case.command("move", "--to", str(case.folder / "new"), "--yes", "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    refusal(case.command("run", "--once"), "was moved from", str(case.folder / "new"))
    whole, case.file = case.file, Path(f"{case.file}#two")
    refusal(case.command("run", "--once"), "was moved from")
    case.file = whole
    shutil.rmtree(case.folder / "state")
    document = yaml.safe_load(case.file.read_text())
    case.file.write_text(yaml.safe_dump(document | {"state": json.loads(done.stdout)["state"]}))
    case.server.execute("DELETE FROM a WHERE id = 2", "INSERT INTO a VALUES (4, 4)")
    run_once()
    known = uuids(case)
    done = case.command("reset", "--yes")
    assert done.returncode == 0, done.stderr[-3000:]
    case.server.execute("DELETE FROM a WHERE id = 4", "INSERT INTO a VALUES (5, 5)")
    run_once()
    assert uuids(case) == known
    shutil.rmtree(case.folder / "new" / "state")
    case.server.execute("DELETE FROM a WHERE id = 5", "INSERT INTO a VALUES (6, 6)")
    done = case.command("adopt", "--yes")
    assert done.returncode == 0, done.stderr[-3000:]
    run_once()
    assert uuids(case) == known
    case.server.execute("UPDATE a SET v = 7")
    run_once()


def uuids(case: Scenario) -> dict[str, str]:
    found = {}
    for database in sorted((case.folder / "new").rglob("state.sqlite")):
        with closing(StateStore(database.parent, read_only=True)) as state:
            found[database.parent.name] = state.uuid
    return found
