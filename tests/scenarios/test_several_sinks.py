"""One pipeline file with several sinks: each has its own position, and none holds up another."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from tests.scenarios.canaries import arguments

from penstock.testing import oracle
from penstock.testing.scenario import Scenario, refusal, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Make = Callable[..., Scenario]


def with_sinks(scenario: Make, *sinks: dict[str, Any]) -> Scenario:
    case = scenario("jdbc", sinks=list(sinks))
    document = yaml.safe_load(case.file.read_text())
    del document["sink"]
    case.file.write_text(yaml.safe_dump(document))
    return case


def rows(case: Scenario, file: Path) -> list[oracle.Row]:
    """The table `a` in a target; none, if there is no such table yet."""
    columns = oracle.columns_of(case.server, f"{case.database}.a")
    if not file.exists():
        return []
    session = sqlite3.connect(file)
    try:
        found = session.execute(f'SELECT id, v FROM "{case.database}_a"').fetchall()
    except sqlite3.OperationalError:
        return []
    finally:
        session.close()
    return oracle.canonical_rows(found, columns)


def expected(case: Scenario) -> list[oracle.Row]:
    return oracle.rows_of(case.server, f"{case.database}.a")


def arrived(case: Scenario, files: list[Path]) -> bool:
    return all(rows(case, file) == expected(case) for file in files)


def started(case: Scenario, *options: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "penstock", "run", str(case.file), *options]
    return subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True
    )


def test_sinks_go_on_beside_one_that_fails_and_whatever_is_killed(scenario: Make, tmp_path: Path) -> None:
    files = [tmp_path / "one.db", tmp_path / "two.db", tmp_path / "missing" / "three.db"]
    names = ["one", "two", "three"]
    case = with_sinks(
        scenario,
        *[
            {"type": "jdbc", "name": name, "url": f"sqlite://{file}"}
            for name, file in zip(names, files, strict=True)
        ],
    )
    case.server.execute("CREATE TABLE a (id INT PRIMARY KEY, v INT)", "INSERT INTO a VALUES (1, 1), (2, 2)")
    process = started(case)
    try:
        wait_for(
            lambda: all(rows(case, file) == expected(case) for file in files[:2]), "two copies", seconds=180
        )
        case.server.execute(
            "UPDATE a SET v = v + 1", "DELETE FROM a WHERE id = 1", "INSERT INTO a VALUES (3, 3)"
        )
        wait_for(lambda: arrived(case, files[:2]), "changes", seconds=180)

        children = psutil.Process(process.pid).children()
        process.kill()
        process.wait()
        psutil.wait_procs(children, timeout=60)
        assert not any(child.is_running() for child in children), (
            "they end with the process that started them"
        )
        case.server.execute("INSERT INTO a VALUES (4, 4)")
        process = started(case)
        wait_for(
            lambda: all(rows(case, file) == expected(case) for file in files[:2]), "the next run", seconds=180
        )

        status = json.loads(case.command("status", "--json").stdout)
        assert list(status["sinks"]) == names
        assert [one["running"] for one in status["sinks"].values()][:2] == [True, True]
        said = arguments(psutil.Process(process.pid))
        receivers = [one for one in said.splitlines() if " receive " in one]
        assert len(receivers) == 1, "all follow one relay log"

        files[2].parent.mkdir()
        wait_for(lambda: rows(case, files[2]) == expected(case), "the third copy", seconds=180)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_a_run_with_once_ends_when_every_sink_has_all(scenario: Make, tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.db" for name in ("one", "two")}
    case = with_sinks(
        scenario, *[{"type": "jdbc", "name": name, "url": f"sqlite://{file}"} for name, file in files.items()]
    )
    case.server.execute("CREATE TABLE a (id INT PRIMARY KEY, v INT)", "INSERT INTO a VALUES (1, 1)")
    assert case.command("run", "--once").returncode == 0
    assert all(rows(case, file) == expected(case) for file in files.values())
    refusal(case.command("verify"), "one, two", f"{case.file}#one")
    case.file = Path(f"{case.file}#two")
    status = case.command("status", "--json")
    assert json.loads(status.stdout)["pipeline"] == "scenario-two"
    case.server.execute("INSERT INTO a VALUES (2, 2)")
    assert case.command("run", "--once").returncode == 0
    assert rows(case, files["two"]) == expected(case) != rows(case, files["one"])
