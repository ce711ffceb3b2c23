"""A measured process, and the figure that is kept of it.

What is timed is the *window* from the first to the last event (or row), as the measured program says itself
in the JSON object on its last line of stdout:

    {"changes": 959998, "wall_s": …, "cpu_s": …, "counts": {"inserts": …}, …}

`cpu_s` there is the CPU time of its process between the two, so that starting a JVM or importing a library
counts for nobody. The CPU time of the whole process tree from start to exit is kept beside it
(`cpu_process_s`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from bench import warm
from bench.machine import Beside, Watch, touch_memory

ROOT = Path(__file__).resolve().parents[1]
_TREE = Path(__file__).with_name("tree.py")


class RunFailed(Exception):
    """A measured program did not do its work. The message says which and why."""


@dataclass(frozen=True)
class Figure:
    """One measured run (or the median one of several)."""

    system: str
    version: str
    task: str
    changes: int
    """Changes read or merged; rows for a snapshot."""
    wall_s: float
    """First to last event."""
    cpu_s: float
    """CPU seconds in that time, client side only."""
    rss_mb: float
    """Peak resident memory of the process tree."""
    cpu_process_s: float
    """CPU seconds of the whole process tree, start and end included."""
    runs: int = 1
    workload: str = ""
    """Whose log was read; empty where it is no log."""
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        fields = asdict(self)
        details = fields.pop("details")
        rounded = {
            name: round(value, 6) if isinstance(value, float) else value for name, value in fields.items()
        }
        return {**rounded, **details}

    def with_runs(self, runs: int) -> Figure:
        return replace(self, runs=runs)

    @property
    def per_second(self) -> float:
        return self.changes / self.wall_s if self.wall_s else 0.0

    @property
    def cpu_s_per_million(self) -> float:
        return self.cpu_s / self.changes * 1e6 if self.changes else 0.0


@dataclass(frozen=True)
class NotRun:
    """A system that could not be measured, and why."""

    system: str
    version: str
    task: str
    reason: str
    workload: str = ""

    def to_json(self) -> dict[str, Any]:
        empty = dict.fromkeys(("changes", "wall_s", "cpu_s", "rss_mb"))
        return {
            "system": self.system,
            "version": self.version,
            "task": self.task,
            **empty,
            "workload": self.workload,
            "not_run": self.reason,
        }


Outcome = Figure | NotRun


@dataclass(frozen=True)
class Measured:
    """The report of a program and what its process tree used."""

    report: dict[str, Any]
    wall_s: float
    cpu_s: float
    rss_mb: float
    series: list[tuple[float, float, float]]
    beside: Beside | None = None

    def cpu_between(self, start: float, end: float) -> float:
        """CPU seconds of the tree between two monotonic times, from its samples."""
        return at(self.series, end) - at(self.series, start)


def replaced(measured: Measured, report: dict[str, Any]) -> Measured:
    """The same with a report that was completed from outside."""
    return replace(measured, report=report)


def at(series: Sequence[tuple[float, ...]], when: float) -> float:
    before = [row for row in series if row[0] <= when]
    after = [row for row in series if row[0] > when]
    if not before or not after:
        return (before or after)[-1 if before else 0][1] if series else 0.0
    (t0, c0), (t1, c1) = before[-1][:2], after[0][:2]
    return c0 + (c1 - c0) * (when - t0) / (t1 - t0)


def program(module: str, *arguments: object) -> list[str]:
    """The command that runs one of our own modules as a process."""
    return [sys.executable, "-m", module, *map(str, arguments)]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    paths = [str(ROOT / "src"), str(ROOT)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TZ": "UTC", **(extra or {})}


def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 900,
    sample_ms: int = 50,
) -> Measured:
    """Runs a program to its end; raises `RunFailed` with the end of its output when it fails or says
    nothing."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        out, log = Path(folder, "usage.json"), Path(folder, "stderr")
        touch_memory()
        warm.read_files()
        watch = Watch()
        wrapped = [sys.executable, "-I", "-S", str(_TREE), str(out), str(sample_ms), *command]
        with log.open("wb") as errors:
            process = subprocess.Popen(
                wrapped, env=environment(env), cwd=folder, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
            try:
                stdout, _ = process.communicate(timeout=timeout_s)
            except BaseException as error:
                process.terminate()
                process.communicate()
                if isinstance(error, subprocess.TimeoutExpired):
                    raise RunFailed(f"no end after {timeout_s:.0f} s: {_tail(log)}") from error
                raise
        beside = watch.end()
        if not out.exists():
            raise RunFailed(f"was stopped: {_tail(log)}")
        usage = json.loads(out.read_text())
        if usage["exit_code"] != 0:
            raise RunFailed(f"exit code {usage['exit_code']}: {_tail(log) or stdout[-500:]}")
        try:
            report = json.loads(stdout.strip().splitlines()[-1])
        except (IndexError, ValueError) as error:
            raise RunFailed(f"no report on its last line: {stdout[-300:]} {_tail(log)}") from error
    series = [tuple(row) for row in usage["series"]]
    return Measured(report, usage["wall_s"], usage["cpu_s"], usage["rss_mb"], series, beside)


def _tail(log: Path) -> str:
    """The line that says what went wrong, as far as one can tell, and the last ones."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines if "Exception" in line or "Error" in line or "error:" in line]
    return " / ".join(dict.fromkeys([*telling[:2], *lines[-3:]]))[:800]


def figure(measured: Measured, *, system: str, version: str, task: str, **details: Any) -> Figure:
    """The figure of a program that timed its own window, or said when it began and ended (monotonic
    clock)."""
    report = measured.report
    if "cpu_s" in report:
        wall_s, cpu_s = report["wall_s"], report["cpu_s"]
    else:
        wall_s = report["ended"] - report["began"]
        cpu_s = measured.cpu_between(report["began"], report["ended"])
    if (beside := measured.beside) is not None:
        shown = {name: round(value, 2) for name, value in asdict(beside).items()}
        percent = beside.share(measured.wall_s, os.cpu_count() or 1)
        details = {**details, **shown, "others_percent": round(percent, 1)}
    return Figure(
        system=system, version=str(report.get("version") or version), task=task, changes=report["changes"],
        wall_s=wall_s, cpu_s=cpu_s, rss_mb=report.get("rss_mb", measured.rss_mb),
        cpu_process_s=measured.cpu_s, details=details,
    )  # fmt: skip


def median_of(times: int, once: Callable[[], Figure]) -> Figure:
    """The run with the median wall time of several."""
    return middle([once() for _ in range(times)])


def middle(figures: Sequence[Figure]) -> Figure:
    """The one with the median wall time, of several of the same."""
    ordered = sorted(figures, key=lambda figure: figure.wall_s)
    found = ordered[(len(ordered) - 1) // 2]
    assert found.wall_s <= median(figure.wall_s for figure in figures)
    return found.with_runs(len(figures))
