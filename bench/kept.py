"""What was measured of each workload, kept from run to run in one file: a run replaces the workloads it is
about, so that all eight need not be measured in one go. The figures of one workload are of one run."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from bench.measure import Figure, NotRun, Outcome
from bench.report import Results, machine
from bench.stages.run import TASK as STAGES
from penstock.errors import ConfigError

_FIGURE_FIELDS = [one.name for one in fields(Figure) if one.name != "details"]


@dataclass
class Run:
    """`about`: what the log is."""

    about: str
    machine: str = field(default_factory=machine)
    measured: str = field(default_factory=lambda: time.strftime("%Y-%m-%d"))
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def ways(self) -> Results:
        """Whole ways; stages have no speed."""
        return Results([one for one in self.outcomes if one.task != STAGES])


class Kept:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.runs: dict[str, Run] = {}
        if not path.exists():
            return
        try:
            document = json.loads(path.read_text("utf-8"))
            self.runs = {name: _run(one) for name, one in document.items()}
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{path} holds no results of `make bench`: {error!r}.",
                hint="Remove it, or name another file: ARGS='--out FILE'.",
            ) from error

    def write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        parts = [f"{json.dumps(name)}: {_text(run)}" for name, run in self.runs.items()]
        self._path.write_text("{\n" + ",\n".join(parts) + "\n}\n", "utf-8")


def _text(run: Run) -> str:
    """An outcome a line."""
    head = {"about": run.about, "machine": run.machine, "measured": run.measured}
    pairs = [f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in head.items()]
    lines = [json.dumps(outcome.to_json(), ensure_ascii=False) for outcome in run.outcomes]
    return "{\n" + ",\n".join(pairs) + ',\n"outcomes": [\n  ' + ",\n  ".join(lines) + "\n]}"


def _run(document: dict[str, Any]) -> Run:
    outcomes = [parse(dict(one)) for one in document["outcomes"]]
    return Run(document["about"], document["machine"], document["measured"], outcomes)


def parse(document: dict[str, Any]) -> Outcome:
    """What `to_json` of an outcome made."""
    if "not_run" in document:
        system, version, task = (document[name] for name in ("system", "version", "task"))
        return NotRun(system, version, task, document["not_run"], document["workload"])
    known = {name: document.pop(name) for name in _FIGURE_FIELDS}
    return Figure(**known, details=document)
