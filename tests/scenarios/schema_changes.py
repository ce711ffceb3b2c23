"""Tables whose definitions change while a pipeline runs: for each its rows before, and what is done to it.

One run carries many tables, each with a hazard of its own: a pipeline takes half a minute to start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from penstock.testing import oracle
from penstock.testing.running import RunningPipeline
from penstock.testing.scenario import Scenario


@dataclass(frozen=True)
class Hazard:
    """`{t}` in the statements is the table's name; `before` is done before the pipeline starts. Statements
    with `; ` between them run in one session."""

    before: tuple[str, ...]
    after: tuple[str, ...]


def hazard(before: Sequence[str], *after: str) -> Hazard:
    return Hazard(tuple(before), tuple(after))


@dataclass
class Group:
    """What a pipeline made of a group of hazards."""

    case: Scenario
    status: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    verified: str = ""

    def table(self, name: str) -> dict[str, Any]:
        wanted = f"{self.case.database}.{name}"
        return next(table for table in self.status["tables"] if table["table"] == wanted)

    def changes(self, name: str) -> list[tuple[str, str]]:
        """(what, decision) of each entry of the table's history, oldest first."""
        wanted = f"{self.case.database}.{name}"
        return [(one["what"], one["decision"]) for one in self.history if one["table"] == wanted]

    def columns(self, name: str) -> list[str]:
        return [column for column in self.case.target(name).columns if not column.startswith("_")]

    def assert_follows(self, name: str) -> None:
        """Live, with the columns and the rows of the source."""
        assert self.table(name)["status"] == "live", self.table(name)["parked"]
        columns = oracle.columns_of(self.case.server, f"{self.case.database}.{name}")
        assert self.columns(name) == [column.name for column in columns]
        self.case.assert_equal(name)


def assert_history_at_the_target(case: Scenario) -> None:
    """The table beside the targets holds each entry once, in order. Of a pipeline that has ended."""
    done = case.command("status", "--history", "--json")
    assert done.returncode == 0, done.stderr
    names = ("table", "version", "offset", "what", "decision", "statement")
    noted = [tuple(one[name] for name in names) for one in json.loads(done.stdout)]
    rows = case.target("scenario_schema_history").orderBy("id").collect()
    assert [tuple(row[name] for name in names) for row in rows] == noted
    assert [row["id"] for row in rows] == list(range(1, len(noted) + 1))


@contextmanager
def running(group: Group, hazards: dict[str, Hazard]) -> Iterator[RunningPipeline]:
    """The pipeline, once it holds what the tables hold before the changes."""
    case = group.case
    for name, one in hazards.items():
        case.server.execute(*[statement.replace("{t}", name) for statement in one.before])
    with case.running() as pipeline:
        case.drain(pipeline)
        yield pipeline


def change(group: Group, hazards: dict[str, Hazard]) -> None:
    """One statement of each table after the other, so that the changes of all stand close together."""
    rounds = max(len(one.after) for one in hazards.values())
    for number in range(rounds):
        for name, one in hazards.items():
            if number < len(one.after):
                group.case.server.execute(*one.after[number].replace("{t}", name).split("; "))


def look(group: Group, pipeline: RunningPipeline) -> None:
    case = group.case
    group.status = case.drain(pipeline)
    done = case.command("status", "--history", "--json")
    assert done.returncode == 0, done.stderr
    group.history = json.loads(done.stdout)
