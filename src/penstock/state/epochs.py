"""Plans of epochs, and what became of them."""

from __future__ import annotations

import json
from typing import Any

from penstock.model.offset import LogRange, Offset
from penstock.model.plan import EpochPlan
from penstock.state.database import Database, now_us


class Epochs(Database):
    def plan(self, plan: EpochPlan, *, alone: bool = False) -> None:
        """Makes a plan durable and moves the position. From here on the epoch will be applied exactly as
        planned. `alone`: it is of a table that catches up, behind the position, which stays."""
        with self.transaction():
            reach = LogRange(self.position, self.position) if alone and self.position else plan.range
            self._db.execute(
                "INSERT INTO epochs VALUES (?, ?, ?, ?, ?, NULL, NULL)",
                (plan.epoch, reach.start, reach.end, plan.to_json(), now_us()),
            )
            self.advance(reach.end)

    def last_epoch(self) -> int:
        return int(self._rows("SELECT coalesce(max(epoch), 0) FROM epochs")[0][0])

    def pending(self) -> list[EpochPlan]:
        """Plans that are not applied yet, oldest first."""
        rows = self._rows("SELECT plan FROM epochs WHERE applied_us IS NULL ORDER BY epoch")
        return [EpochPlan.from_json(row[0]) for row in rows]

    def plan_of(self, epoch: int) -> EpochPlan | None:
        """None: there was none, or it is long applied and forgotten."""
        rows = self._rows("SELECT plan FROM epochs WHERE epoch = ?", epoch)
        return EpochPlan.from_json(rows[0][0]) if rows else None

    def has_pending(self) -> bool:
        return bool(self._rows("SELECT 1 FROM epochs WHERE applied_us IS NULL LIMIT 1"))

    def applied(self, plan: EpochPlan, result: dict[str, Any], *, keep: int = 1000) -> None:
        """Call inside the transaction that records what the epoch did to tables and chunks."""
        with self.transaction():
            self._db.execute(
                "UPDATE epochs SET applied_us = ?, result = ? WHERE epoch = ?",
                (now_us(), json.dumps(result), plan.epoch),
            )
            self._db.execute(
                "DELETE FROM epochs WHERE epoch < ? AND applied_us IS NOT NULL", (plan.epoch - keep,)
            )

    def applied_offset(self) -> Offset | None:
        """Everything up to here is durable at the targets."""
        rows = self._rows("SELECT min(start) FROM epochs WHERE applied_us IS NULL")
        return Offset(rows[0][0]) if rows and rows[0][0] is not None else self.position

    def results(self, last: int = 20) -> list[tuple[int, LogRange, int, int, dict[str, Any]]]:
        """Newest applied epochs: (epoch, range, planned µs, applied µs, result)."""
        rows = self._rows(
            "SELECT epoch, start, end, planned_us, applied_us, result FROM epochs "
            "WHERE applied_us IS NOT NULL ORDER BY epoch DESC LIMIT ?",
            last,
        )
        return [(e, LogRange(s, t), p, a, json.loads(r)) for e, s, t, p, a, r in rows]

    def result_ending_at(self, offset: Offset) -> dict[str, Any] | None:
        rows = self._rows(
            "SELECT result FROM epochs WHERE end = ? AND applied_us IS NOT NULL ORDER BY epoch DESC", offset
        )
        return json.loads(rows[0][0]) if rows else None
