"""The benchmark of PostgreSQL as a source: what counts as measured, and what becomes of the figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench.lines import Line
from bench.measure import Figure
from bench.postgres import much, run, snapshot
from bench.postgres.log import DECODE, LIBPQ, PSYCOPG2, READ, RECEIVE, SOCKET

ROOT = Path(__file__).resolve().parents[2]


def measured(tmp_path: Path, part: str) -> tuple[list[dict[str, Any]], str]:
    out = tmp_path / "postgres.json"
    command = [
        sys.executable, "-m", "bench.run", "--parts", "postgres", "--postgres-of", part, "--scale", "0.002",
        "--repeat", "1", "--peers", "psycopg2", "--postgres-out", str(out),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text("utf-8"))["parts"][part]["figures"], done.stdout


@pytest.mark.slow
def test_everybody_reads_the_same_small_log(tmp_path: Path) -> None:
    figures, said = measured(tmp_path, run.LOG)
    found = {(figure["task"], figure["system"]): figure for figure in figures}
    systems = [
        (RECEIVE, "penstock"),
        (RECEIVE, LIBPQ),
        (RECEIVE, SOCKET),
        (DECODE, "penstock"),
        (READ, PSYCOPG2),
    ]
    assert list(found) == systems
    for figure in figures:
        assert "not_run" not in figure, figure
        assert figure["changes"] == 1600
        assert 0 <= figure.get("walsender_busy_percent", 0) <= 110
    assert "decode ≤ 0.4 CPU-s per million changes" in said


@pytest.mark.slow
def test_chunks_and_copy_read_all_rows(tmp_path: Path) -> None:
    figures, _ = measured(tmp_path, run.SNAPSHOT)
    assert [figure["changes"] for figure in figures] == [900] * (2 * len(snapshot.SESSIONS))


@pytest.mark.slow
def test_the_receiver_reads_a_large_transaction_many_tables_and_partitions(tmp_path: Path) -> None:
    lines, _ = measured(tmp_path, much.MEMORY)
    assert [line["goal"] for line in lines] == [None, None, None, much.GROWTH_GOAL] * 3


def figure(system: str, task: str, cpu_s: float, *, wall_s: float = 10.0, **details: Any) -> Figure:
    return Figure(system, "1", task, 1_000_000, wall_s, cpu_s, 100.0, cpu_s, details=details)


def test_goals_compare_peers_with_receiving_and_decoding_and_chunks_with_copy() -> None:
    task = snapshot.task(2)
    figures = [
        figure("penstock", RECEIVE, 1.5, walsender_busy_percent=96.0, server_s=13.0),
        figure("penstock", DECODE, 0.5),
        figure(PSYCOPG2, READ, 21.0, walsender_busy_percent=50.0, server_s=14.0),
        figure("penstock", task, 2.0, wall_s=12.0),
        figure(snapshot.COPY, task, 1.0, wall_s=10.0),
    ]
    kept = Line(much.KEPT, "WAL kept", 3.0, "MB", 20.0)
    document = {
        "parts": {
            run.LOG: {"figures": [one.to_json() for one in figures[:3]]},
            run.SNAPSHOT: {"figures": [one.to_json() for one in figures[3:]]},
            much.KEPT: {"figures": [kept.to_json()]},
        }
    }
    assert [(goal.measured, goal.reached) for goal in run.goals(document)] == [
        ("1.50", True), ("96 %", True), ("0.50", False), ("10.5 times", True), ("0.83", False),
        ("3 MB", True),
    ]  # fmt: skip
    read = next(section for section in run.sections(document) if section.title == READ)
    assert [row[0] for row in read.rows] == ["penstock (receive + decode) 1", f"{PSYCOPG2} 1"]
    assert read.rows[1][7] == "10.5"


def test_a_run_replaces_what_it_measures_and_keeps_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "postgres.json"
    for part, seconds in ((run.LOG, 1.0), (run.SNAPSHOT, 2.0), (run.LOG, 3.0)):
        run.keep(path, part, 0.0, [("a log", figure("penstock", part, seconds))])
    parts = json.loads(path.read_text("utf-8"))["parts"]
    assert {part: one["figures"][0]["cpu_s"] for part, one in parts.items()} == {"log": 3.0, "snapshot": 2.0}
