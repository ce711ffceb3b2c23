"""The part `backlog` of the benchmark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench.measure import Figure
from tests.bench.test_run import ROOT

from bench import backlog, report


def figure(task: str, cpu_s: float, **details: object) -> Figure:
    return Figure("penstock", "1", task, 10_000_000, 20.0, cpu_s, 500, cpu_s, details=details)


RESULTS = report.Results(
    [
        figure(backlog.DECODE, 4),
        figure(backlog.LEAST, 6),
        figure(backlog.MERGE["512MiB"], 25, parts={"driver": 5.0, "JVM: compiler": 20.0}),
        figure(backlog.MERGE["48MiB"], 60, parts={"driver": 30.0, "receiver": 1.0}),
    ]
)


def test_goals_are_multiples_of_decoding_and_of_what_must_be_done() -> None:
    large, small = backlog.goals(RESULTS)
    assert "2.50 CPU-s per million (goal 3), 500,000/s; 6.2 × decoding, 2.5 × what must be" in large
    assert "6.00 CPU-s per million (goal 5)" in small and "15.0 × decoding" in small


def test_the_page_has_each_part_of_the_cpu_time_per_million_changes() -> None:
    page = backlog.markdown(RESULTS, "Measured here.")
    assert "| driver | 0.50 | 3.00 |" in page
    assert "| JVM: compiler | 2.00 | 0.00 |" in page
    assert "| receiver | 0.00 | 0.10 |" in page


def test_the_cpu_time_of_a_process_is_counted_by_what_it_is() -> None:
    busy = "import time\nend = time.process_time() + 1\nwhile time.process_time() < end: pass\ntime.sleep(2)"
    with backlog.Parts() as parts:
        subprocess.run([sys.executable, "-c", busy, "penstock receive"], check=True)
    assert 0.5 < parts.seconds()["receiver"] < 3


def test_a_jvm_counts_as_one_although_its_options_name_the_python_workers() -> None:
    options = ["-cp", "x.jar", "--conf", "spark.python.daemon.module=penstock.spark.daemon"]
    assert backlog.kind_of(["/usr/bin/java", *options]) == "JVM"
    assert backlog.kind_of(["python", "-m", "penstock.spark.daemon", "pyspark.worker"]) == "Python workers"
    assert backlog.kind_of(["python", "-m", "penstock", "run", "p.yaml"]) == "driver"
    assert backlog.kind_of(["python", "bench/tree.py", "out", "python", "-m", "penstock", "run"]) == "others"


@pytest.mark.slow
def test_a_tiny_backlog_is_merged_and_compared_with_the_source(tmp_path: Path) -> None:
    out = tmp_path / "backlog.json"
    command = [sys.executable, "-m", "bench.run", "--parts", "backlog", "--scale", "0.001"]
    done = subprocess.run(
        [*command, "--backlog-out", str(out)],
        cwd=ROOT, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    figures = json.loads(out.read_text())
    assert [one["task"] for one in figures] == [backlog.DECODE, backlog.LEAST, *backlog.MERGE.values()]
    for one in figures:
        assert "not_run" not in one, one
        assert one["changes"] == 11_200
    assert figures[1]["rows"] == 6_300
    assert figures[2]["parts"]["Python workers"] > 0
    assert figures[2]["parts"]["JVM: the rest"] > 1
