"""A parked table comes back: from where it stopped if nothing is lost to it, else read from its beginning."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock import config as configuration
from penstock.relaylog import retention
from penstock.relaylog.segment import SegmentName
from penstock.testing.scenario import Scenario

# Quick: `runtime/test_unpark.py`, and `planning` for what a table does that catches up.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Make = Callable[..., Scenario]

ROWS = (
    "CREATE TABLE {t} (id INT PRIMARY KEY, a INT, b VARCHAR(20))",
    "INSERT INTO {t} VALUES (1, 10, 'x'), (2, 20, 'y'), (3, 30, 'z')",
)
WHILE_PARKED = (
    "ALTER TABLE t ADD COLUMN c INT DEFAULT 7",
    "UPDATE t SET a = 11 WHERE id = 1",
    "INSERT INTO t VALUES (4, 40, 'n', 1)",
    "ALTER TABLE t DROP COLUMN a",
    "DELETE FROM t WHERE id = 2",
    "ALTER TABLE t RENAME COLUMN b TO a",
    "UPDATE t SET a = 'later' WHERE id = 3",
)


def parked(case: Scenario, *names: str) -> None:
    states = {table["table"].split(".")[1]: table["status"] for table in case.status()["tables"]}
    assert [name for name, status in sorted(states.items()) if status == "parked"] == sorted(names), states


def qualified(case: Scenario, table: str) -> str:
    """`lost` has a database of its own: a statement in statement format parks all of its database."""
    return f"{case.database}_lost.lost" if table == "lost" else f"{case.database}.{table}"


def answer(case: Scenario, *tables: str) -> dict[str, Any]:
    done = case.command("unpark", *[qualified(case, table) for table in tables], "--json")
    assert done.returncode == 0, done.stderr
    return {name.split(".")[1]: said for name, said in json.loads(done.stdout).items()}


def read_again(case: Scenario, table: str) -> bool:
    history = json.loads(case.command("status", "--history", "--json").stdout)
    return any(
        "read again from its beginning" in one["what"]
        for one in history
        if one["table"] == qualified(case, table)
    )


@pytest.mark.parametrize("sink", ["iceberg", "delta"])
def test_a_table_parked_by_policy_goes_on_from_where_it_stopped_and_one_that_lost_changes_is_read_again(
    scenario: Make, sink: str
) -> None:
    case = scenario(sink, schema={"changes": "fail"})
    captured = {"tables": [f"{case.database}.*", f"{case.database}_lost.*"]}
    case.write_file(**captured)
    lost = qualified(case, "lost")
    case.server.execute(f"CREATE DATABASE {case.database}_lost")
    case.server.execute(*[one.replace("{t}", name) for name in ("t", "other", lost) for one in ROWS])
    with case.running() as pipeline:
        case.drain(pipeline)
        case.server.execute(*WHILE_PARKED, "INSERT INTO other VALUES (4, 40, 'n')")
        case.server.execute(
            "SET SESSION binlog_format = STATEMENT",
            f"INSERT INTO {lost} VALUES (4, 40, 'n')",
            "SET SESSION binlog_format = ROW",
        )
        case.drain(pipeline)
        parked(case, "t", "lost")
        case.assert_equal("other")
        assert pipeline.stop() == 0
        case.write_file(schema={"changes": "evolve"}, **captured)
        pipeline.start()
        case.drain(pipeline)
        parked(case, "t", "lost")
        said = answer(case, "t", "lost", "other")
        assert (said["t"]["action"], said["lost"]["action"]) == ("continue", "resnapshot")
        assert said["other"] == {"ok": True, "action": "none"}
        case.server.execute("INSERT INTO t VALUES (5, 'new', 2)", f"INSERT INTO {lost} VALUES (5, 50, 'm')")
        case.drain(pipeline)
        parked(case)
        case.assert_equal("t", "other")
        assert case.target("lost").count() == 5
        assert read_again(case, "lost") and not read_again(case, "t")
    case.server.execute(f"DROP DATABASE {case.database}_lost")


def test_a_table_unparked_while_nothing_runs_catches_up_under_kill_9_and_joins_the_others(
    scenario: Make,
) -> None:
    case = scenario(schema={"changes": "fail"}, epoch={"interval": "200ms", "bytes_max": "4KiB"})
    case.server.execute(*[one.replace("{t}", name) for name in ("t", "other") for one in ROWS])
    with case.running() as pipeline:
        case.drain(pipeline)
        case.server.execute(WHILE_PARKED[0])
        for number in range(100, 160):
            case.server.execute(
                f"INSERT INTO t VALUES ({number}, {number}, REPEAT('x', 20), 1)",
                f"INSERT INTO other VALUES ({number}, {number}, 'o')",
                f"UPDATE t SET a = a + 1 WHERE id = {number - 1}",
                f"DELETE FROM t WHERE id = {number - 2} AND id % 3 = 0",
            )
        case.server.execute(*WHILE_PARKED[1:])
        case.drain(pipeline)
        parked(case, "t")
        assert pipeline.stop() == 0
        case.write_file(schema={"changes": "evolve"})
        assert answer(case, "t") == {"t": {"ok": True, "pending": True}}
        pipeline.start()
        for victim in ("driver", "jvm"):
            pipeline.next_epoch(seconds=400, restart=True)
            pipeline.kill(victim)
            pipeline.ensure_alive()
        case.server.execute("INSERT INTO t VALUES (5, 'new', 2)")
        case.drain(pipeline, restart=True)
        parked(case)
    case.assert_equal("t", "other")
    assert not read_again(case, "t")


def test_a_table_catches_up_while_everything_that_may_go_is_deleted_at_once(scenario: Make) -> None:
    case = scenario(
        schema={"changes": "fail"},
        epoch={"interval": "200ms", "bytes_max": "24KiB"},
        relay_log={"segment_size": "8KiB"},
    )
    config = configuration.load(case.file)
    at_once = config.relay_log.model_copy(update={"keep_age": 0})
    stop, gone = threading.Event(), list[SegmentName]()

    def retain() -> None:
        """As the receiver does twice a minute, but without a pause."""
        while not stop.wait(0.01):
            gone.extend(retention.apply(config.relay_log_path, at_once))

    case.server.execute(*[one.replace("{t}", name) for name in ("t", "other") for one in ROWS])
    with case.running() as pipeline:
        case.drain(pipeline)
        case.server.execute(WHILE_PARKED[0])
        for number in range(100, 250):
            case.server.execute(
                f"INSERT INTO t VALUES ({number}, {number}, REPEAT('x', 20), 1)",
                f"INSERT INTO other VALUES ({number}, {number}, 'o')",
                f"UPDATE t SET a = a + 1 WHERE id = {number - 1}",
            )
        case.drain(pipeline)
        parked(case, "t")
        assert pipeline.stop() == 0
        case.write_file(schema={"changes": "evolve"})
        assert answer(case, "t") == {"t": {"ok": True, "pending": True}}
        thread = threading.Thread(target=retain, daemon=True)
        pipeline.start()
        pipeline.wait_until(
            lambda s: any(table["catching_up"] for table in s["tables"]), "it catches up", seconds=400
        )
        thread.start()
        try:
            pipeline.wait_until(
                lambda s: not any(table["catching_up"] for table in s["tables"]), "it joins", seconds=400
            )
            case.server.execute("INSERT INTO t VALUES (5, 5, 'new', 2)")
            case.drain(pipeline)
        finally:
            stop.set()
            thread.join(60)
        parked(case)
        assert len(gone) > 3
        case.assert_equal("t", "other")
        assert not read_again(case, "t")


def test_what_cannot_be_unparked_is_answered_with_the_reason(scenario: Make) -> None:
    case = scenario()
    case.server.execute("CREATE TABLE t (a INT)", "CREATE TABLE other (id INT PRIMARY KEY)")
    with case.running() as pipeline:
        case.drain(pipeline)
        parked(case, "t")
        done = case.command("unpark", f"{case.database}.t")
        assert done.returncode == 1 and "parked again" in done.stderr and "ADD COLUMN" in done.stderr
        done = case.command("unpark", f"{case.database}.nowhere")
        assert done.returncode == 1 and "The pipeline does not capture" in done.stderr
        done = case.command("unpark", f"{case.database}.other")
        assert done.returncode == 0 and "is not parked" in done.stdout
        case.server.execute(
            "ALTER TABLE t ADD COLUMN id INT AUTO_INCREMENT PRIMARY KEY", "INSERT INTO t (a) VALUES (1)"
        )
        done = case.command("unpark", f"{case.database}.t")
        assert done.returncode == 0 and "read again" in done.stdout, done.stderr
        case.server.execute("INSERT INTO t (a) VALUES (2)")  # what was told before the answer is no answer
        case.drain(pipeline)
        case.assert_equal("t")
