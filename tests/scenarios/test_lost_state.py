"""`penstock adopt` and `penstock reset`: a pipeline whose state is lost or unwanted goes on with its targets.

The judges are the server's SELECT, and a reader of each target that knows nothing of Penstock."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from tests.scenarios.judged_targets import FILES, LAKE, MESSAGES, SQL, STORES, judged

from penstock import Pipeline
from penstock.errors import ConfigError, PenstockError
from penstock.state import StateStore
from penstock.testing.scenario import Scenario, refusal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Make = Callable[..., Scenario]
TABLES = ("orders", "emptied", "parts")


def once(case: Scenario) -> None:
    Pipeline.load(case.file).run(once=True, spark=case.spark)


def fill(case: Scenario) -> None:
    case.server.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(20))",
        "INSERT INTO orders VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')",
        "CREATE TABLE emptied (id INT PRIMARY KEY)",
        "INSERT INTO emptied VALUES (1), (2)",
        "CREATE TABLE parts (a INT, b INT, n INT, PRIMARY KEY (a, b))",
        "INSERT INTO parts VALUES (1, 1, 1), (1, 2, 2)",
    )
    once(case)
    for number in range(20):  # the log becomes long, so old rows have large sequences
        case.server.execute(f"UPDATE orders SET v = CONCAT('x', {number})", f"UPDATE parts SET n = {number}")
    once(case)


def change_meanwhile(case: Scenario) -> None:
    """While there is no state."""
    case.server.execute(
        "DELETE FROM orders WHERE id = 2",
        "UPDATE orders SET v = 'changed' WHERE id = 3",
        "INSERT INTO orders VALUES (5, 'new')",
        "DELETE FROM emptied",
        "ALTER TABLE parts ADD COLUMN more INT DEFAULT 7",
        "UPDATE parts SET n = 100 WHERE b = 2",
        "CREATE TABLE added (id INT PRIMARY KEY)",
        "INSERT INTO added VALUES (1)",
    )


def lose(case: Scenario) -> None:
    shutil.rmtree(case.folder / "state")


def uuid_of(case: Scenario) -> str:
    with closing(StateStore(case.folder / "state", read_only=True)) as state:
        return state.uuid


def adopt(case: Scenario, *options: str) -> dict[str, Any]:
    done = case.command("adopt", "--yes", "--json", *options)
    assert done.returncode == 0, done.stderr[-3000:]
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["done"]
    return document


def reset(case: Scenario) -> str:
    done = case.command("reset", "--yes")
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def go_on(case: Scenario) -> None:
    """The stream after the snapshot."""
    case.server.execute(
        "UPDATE orders SET v = CONCAT(v, '.') WHERE id = 1", "DELETE FROM orders WHERE id = 4"
    )
    once(case)


@pytest.mark.parametrize("sink", [*LAKE, *FILES, *SQL, *STORES])
def test_targets_of_a_lost_state_are_adopted_and_end_equal_to_the_source(scenario: Make, sink: str) -> None:
    case, judge = judged(scenario, sink)
    fill(case)
    judge(case, *TABLES)
    owner, epochs = uuid_of(case), case.status()["epoch"]
    lose(case)
    change_meanwhile(case)
    with pytest.raises(ConfigError, match="is taken") as refused:
        once(case)
    assert owner in refused.value.message and "`penstock adopt FILE`" in refused.value.hint
    found = adopt(case)
    assert found["pipelines"][0]["pipeline"] == owner
    assert {(one["table"].rpartition(".")[2], one["pipeline"]) for one in found["tables"]} == {
        ("added", None), *((table, owner) for table in TABLES)
    }  # fmt: skip
    once(case)
    assert uuid_of(case) == owner and case.status()["epoch"] > epochs
    judge(case, *TABLES, "added")
    go_on(case)
    judge(case, *TABLES, "added")
    reset(case)
    case.server.execute("DELETE FROM orders WHERE id = 3", "UPDATE parts SET n = 8 WHERE b = 1")
    once(case)
    judge(case, *TABLES, "added")
    go_on(case)
    judge(case, *TABLES, "added")
    assert uuid_of(case) == owner


def test_the_shared_target_of_shards_is_adopted(scenario: Make) -> None:
    case, _ = judged(scenario, "iceberg")
    rule = {"tables": [f"{case.database}.s_*"], "into": f"{case.database}.all", "shard_column": "shard"}
    case.options["merge_shards"] = [rule]
    case.write_file()
    for name in ("s_1", "s_2"):
        case.server.execute(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {name} VALUES (1, 1), (2, 2)"
        )
    once(case)
    lose(case)
    case.server.execute("DELETE FROM s_1 WHERE id = 1", "UPDATE s_2 SET v = 3 WHERE id = 1")
    adopt(case)
    once(case)
    found = {(row.shard.rpartition(".")[2], row.id, row.v) for row in case.target("all").collect()}
    assert found == {("s_1", 2, 2), ("s_2", 1, 3), ("s_2", 2, 2)}
    assert case.target("all").count() == 3


def test_a_state_is_lost_a_second_time_and_nothing_is_adopted_twice(scenario: Make) -> None:
    """Numbers go on behind those of the state that was adopted."""
    case, judge = judged(scenario, "sqlite")
    fill(case)
    lose(case)
    adopt(case)
    assert adopt(case)["pipelines"] == []  # repeated, there is nothing to do
    once(case)
    go_on(case)
    refusal(case.command("adopt", "--yes"), "is that of the pipeline", "penstock reset")
    done = case.command("verify", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["equal"], done.stdout
    lose(case)
    case.server.execute("DELETE FROM orders WHERE id = 3", "UPDATE orders SET v = 'again'")
    adopt(case)
    once(case)
    judge(case, *TABLES)


@pytest.mark.parametrize("sink", MESSAGES)
def test_a_stream_of_a_lost_state_goes_on_with_all_rows_again(scenario: Make, sink: str) -> None:
    """Each table begins with a message that it was emptied, so consumers end equal to the source."""
    case, judge = judged(scenario, sink)
    fill(case)
    judge(case, *TABLES)
    lose(case)
    change_meanwhile(case)
    found = adopt(case)
    assert {one["pipeline"] for one in found["tables"]} == {None}
    once(case)
    judge(case, *TABLES, "added")
    reset(case)
    once(case)
    go_on(case)
    judge(case, *TABLES, "added")


def damage_state(case: Scenario) -> None:
    path = case.folder / "state" / "state.sqlite"
    path.write_bytes(b"\0" * path.stat().st_size)


def damage_log(case: Scenario) -> None:
    last = max((case.folder / "state" / "relay").glob("*.binlog"))
    last.write_bytes(last.read_bytes()[:100])


@pytest.mark.parametrize("sink", ["sqlite", "iceberg"])
@pytest.mark.parametrize("harm", [damage_state, damage_log])
def test_a_reset_pipeline_ends_equal_to_the_source(
    scenario: Make, sink: str, harm: Callable[[Scenario], None]
) -> None:
    case, judge = judged(scenario, sink)
    fill(case)
    owner = uuid_of(case)
    with case.running() as pipeline:
        case.drain(pipeline)
        refusal(case.command("reset", "--yes"), "Another process runs the pipeline")
        assert pipeline.stop() == 0
    plan = json.loads(case.command("reset", "--json").stdout)
    assert not plan["done"] and plan["pipelines"][0]["pipeline"] == owner
    assert {"state.sqlite", "relay.json"} <= {
        one["path"].split("/")[-1] for one in plan["pipelines"][0]["deletes"]
    }
    assert uuid_of(case) == owner, "it only said what it would do"
    change_meanwhile(case)
    harm(case)
    with pytest.raises(PenstockError) as failed:
        once(case)
    assert "penstock reset" in failed.value.hint
    refusal(case.command("reset"), "there is no terminal", "--yes")
    said = reset(case)
    assert owner in said and "state.sqlite" in said
    once(case)
    assert uuid_of(case) == owner
    judge(case, *TABLES, "added")
    go_on(case)
    judge(case, *TABLES, "added")


def test_readers_see_no_empty_target_while_tables_are_read_again(scenario: Make) -> None:
    case, judge = judged(scenario, "iceberg")
    fill(case)
    lose(case)
    case.server.execute("UPDATE orders SET v = 'changed' WHERE id = 3")
    adopt(case)
    once(case)
    judge(case, *TABLES)
    name = f"lake.{case.namespace}.orders"
    for row in case.spark.sql(f"SELECT snapshot_id FROM {name}.snapshots").collect()[1:]:
        found = case.spark.sql(f"SELECT count(*) FROM {name} VERSION AS OF {row.snapshot_id}").collect()
        assert found[0][0] >= 4


def test_a_pipeline_moves_in_the_middle_of_its_life(scenario: Make) -> None:
    case, judge = judged(scenario, "sqlite")
    fill(case)
    case.server.execute("UPDATE orders SET v = 'backlog' WHERE id = 1")
    with case.receiving():
        case.wait_until_received()
    position = case.status()["offset"]
    new = case.folder / "new"
    done = case.command("move", "--to", str(new), "--yes", "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    moved = json.loads(done.stdout)
    assert moved["state"] == str(new / "state") and moved["files"] > 3
    for command in ("run", "receive", "status"):
        refusal(case.command(command), "was moved from", str(new / "state"))
    with closing(sqlite3.connect(new / "state" / "state.sqlite")) as copy:
        assert not any(str(case.folder / "state/") in line for line in copy.iterdump())
    shutil.rmtree(case.folder / "state")
    case.options["state"] = moved["state"]
    case.write_file()
    assert case.status()["offset"] == position
    case.server.execute("DELETE FROM orders WHERE id = 2")
    once(case)
    judge(case, *TABLES)
