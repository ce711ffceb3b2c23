"""`history` in a whole pipeline. The judge is a table that triggers fill at the source."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest

from penstock.sinks.base import COMPLETE_UNTIL
from penstock.testing.running import RunningPipeline
from penstock.testing.scenario import Scenario

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

Make = Callable[..., Scenario]

LOG = (
    "CREATE TABLE log (n BIGINT AUTO_INCREMENT PRIMARY KEY, id INT, name VARCHAR(20), amount DECIMAL(10,2), "
    "kind VARCHAR(10), at TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6))"
)
INSERTED = (
    "CREATE TRIGGER inserted AFTER INSERT ON accounts FOR EACH ROW INSERT INTO log (id, name, amount, kind) "
    "VALUES (NEW.id, NEW.name, NEW.amount, 'begin')"
)
DELETED = (
    "CREATE TRIGGER deleted AFTER DELETE ON accounts FOR EACH ROW INSERT INTO log (id, kind) "
    "VALUES (OLD.id, 'end')"
)
# An update that changes nothing fires triggers, but is in no log.
UPDATED = (
    "CREATE TRIGGER updated AFTER UPDATE ON accounts FOR EACH ROW IF NOT (OLD.id <=> NEW.id AND "
    "OLD.amount <=> NEW.amount) THEN INSERT INTO log (id, kind) VALUES (OLD.id, 'end'); "
    "INSERT INTO log (id, name, amount, kind) VALUES (NEW.id, NEW.name, NEW.amount, 'begin'); END IF"
)
TABLES = (
    "CREATE TABLE accounts (id INT PRIMARY KEY, name VARCHAR(20), amount DECIMAL(10,2))",
    "CREATE TABLE plain (id INT PRIMARY KEY, v INT)",
    LOG,
    INSERTED,
    DELETED,
    UPDATED,
)


def write(case: Scenario, chance: random.Random, count: int) -> None:
    """Transactions of one to four statements."""
    with case.server.connect(database=case.database) as connection, connection.cursor() as cursor:
        for _ in range(count):
            connection.begin()
            for _ in range(chance.randrange(1, 5)):
                key, other = chance.randrange(1, 40), chance.randrange(1, 40)
                cursor.execute(
                    chance.choice([
                        f"INSERT IGNORE INTO accounts VALUES ({key}, 'n{other}', {other}.25)",
                        f"UPDATE accounts SET amount = amount + 1 WHERE id = {key}",
                        f"UPDATE IGNORE accounts SET id = {other} WHERE id = {key}",
                        f"DELETE FROM accounts WHERE id = {key}",
                        f"REPLACE INTO plain VALUES ({key}, {other})",
                    ])
                )  # fmt: skip
            (connection.rollback if chance.random() < 0.1 else connection.commit)()


def told(case: Scenario) -> dict[int, list[tuple[Any, ...]]]:
    """What the triggers have seen: the versions of each key in order, and when they ended."""
    found: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for _, key, name, amount, kind, at in case.server.query(f"SELECT * FROM {case.database}.log ORDER BY n"):
        if kind == "begin":
            found[key].append((name, amount, at, None))
        else:
            found[key][-1] = (*found[key][-1][:3], at)
    return found


def difference(case: Scenario) -> str:
    """Compares the target's versions with what the triggers have seen. Empty: equal."""
    rows = case.target("accounts").orderBy("_sequence").collect()
    found: dict[int, list[Any]] = defaultdict(list)
    for row in rows:
        found[row["id"]].append(row)
    expected = told(case)
    if found.keys() != expected.keys():
        return f"keys {found.keys() ^ expected.keys()}"
    for key, versions in expected.items():
        if [(row["name"], row["amount"], row["_is_current"]) for row in found[key]] != [
            (name, amount, end is None) for name, amount, _, end in versions
        ]:
            return f"{key}: {found[key]} instead of {versions}"
        for row, (_, _, begin, end) in zip(found[key], versions, strict=True):
            # A commit is a moment after its statements.
            for ours, theirs in ((row["_valid_from"], begin), (row["_valid_to"], end)):
                assert (ours is None) == (theirs is None)
                assert ours is None or abs(ours.replace(tzinfo=None) - theirs) < timedelta(seconds=20)
        assert all(one["_valid_to"] <= two["_valid_from"] for one, two in pairwise(found[key]))
    return ""


def write_under_kills(case: Scenario, pipeline: RunningPipeline, chance: random.Random) -> None:
    pipeline.wait_until(lambda s: s["snapshot"]["done"], "the snapshot", seconds=400)
    for _ in range(3):
        write(case, chance, 40)
        pipeline.kill("driver")
        pipeline.start()
        write(case, chance, 40)
    case.drain(pipeline, restart=True)


@pytest.mark.parametrize("sink", ["iceberg", "delta"])
def test_target_has_the_versions_that_triggers_have_seen_through_kills(scenario: Make, sink: str) -> None:
    case = scenario(
        sink, tables={"include": [], "exclude": []}, history={"*.accounts": "scd2"},
        transforms=[{"tables": "*.plain", "columns": {"w": "v + 1"}}],
    )  # fmt: skip
    d = case.database
    case.write_file(tables={"include": [f"{d}.*"], "exclude": [f"{d}.log"]})
    case.server.execute(f"USE {d}", *TABLES)
    chance = random.Random(3)
    with case.running() as pipeline:
        write_under_kills(case, pipeline, chance)
        assert difference(case) == ""
        # Read again: no version begins or ends, since nothing differs.
        before = case.target("accounts").count()
        assert case.command("resnapshot", f"{d}.accounts").returncode == 0
        write(case, chance, 5)
        case.drain(pipeline)
        pipeline.wait_until(
            lambda s: not any(one["resnapshot_pending"] for one in s["tables"]) and s["snapshot"]["done"],
            "the resnapshot", seconds=400,
        )  # fmt: skip
        write(case, chance, 20)
        case.drain(pipeline)
        assert difference(case) == "" and case.target("accounts").count() >= before
        done = case.command("verify", "--json")
        assert {one["equal"] for one in json.loads(done.stdout)["tables"]} == {True}, done.stdout
        case.server.execute(f"TRUNCATE TABLE {d}.accounts")
        case.drain(pipeline)
        assert case.target("accounts").where("_is_current OR _valid_to IS NULL").count() == 0
        assert pipeline.stop() == 0


def changes_differ(case: Scenario) -> str:
    """Compares the target's changes with what the triggers have seen. Empty: equal."""
    expected: dict[int, list[Any]] = defaultdict(list)
    sql = f"SELECT id, kind, amount FROM {case.database}.log ORDER BY n"
    for key, kind, amount in case.server.query(sql):
        expected[key].append((kind, amount if kind == "begin" else None))
    found: dict[int, list[Any]] = defaultdict(list)
    kinds = {"insert": "begin", "update_postimage": "begin", "update_preimage": "end", "delete": "end"}
    rows = case.target("accounts").collect()
    for row in sorted(rows, key=lambda row: (row["_sequence"], kinds[row["_change_type"]] == "begin")):
        kind = kinds[row["_change_type"]]
        assert row["_commit_timestamp"] is not None
        found[row["id"]].append((kind, row["amount"] if kind == "begin" else None))
    if found.keys() - expected.keys():
        return f"keys {found.keys() - expected.keys()}"
    wrong = [key for key, seen in expected.items() if found[key] != seen]
    return f"{wrong[0]}: {found[wrong[0]]} instead of {expected[wrong[0]]}" if wrong else ""


@pytest.mark.parametrize("sink", ["iceberg", "delta"])
def test_target_has_every_change_once_through_kills(scenario: Make, sink: str) -> None:
    case = scenario(sink, tables={"include": [], "exclude": []}, history={"*.accounts": "changelog"})
    d = case.database
    case.write_file(tables={"include": [f"{d}.*"], "exclude": [f"{d}.log"]})
    case.server.execute(f"USE {d}", *TABLES)
    chance = random.Random(4)
    with case.running() as pipeline:
        write_under_kills(case, pipeline, chance)
        assert changes_differ(case) == ""
        until = complete_until(case)
        write(case, chance, 5)
        case.server.execute(f"UPDATE {d}.plain SET v = v + 1")
        case.drain(pipeline)
        last = case.server.query(f"SELECT max(at) FROM {d}.log")[0][0].replace(tzinfo=timezone.utc)
        assert until < complete_until(case) <= last + timedelta(seconds=20)
        assert changes_differ(case) == ""
        done = case.command("verify", "--json")
        assert {one["equal"] for one in json.loads(done.stdout)["tables"]} == {True}, done.stdout
        assert pipeline.stop() == 0


def complete_until(case: Scenario) -> datetime:
    """What the target `plain` says."""
    if case.sink == "iceberg":
        sql = f"SHOW TBLPROPERTIES lake.{case.namespace}.plain ('{COMPLETE_UNTIL}')"
        return datetime.fromisoformat(case.spark.sql(sql).collect()[0]["value"])
    history = case.spark.sql(f"DESCRIBE HISTORY delta.`{case.sink_path / case.namespace / 'plain'}`")
    said = [json.loads(row[0]) for row in history.select("userMetadata").collect() if row[0]]
    return max(datetime.fromisoformat(one[COMPLETE_UNTIL]) for one in said)
