"""A whole pipeline with Spark follows a script, in a process that has loaded nothing of another source."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.scripted.whole_pipeline import ROWS

ROOT = Path(__file__).resolve().parents[2]
KEY, COLUMNS = "id", ("id", "note", "colour")


def follow(sink: str, folder: Path, installed: Path) -> list[dict[str, Any]]:
    """The rows of the target, after the program has ended."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), str(installed)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.scripted.whole_pipeline", str(folder), sink],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["others"] == []
    rows: list[dict[str, Any]] = found["rows"]
    return rows


def folded(changes: Iterable[dict[str, Any]]) -> list[list[Any]]:
    """The rows that a change log leads to. A row that changed while it was read is in the log's events alone,
    so the first event of a key may be the end of a row that was never added."""
    rows: dict[int, list[Any]] = {}
    for change in changes:
        if change["_change_type"] in ("delete", "update_preimage"):
            rows.pop(change[KEY], None)
        else:
            rows[change[KEY]] = [change[name] for name in COLUMNS]
    return [rows[key] for key in sorted(rows)]


@pytest.mark.slow
def test_a_table_ends_as_the_rows_of_the_script(tmp_path: Path, installed: Path) -> None:
    rows = follow("iceberg", tmp_path, installed)
    assert sorted([row[name] for name in COLUMNS] for row in rows) == ROWS


@pytest.mark.slow
def test_a_change_log_leads_to_the_rows_of_the_script(tmp_path: Path, installed: Path) -> None:
    assert folded(follow("parquet", tmp_path, installed)) == ROWS
