"""A pipeline whose sink is a function: every change reaches it, also over kills."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.testing import oracle
from penstock.testing.running import RunningPipeline
from penstock.testing.scenario import Scenario, refusal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Make = Callable[..., Scenario]

MODULE = """
import json, os

def handle(changes):
    with open(os.environ["CALLS"], "a") as out:
        for batch in changes.batches:
            for row in batch.to_pylist():
                row.pop("_commit_timestamp")
                out.write(json.dumps({"key": changes.key, **row}) + "\\n")
        out.flush()
        os.fsync(out.fileno())
"""


def test_every_change_reaches_the_function_and_repeated_ones_have_the_same_key(
    scenario: Make, tmp_path: Path
) -> None:
    (tmp_path / "hooks_of_test.py").write_text(MODULE)
    calls = tmp_path / "calls"
    case = scenario("python", epoch={"interval": "50ms"})
    case.options["sink"] = {"type": "python", "function": "hooks_of_test:handle"}
    case.write_file()
    case.server.execute("CREATE TABLE a (id INT PRIMARY KEY, v INT)", "INSERT INTO a VALUES (1, 1), (2, 2)")
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    with RunningPipeline(case.file, environment={"CALLS": str(calls), "PYTHONPATH": paths}) as pipeline:
        case.drain(pipeline)
        for number in range(3, 8):
            case.server.execute(f"INSERT INTO a VALUES ({number}, 0)", "UPDATE a SET v = v + 1")
            if number == 5:
                pipeline.kill("driver")
                pipeline.wait(seconds=60)
                pipeline.start()
        case.server.execute("DELETE FROM a WHERE id = 2")
        case.drain(pipeline)
        assert pipeline.stop() == 0
    seen = [json.loads(line) for line in calls.read_text().splitlines()]
    keys: dict[int, set[str]] = {}
    rows: dict[int, Any] = {}
    for row in sorted(seen, key=lambda one: one["_sequence"]):
        if row["_change_type"] != "read":  # rows of the snapshot have one sequence
            keys.setdefault(row["_sequence"], set()).add(row["key"])
        rows[row["id"]] = None if row["_change_type"] == "delete" else (row["id"], row["v"])
    assert all(len(found) == 1 for found in keys.values()), "a change that comes again has its key"
    table = f"{case.database}.a"
    found = oracle.canonical_rows(
        [row for row in rows.values() if row], oracle.columns_of(case.server, table)
    )
    oracle.assert_same_rows(oracle.rows_of(case.server, table), found)


def test_a_function_that_is_not_there_is_refused(scenario: Make) -> None:
    case = scenario("python")
    case.options["sink"] = {"type": "python", "function": "no_such_module:f"}
    case.write_file()
    case.server.execute("CREATE TABLE a (id INT PRIMARY KEY)")
    refusal(case.command("run", "--once"), "no_such_module:f", "PYTHONPATH")
