"""The benchmark harness on a tiny log: what it reports is complete and was checked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def bench(
    tmp_path: Path, *arguments: str, option: str = "--out"
) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    out = tmp_path / "latest.json"
    command = [sys.executable, "-m", "bench.run", option, str(out), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    kept = json.loads(out.read_text())["orders"]["outcomes"] if out.exists() else []
    return done, kept


@pytest.mark.slow
def test_our_own_parts_are_measured_and_counted_on_a_tiny_log(tmp_path: Path) -> None:
    parts = "receiver decode snapshot"
    done, figures = bench(tmp_path, "--parts", parts, "--scale", "0.002", "--repeat", "1")
    assert done.returncode == 0, done.stderr
    assert [figure["system"] for figure in figures].count("penstock") == 12
    assert len(figures) == 14  # and the raw sockets beside the receiver
    for figure in figures:
        assert "not_run" not in figure, figure
        assert figure["workload"] == "orders"
        assert 0 <= figure["others_percent"] <= 110
        assert figure["changes"] == (900 if figure["task"].startswith("snapshot") else 1600)
        assert figure["wall_s"] > 0 or figure["system"].startswith("raw socket")  # in one gulp
        assert figure["cpu_s"] >= 0
        assert 10 < figure["rss_mb"] < 400
    assert "receiver ≤ 300 MB resident" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--parts", "decode pears"), "unknown part pears"),
        (("--workloads", "orders pears"), "unknown workload pears"),
        (("--scale", "0"), "--scale"),
        (("--parts", "load", "--rows", "10"), "--rows"),
    ],
)
def test_an_unknown_part_or_an_odd_scale_is_refused_before_anything_starts(
    tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    done, figures = bench(tmp_path, *arguments)
    assert (done.returncode, figures) == (2, [])
    assert complaint in done.stderr
