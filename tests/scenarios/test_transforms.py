"""`transforms` in whole pipelines. The judge is the server: a SELECT that says the same as the rules."""

from __future__ import annotations

import hashlib
import hmac
import json
import random
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from tests.scenarios.canaries import files_with

from penstock.testing.scenario import Scenario, refusal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

Make = Callable[..., Scenario]
KEY = "the secret of hashes"
RULES: list[dict[str, Any]] = [
    {
        "tables": "*.customers",
        "where": "state <> 'gone'",
        "columns": {"shout": "upper(name)", "cents": "CAST(amount * 100 AS BIGINT)"},
        "cast": {"joined": "date"},
        "mask": {"card": {"keep_last": 4}},
        "hash": ["email"],
        "exclude": ["note"],
        "rename": {"id": "customer", "name": "called"},
    },
    {"tables": "*.plain", "exclude": ["secret"]},
]
STATES = ["new", "old", "gone"]


def expected(case: Scenario) -> list[tuple[Any, ...]]:
    found = case.server.query(
        f"SELECT id, name, email, card, DATE(joined), amount, state, UPPER(name), "
        f"CAST(amount * 100 AS SIGNED) FROM {case.database}.customers WHERE state <> 'gone' ORDER BY id"
    )

    def hidden(card: str) -> str:
        return "*" * (len(card) - 4) + card[-4:]

    def hashed(email: str | None) -> str | None:
        return None if email is None else hmac.new(KEY.encode(), email.encode(), hashlib.sha256).hexdigest()

    return [(key, name, hashed(email), hidden(card), *rest) for key, name, email, card, *rest in found]


def arrived(case: Scenario) -> list[tuple[Any, ...]]:
    names = ["customer", "called", "email", "card", "joined", "amount", "state", "shout", "cents"]
    frame = case.target("customers")
    assert frame.columns == [*names, "_sequence"]
    return [tuple(row) for row in frame.select(*names).orderBy("customer").collect()]


def write(case: Scenario, chance: random.Random, count: int) -> None:
    statements = []
    for _ in range(count):
        key, state = chance.randrange(1, 400), chance.choice(STATES)
        new = (
            f"REPLACE INTO customers VALUES ({key}, 'näme {chance.random()}', 'a{key % 7}@b.c', "
            f"'12345{chance.randrange(10**6)}', '2024-02-29 12:34:56', {chance.randrange(10**6)}.25, "
            f"'{state}', 'note')"
        )
        statements.append(
            chance.choice([
                new,
                f"UPDATE customers SET state = '{state}', email = NULL WHERE id = {key}",
                f"UPDATE customers SET state = '{state}' WHERE id BETWEEN {key} AND {key + 20}",
                f"DELETE FROM customers WHERE id = {key}",
            ])
        )  # fmt: skip
    case.server.execute(f"USE {case.database}", *statements)


def verified(case: Scenario) -> dict[str, Any]:
    done = case.command("verify", "--json")
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    return {one["table"].split(".")[1]: one for one in document["tables"]}


@pytest.mark.parametrize("sink", ["iceberg", "delta"])
def test_targets_have_what_the_rules_say_through_kills_and_verify_proves_it(
    scenario: Make, sink: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSFORM_KEY", KEY)
    case = scenario(
        sink, snapshot={"chunk_rows": 50}, transforms=RULES, transform_key="${TRANSFORM_KEY}",
        epoch={"interval": "200ms", "driver_bytes_max": "64KiB"},
    )  # fmt: skip
    case.server.execute(
        f"USE {case.database}",
        "CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(40), email VARCHAR(40), card VARCHAR(20), "
        "joined DATETIME, amount DECIMAL(10,2), state VARCHAR(10), note TEXT)",
        "CREATE TABLE plain (id INT PRIMARY KEY, secret TEXT, v INT)",
        "INSERT INTO plain VALUES (1, 's', 2)",
    )
    chance = random.Random(5)
    write(case, chance, 300)
    with case.running() as pipeline:
        write(case, chance, 100)
        pipeline.wait_until(lambda s: s["snapshot"]["done"], "the snapshot", seconds=400)
        for _ in range(3):
            write(case, chance, 60)
            pipeline.kill("driver")
            pipeline.start()
            write(case, chance, 60)
        # More than the driver may decode itself.
        case.server.execute(
            f"USE {case.database}",
            "UPDATE customers SET name = CONCAT(name, REPEAT('x', 10)), amount = amount + 1",
        )
        for _ in range(6):
            case.server.execute(f"USE {case.database}", "UPDATE customers SET amount = amount + 1")
        case.drain(pipeline, restart=True)
        assert arrived(case) == expected(case)
        found = verified(case)
        assert {name: one["equal"] for name, one in found.items()} == {"customers": True, "plain": True}
        case.server.execute(
            "SET sql_log_bin = 0",
            f"UPDATE {case.database}.customers SET card = '00000001234' WHERE id = 3",
            f"REPLACE INTO {case.database}.customers (id, card, state) VALUES (9999, '1234', 'new')",
            f"UPDATE {case.database}.plain SET secret = 'nobody sees this'",
        )
        found = verified(case)
        assert found["plain"]["equal"]
        different = {one["key"]["id"]: one["kind"] for one in found["customers"]["keys_different"]}
        assert different["9999"] == "missing" and different.keys() <= {"3", "9999"}
        assert pipeline.stop() == 0
    assert files_with(case.folder / "state", KEY) == []


def test_other_rules_need_a_target_that_is_made_again(scenario: Make) -> None:
    rule = {"tables": "*.customers", "exclude": ["note"]}
    case = scenario("iceberg", transforms=[rule])
    case.server.execute(
        f"USE {case.database}",
        "CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(40), note TEXT)",
        "CREATE TABLE others (id INT PRIMARY KEY, name VARCHAR(40))",
        "INSERT INTO customers VALUES (1, 'a', 'n'), (2, 'b', 'n')",
        "INSERT INTO others VALUES (1, 'a')",
    )
    assert case.command("run", "--once").returncode == 0
    case.server.execute(f"UPDATE {case.database}.customers SET name = 'c' WHERE id = 2")
    case.write_file(transforms=[{"tables": "*.customers", "where": "name <> 'a'"}])
    refusal(case.command("run", "--once"), "transforms", f"{case.database}.customers", "--recreate")
    assert case.command("resnapshot", f"{case.database}.customers", "--recreate").returncode == 0
    done = case.command("run", "--once")
    assert done.returncode == 0, done.stderr
    frame = case.target("customers")
    assert frame.columns == ["id", "name", "note", "_sequence"]
    assert [tuple(row)[:3] for row in frame.collect()] == [(2, "c", "n")]
    # Under the old rules, a key that is left out is refused before anything is made.
    case.server.execute(f"CREATE TABLE {case.database}.more (id INT PRIMARY KEY)")
    case.write_file(
        transforms=[{"tables": "*.customers", "where": "name <> 'a'"}, {"tables": "*.more", "mask": "id"}]
    )
    refusal(case.command("run", "--once"), "transforms", "key")


def test_a_dropped_column_that_a_rule_needs_parks_its_table_alone(scenario: Make) -> None:
    case = scenario("iceberg", transforms=[{"tables": "*.customers", "mask": "name"}])
    case.server.execute(
        f"USE {case.database}",
        "CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(40))",
        "CREATE TABLE others (id INT PRIMARY KEY, name VARCHAR(40))",
        "INSERT INTO customers VALUES (1, 'a')",
    )
    with case.running() as pipeline:
        pipeline.wait_until(lambda s: s["snapshot"]["done"], "the snapshot", seconds=400)
        case.server.execute(
            f"USE {case.database}",
            "ALTER TABLE customers ADD COLUMN more INT DEFAULT 5",
            "INSERT INTO customers VALUES (2, 'b', 6)",
        )
        case.drain(pipeline)
        rows = sorted(tuple(row)[:3] for row in case.target("customers").collect())
        assert rows == [(1, "***", 5), (2, "***", 6)]
        case.server.execute(
            f"USE {case.database}",
            "ALTER TABLE customers DROP COLUMN name",
            "INSERT INTO others VALUES (1, 'x')",
        )
        status = case.drain(pipeline)
        [parked] = [one for one in status["tables"] if one["status"] == "parked"]
        assert parked["table"] == f"{case.database}.customers" and "`name`" in parked["parked"]["reason"]
        case.assert_equal("others")


def test_a_parked_table_of_another_name_comes_back_by_the_command_of_its_hint(scenario: Make) -> None:
    """The sink knows the table only as `to` names it, and the command needs the name at the source."""
    case = scenario("jdbc")
    file = case.folder / "targets.db"
    case.write_file(
        sink={"type": "jdbc", "url": f"sqlite://{file}"},
        transforms=[{"tables": f"{case.database}.a", "to": "{database}.other"}],
    )
    case.server.execute("CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(9))", "INSERT INTO a VALUES (1, '07')")
    assert case.command("run", "--once").returncode == 0
    name = f"{case.database}_other"
    with closing(sqlite3.connect(file)) as database:
        database.execute(
            f"CREATE TRIGGER no BEFORE INSERT ON {name} WHEN NEW.id = 2 BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    case.server.execute("INSERT INTO a VALUES (2, '8')")
    assert case.command("run", "--once").returncode == 4
    [table] = case.status()["tables"]
    [command] = re.findall(r"`penstock (\w+) FILE ([^` ]+)`", table["parked"]["hint"])
    with closing(sqlite3.connect(file)) as database:
        database.execute("DROP TRIGGER no")
    assert case.command(*command).returncode == 0
    case.server.execute("ALTER TABLE a MODIFY v INT")  # only the server knows what becomes of values
    done = case.command("run", "--once", "--json")
    assert done.returncode == 0, done.stderr
    told = [json.loads(line)["message"] for line in done.stderr.splitlines()]
    assert [one for one in told if f"{case.database}.a is read again" in one], told
    with closing(sqlite3.connect(file)) as database:
        assert sorted(database.execute(f"SELECT id, v FROM {name}")) == [(1, 7), (2, 8)]
