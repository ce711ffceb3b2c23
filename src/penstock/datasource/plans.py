"""The plans whose rows a query may still ask for, each in a file."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

from penstock.disk.replace import replace_file
from penstock.errors import ConfigError
from penstock.model.plan import EpochPlan
from penstock.model.plan_json import plan_from_text, plan_to_text
from penstock.model.schema import TableSchema


class Plans:
    """The stored plans of a query. Thread-safe. The files are read once, by the query that continues."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._guard = threading.Lock()
        folder.mkdir(mode=0o700, exist_ok=True)
        removed = folder / "removed"
        self.removed = int(removed.read_text()) if removed.exists() else 0
        """The number of the epoch up to which all plans were removed."""
        found = (plan_from_text(path.read_text("utf-8"), _numbered) for path in folder.glob("*.json"))
        self._plans = {plan.epoch: plan for plan in sorted(found, key=lambda plan: plan.epoch)}

    def put(self, plan: EpochPlan) -> None:
        text = plan_to_text(plan, _inline)
        replace_file(self._path(plan.epoch), text.encode(), durable=True)
        with self._guard:
            self._plans[plan.epoch] = plan

    def all(self) -> list[EpochPlan]:
        """The plans, in the order of their epochs."""
        with self._guard:
            return list(self._plans.values())

    def between(self, after: int, last: int) -> list[EpochPlan]:
        """The plans of the epochs after one up to another. Raises `ConfigError` if some were removed."""
        if after < self.removed and after < last:
            raise ConfigError(
                f"The checkpoint of this query ends at epoch {after}, and its `state` has forgotten "
                f"the epochs up to {self.removed}.",
                hint="Give the query the checkpoint that goes with this `state`, or begin anew with new "
                "folders for both.",
            )
        return [plan for plan in self.all() if after < plan.epoch <= last]

    def remove(self, last: int) -> list[EpochPlan]:
        """Removes the plans up to an epoch, and returns them."""
        if last <= self.removed:
            return []
        replace_file(self._folder / "removed", str(last).encode(), durable=True)
        self.removed = last
        gone = [plan for plan in self.all() if plan.epoch <= last]
        with self._guard:
            for plan in gone:
                self._path(plan.epoch).unlink(missing_ok=True)
                del self._plans[plan.epoch]
        return gone

    def _path(self, epoch: int) -> Path:
        return self._folder / f"{epoch:012d}.json"


def _inline(schema: TableSchema) -> Any:
    return json.loads(schema.to_json())


def _numbered(number: int) -> TableSchema:
    raise ConfigError(f"A plan names definition {number}, which it should contain.")
