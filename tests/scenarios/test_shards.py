"""`merge_shards`: tables of several databases are one table at the target.

The judge is the server's own SELECT over all shards, with the shard's name beside each row.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.scenarios import sharded

from penstock.testing.running import Victim
from penstock.testing.scenario import Scenario
from penstock.testing.servers import Database, MySqlServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # tests/sinks/lake/test_shards.py has quick ones

Make = Callable[..., Scenario]


@dataclass
class Lived:
    """One pipeline over four shards, and what was seen of it."""

    case: Scenario
    shards: list[str] = field(default_factory=list)
    first: str = ""
    then: str = ""
    hidden: str = ""
    mended: str = ""
    status: dict[str, Any] = field(default_factory=dict)
    history: dict[str, list[str]] = field(default_factory=dict)
    found: dict[str, bool] = field(default_factory=dict)


@pytest.fixture(scope="module", params=["iceberg", "delta"])
def lived(
    request: pytest.FixtureRequest,
    mysql_server: Any,
    spark: SparkSession,
    lake_root: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Lived]:
    database = Database(mysql_server)
    folder = tmp_path_factory.mktemp("shards")
    lived = Lived(Scenario(database, database.name, folder, spark, lake_root, request.param))
    sharded.shape(lived.case, snapshot={"chunk_rows": 100})
    try:
        live_through(lived)
        yield lived
    finally:
        sharded.drop(lived.case)
        database.drop()


def proven(case: Scenario, shards: list[str]) -> dict[str, bool]:
    """What `penstock verify` says of each."""
    done = case.command("verify", *shards, "--json")
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    return {one["table"]: one["equal"] for one in document["tables"]}


def live_through(lived: Lived) -> None:
    case = lived.case
    d = case.database
    shards = lived.shards
    shards += [d + name for name in sharded.TABLES]
    with case.running() as pipeline:
        with sharded.writes(case, lambda: list(shards)):
            pipeline.wait_until(lambda s: s["snapshot"]["done"] and s["epoch"] > 2, "the rows", seconds=400)
        case.drain(pipeline)
        lived.first = sharded.difference(case, shards)
        with sharded.writes(case, lambda: list(shards), seed=2):
            case.server.execute(
                f"TRUNCATE TABLE {d}_1.orders_2",
                f"INSERT INTO {d}_1.orders_2 (id, amount) VALUES (7, -1), (18446744073709551615, 5)",
                # A new shard, which brings a column and a wider type.
                f"CREATE TABLE {d}_2.orders_3 (id INT PRIMARY KEY, price DECIMAL(14,4), flag INT)",
                f"INSERT INTO {d}_2.orders_3 VALUES (1, 123456789.0625, 1), (2, 0.5, NULL)",
                # Each in one shard alone, or in one before the others.
                f"ALTER TABLE {d}_1.orders_1 ADD COLUMN extra INT NOT NULL DEFAULT 7",
                f"ALTER TABLE {d}_2.orders_1 DROP COLUMN price, RENAME COLUMN at TO moment",
                f"ALTER TABLE {d}_1.orders_1 RENAME COLUMN note TO remark",
                f"UPDATE {d}_2.orders_1 SET moment = '2020-01-01 00:00:00' WHERE id < 20",
                f"UPDATE {d}_1.orders_1 SET extra = 8, remark = 'said' WHERE id < 10",
                # Types and a key that do not go with the others.
                f"CREATE TABLE {d}_1.orders_text (id INT PRIMARY KEY, amount VARCHAR(20))",
                f"INSERT INTO {d}_1.orders_text VALUES (1, 'many')",
                f"CREATE TABLE {d}_1.orders_keyed (customer VARCHAR(20) PRIMARY KEY, id INT)",
                # A captured table that is no shard.
                f"CREATE TABLE {d}_1.other (id INT PRIMARY KEY)",
                f"INSERT INTO {d}_1.other VALUES (1)",
            )
            shards.append(f"{d}_2.orders_3")
            pipeline.wait_until(
                lambda s: any(one["table"] == f"{d}_1.other" for one in s["tables"]), "more", seconds=400
            )
        case.drain(pipeline)
        pipeline.wait_until(
            lambda s: not any(one["resnapshot_pending"] for one in s["tables"]),
            "what is read again",
            seconds=400,
        )
        lived.status = case.drain(pipeline)
        lived.then = sharded.difference(case, shards)
        case.server.execute("SET sql_log_bin = 0", f"DELETE FROM {d}_2.orders_2 WHERE id < 50",
                            f"UPDATE {d}_2.orders_2 SET customer = 'unseen' WHERE id = 60")  # fmt: skip
        lived.hidden = sharded.difference(case, shards)
        lived.found = proven(case, shards)
        assert case.command("resnapshot", f"{d}_2.orders_2").returncode == 0
        # Committed after the answer: what the pipeline says once it has this is no older than the request.
        case.server.execute(f"INSERT INTO {d}_2.orders_2 (id) VALUES (999)")
        case.drain(pipeline)
        lived.mended = sharded.difference(case, shards)
        assert pipeline.stop() == 0
    for one in json.loads(case.command("status", "--history", "--json").stdout):
        lived.history.setdefault(one["table"].removeprefix(d), []).append(one["what"])


def test_rows_of_all_shards_are_one_table_after_snapshot_and_stream_under_writes(lived: Lived) -> None:
    assert not lived.first, lived.first


def test_truncate_new_shards_and_changes_of_one_shard_leave_the_others_alone(lived: Lived) -> None:
    assert not lived.then, lived.then
    whole = lived.case.target("orders")
    types = {one.name: one.dataType.simpleString() for one in whole.schema}
    assert (types["id"], types["amount"], types["price"]) == ("decimal(20,0)", "bigint", "decimal(14,4)")
    assert (types["ratio"], types["at"], types["moment"]) == ("double", "timestamp_ntz", "timestamp_ntz")


def test_a_shard_that_does_not_go_with_the_others_is_parked_with_the_reason(lived: Lived) -> None:
    parked = {
        one["table"].removeprefix(lived.case.database): one["parked"]["reason"]
        for one in lived.status["tables"]
        if one["parked"]
    }
    assert parked.keys() == {"_1.orders_text", "_1.orders_keyed"}
    assert "no type holds both exactly" in parked["_1.orders_text"]
    assert "The key of" in parked["_1.orders_keyed"]


def test_only_the_shard_whose_shared_column_was_renamed_is_read_again(lived: Lived) -> None:
    again = {table for table, said in lived.history.items() if "read again from its beginning" in said}
    assert again == {"_2.orders_1", "_2.orders_2"}  # the second was asked for


def test_a_resnapshot_of_one_shard_mends_it_and_verify_finds_it(lived: Lived) -> None:
    assert "extra" in lived.hidden, "what is not in the log is not seen"
    damaged = f"{lived.case.database}_2.orders_2"
    assert lived.found == {name: name != damaged for name in lived.shards}
    assert not lived.mended, lived.mended


def test_a_captured_table_that_is_no_shard_has_a_target_of_its_own(lived: Lived) -> None:
    assert [row["id"] for row in lived.case.target("other").collect()] == [1]


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["iceberg", "delta"])
def test_kill_9_at_any_moment_loses_and_doubles_no_row_of_any_shard(
    mysql_factory: Callable[..., MySqlServer], spark: SparkSession, lake_root: Path, tmp_path: Path, sink: str
) -> None:
    server, chance = mysql_factory(), random.Random(sink)
    case = Scenario(server, "shop", tmp_path, spark, lake_root, sink)
    sharded.shape(case, snapshot={"chunk_rows": 50})
    shards = ["shop" + name for name in sharded.TABLES]
    changes = [
        ["TRUNCATE TABLE shop_1.orders_1", "INSERT INTO shop_1.orders_1 (id, amount) VALUES (1, 1), (2, 2)"],
        ["ALTER TABLE shop_1.orders_2 ADD COLUMN more INT DEFAULT 5, DROP COLUMN Customer"],
        [f"CREATE TABLE shop_2.orders_3 ({sharded.TABLES['_2.orders_2']})"],
        ["ALTER TABLE shop_2.orders_1 RENAME COLUMN price TO cost"],
        ["ALTER TABLE shop_1.orders_1 MODIFY amount BIGINT, ADD COLUMN more BIGINT DEFAULT 6"],
        ["TRUNCATE TABLE shop_2.orders_2"],
    ]
    victims: list[Victim] = ["driver", "worker", "jvm", "receiver", "driver", "jvm"]
    with case.running() as pipeline:
        with sharded.writes(case, lambda: list(shards), seed=3):
            for victim, statements in zip(victims, changes, strict=True):
                before = pipeline.latest.get("epoch", 0)
                case.server.execute(*statements)
                if "orders_3" in statements[0]:
                    shards.append("shop_2.orders_3")
                reached = pipeline.next_epoch(after=before, seconds=400, restart=True)["epoch"]
                moment = reached + chance.uniform(0, 2)
                pipeline.next_epoch(after=moment, seconds=400, restart=True)
                pipeline.kill(victim)
                pipeline.ensure_alive()
        case.drain(pipeline, restart=True)
        pipeline.wait_until(
            lambda s: not any(one["resnapshot_pending"] for one in s["tables"]),
            "what is read again",
            seconds=400,
            restart=True,
        )
        status = case.drain(pipeline, restart=True)
        assert not [one for one in status["tables"] if one["parked"]]
        assert {"driver", "jvm"} <= set(pipeline.kills)
        assert pipeline.stop() == 0
    found = sharded.difference(case, shards)
    assert not found, found


@pytest.mark.slow
def test_a_shard_that_goes_is_kept_or_dropped_by_policy_and_one_renamed_is_there_once(scenario: Make) -> None:
    case = scenario()
    d = case.database
    sharded.shape(case)
    shards = [d + name for name in sharded.TABLES]
    try:
        with case.running() as pipeline:
            case.drain(pipeline)
            case.server.execute(
                f"DROP TABLE {d}_1.orders_1",
                f"RENAME TABLE {d}_1.orders_2 TO {d}_2.orders_9",
                f"UPDATE {d}_2.orders_9 SET amount = -5 WHERE id < 9",
            )
            case.drain(pipeline)
            assert sharded.counts(case) == {
                shards[0]: sharded.ROWS, shards[2]: sharded.ROWS, shards[3]: sharded.ROWS,
                f"{d}_2.orders_9": sharded.ROWS,
            }  # fmt: skip
            assert pipeline.stop() == 0
            case.write_file(schema={"dropped_tables": "drop"})
            pipeline.start()
            case.server.execute(
                f"DROP TABLE {d}_2.orders_1",
                f"CREATE TABLE {d}_1.orders_1 (id INT PRIMARY KEY, amount INT)",
                f"INSERT INTO {d}_1.orders_1 VALUES (1, 1)",
            )
            case.drain(pipeline)
            left = [shards[0], shards[3], f"{d}_2.orders_9"]
            assert not (found := sharded.difference(case, left)), found
            case.server.execute(
                "SET sql_log_bin = 0", f"UPDATE {d}_2.orders_2 SET customer = 'unseen' WHERE id IN (3, 5)",
                f"DELETE FROM {d}_2.orders_9 WHERE id = 7",
            )  # fmt: skip
            done = case.command("repair", *left)
            assert done.returncode == 0, done.stdout + done.stderr
            assert "2 keys read again" in done.stdout and "1 keys read again" in done.stdout, done.stdout
            assert not (found := sharded.difference(case, left)), found
            rows = case.command("query", "SELECT _shard, count(*) FROM orders WHERE id = 3 GROUP BY _shard")
            assert f"{d}_2.orders_9" in rows.stdout, rows.stdout + rows.stderr
            assert pipeline.stop() == 0
    finally:
        sharded.drop(case)


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["iceberg", "delta"])
def test_partial_row_images_are_completed_by_rows_of_their_own_shard(
    mysql_factory: Callable[..., MySqlServer], spark: SparkSession, lake_root: Path, tmp_path: Path, sink: str
) -> None:
    server = mysql_factory(binlog_row_image="MINIMAL")
    case = Scenario(server, "shop", tmp_path, spark, lake_root, sink)
    for number in (1, 2):
        server.execute(
            f"CREATE DATABASE shop_{number}",
            f"CREATE TABLE shop_{number}.orders_1 (id INT PRIMARY KEY, customer VARCHAR(20), amount INT)",
            f"INSERT INTO shop_{number}.orders_1 VALUES (1, 'a{number}', 1), (2, 'b{number}', 2)",
        )
    rule = {"tables": "shop_*.orders_*", "into": "shop.orders"}
    case.write_file(tables=["shop_*.*"], merge_shards=[rule])
    shards = [f"shop_{number}.orders_1" for number in (1, 2)]
    with case.running() as pipeline:
        case.drain(pipeline)
        server.execute(
            "UPDATE shop_1.orders_1 SET amount = 10 WHERE id = 1",
            "UPDATE shop_2.orders_1 SET customer = 'B' WHERE id = 2",
            "DELETE FROM shop_1.orders_1 WHERE id = 2",
        )
        case.drain(pipeline)
        assert not (found := sharded.difference(case, shards)), found
        assert pipeline.stop() == 0


@pytest.mark.slow
def test_what_foreign_keys_change_in_one_shard_changes_its_rows_alone(scenario: Make) -> None:
    case = scenario(cascades="apply")
    d = case.database
    shards = [f"{d}_{number}.orders_1" for number in (1, 2)]
    rows = ", ".join(f"({number}, {number % 5}, {number % 3}, 'note {number}')" for number in range(30))
    for number in (1, 2):
        case.server.execute(
            f"CREATE DATABASE {d}_{number}",
            f"CREATE TABLE {d}_{number}.people (id INT PRIMARY KEY)",
            f"INSERT INTO {d}_{number}.people VALUES (0), (1), (2), (3), (4)",
            f"CREATE TABLE {d}_{number}.orders_1 (id INT PRIMARY KEY, owner INT, payer INT, note TEXT,"
            f" FOREIGN KEY (owner) REFERENCES {d}_{number}.people (id) ON DELETE CASCADE,"
            f" FOREIGN KEY (payer) REFERENCES {d}_{number}.people (id) ON DELETE SET NULL)",
            f"INSERT INTO {d}_{number}.orders_1 VALUES {rows}",
        )
    rules = [{"tables": f"{d}_*.orders_*", "into": f"{d}.orders"},
             {"tables": f"{d}_*.people", "into": f"{d}.people"}]  # fmt: skip
    case.write_file(tables=[f"{d}_*.*"], merge_shards=rules)
    try:
        with case.running() as pipeline:
            case.drain(pipeline)
            case.server.execute(
                f"DELETE FROM {d}_1.people WHERE id = 1",
                f"DELETE FROM {d}_2.people WHERE id = 2",
                f"UPDATE {d}_1.orders_1 SET note = 'later' WHERE id < 4",
            )
            case.drain(pipeline)
            assert not (found := sharded.difference(case, shards)), found
            assert pipeline.stop() == 0
    finally:
        sharded.drop(case)
