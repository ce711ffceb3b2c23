"""`penstock adopt` and `penstock reset`: a pipeline whose state is lost or unwanted goes on with its targets.

The judges are the server's SELECT, and a reader of each target that knows nothing of Penstock."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import pytest
from tests.change_log import newest_rows
from tests.sinks.conformance import with_servers

from penstock import Pipeline
from penstock.errors import ConfigError, PenstockError
from penstock.state import StateStore
from penstock.testing import oracle, topics
from penstock.testing.scenario import Scenario, refusal
from penstock.testing.servers import KafkaCluster

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


def go_on(case: Scenario) -> None:
    """The stream after the snapshot."""
    case.server.execute("UPDATE orders SET v = 'after' WHERE id = 1", "DELETE FROM orders WHERE id = 4")
    once(case)


Rows = Callable[[Scenario, str], list[oracle.Row]]


def assert_equal(case: Scenario, rows: Rows, tables: Sequence[str] = TABLES) -> None:
    for table in tables:
        oracle.assert_same_rows(oracle.rows_of(case.server, f"{case.database}.{table}"), rows(case, table))


def rows_in_lake(case: Scenario, table: str) -> list[oracle.Row]:
    columns = oracle.columns_of(case.server, f"{case.database}.{table}")
    frame = case.target(table)
    if case.sink == "parquet":
        [[emptied]] = frame.where("_change_type = 'truncate'").selectExpr("max(_sequence)").collect()
        frame = newest_rows(frame.where(f"_sequence > {emptied or -1}"), columns)
    names = [f"`{column.name}`" for column in columns]
    return oracle.canonical_rows((tuple(row) for row in frame.select(*names).collect()), columns)


def rows_in_topics(kafka: KafkaCluster) -> Rows:
    def rows(case: Scenario, table: str) -> list[oracle.Row]:
        name = f"{case.database}.{table}"
        columns = {name: oracle.columns_of(case.server, name)}
        found = topics.rebuild(topics.records(kafka.bootstrap, [name]), columns)
        assert found.repeated == 0
        return found.rows[name]

    return rows


def rows_in_sqlite(case: Scenario, table: str) -> list[oracle.Row]:
    columns = oracle.columns_of(case.server, f"{case.database}.{table}")
    listed = ", ".join(f'"{column.name}"' for column in columns)
    with closing(sqlite3.connect(case.folder / "targets.db")) as file:
        found = file.execute(f'SELECT {listed} FROM "{case.database}_{table}"').fetchall()
    return oracle.canonical_rows(found, columns)


def rows_in_redis(server: Any) -> Rows:
    import redis

    def rows(case: Scenario, table: str) -> list[oracle.Row]:
        columns = oracle.columns_of(case.server, f"{case.database}.{table}")
        client: Any = redis.Redis(host=server.host, port=server.port, password=server.password)
        with closing(client):
            found = [
                [row.get(one.name.encode()) and row[one.name.encode()].decode() for one in columns]
                for key in client.scan_iter(match=f"{case.database}:{table}:*", count=1000)
                for row in [client.hgetall(key)]
            ]
        return oracle.canonical_rows(found, columns)

    return rows


def pipeline_into(scenario: Make, sink: str) -> tuple[Scenario, Rows]:
    case = scenario(sink)
    if sink == "sqlite":
        case.options["sink"] = {"type": "jdbc", "url": f"jdbc:sqlite:{case.folder / 'targets.db'}"}
        rows: Rows = rows_in_sqlite
    elif sink == "redis":
        server = with_servers.server("valkey")
        case.options["sink"] = {"type": "redis", "url": server.url, "password": server.password}
        rows = rows_in_redis(server)
    else:
        rows = rows_in_lake
    case.write_file()
    return case, rows


@pytest.mark.parametrize("sink", ["iceberg", "delta", "sqlite", "redis", "parquet"])
def test_targets_of_a_lost_state_are_adopted_and_end_equal_to_the_source(scenario: Make, sink: str) -> None:
    case, rows = pipeline_into(scenario, sink)
    fill(case)
    assert_equal(case, rows)
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
    assert_equal(case, rows, (*TABLES, "added"))
    go_on(case)
    assert_equal(case, rows, (*TABLES, "added"))


def test_the_shared_target_of_shards_is_adopted(scenario: Make) -> None:
    case, _ = pipeline_into(scenario, "iceberg")
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
    case, rows = pipeline_into(scenario, "sqlite")
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
    assert_equal(case, rows)


def test_a_stream_of_a_lost_state_goes_on_with_all_rows_again(scenario: Make, kafka: KafkaCluster) -> None:
    """Each table begins with a message that it was emptied, so consumers end equal to the source."""
    case, rows = scenario("kafka"), rows_in_topics(kafka)
    case.options["sink"] = {"type": "kafka", "bootstrap": kafka.bootstrap, "format": "json"}
    case.write_file()
    fill(case)
    assert_equal(case, rows)
    lose(case)
    change_meanwhile(case)
    found = adopt(case)
    assert {one["pipeline"] for one in found["tables"]} == {None}
    once(case)
    assert_equal(case, rows, (*TABLES, "added"))
    go_on(case)
    assert_equal(case, rows, (*TABLES, "added"))


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
    case, rows = pipeline_into(scenario, sink)
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
    done = case.command("reset", "--yes")
    assert done.returncode == 0, done.stderr[-3000:]
    assert owner in done.stdout and "state.sqlite" in done.stdout
    once(case)
    assert uuid_of(case) == owner
    assert_equal(case, rows, (*TABLES, "added"))
    go_on(case)
    assert_equal(case, rows, (*TABLES, "added"))


def test_readers_see_no_empty_target_while_tables_are_read_again(scenario: Make) -> None:
    case, rows = pipeline_into(scenario, "iceberg")
    fill(case)
    lose(case)
    case.server.execute("UPDATE orders SET v = 'changed' WHERE id = 3")
    adopt(case)
    once(case)
    assert_equal(case, rows)
    name = f"lake.{case.namespace}.orders"
    for row in case.spark.sql(f"SELECT snapshot_id FROM {name}.snapshots").collect()[1:]:
        found = case.spark.sql(f"SELECT count(*) FROM {name} VERSION AS OF {row.snapshot_id}").collect()
        assert found[0][0] >= 4


def test_a_pipeline_moves_in_the_middle_of_its_life(scenario: Make) -> None:
    case, rows = pipeline_into(scenario, "sqlite")
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
    assert_equal(case, rows)
