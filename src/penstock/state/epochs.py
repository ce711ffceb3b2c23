"""Stores plans until they are applied, and which targets recent epochs committed to."""

from __future__ import annotations

import json
from dataclasses import replace

from penstock.model.offset import LogRange, Offset
from penstock.model.plan import AdoptTarget, ApplyCascades, CreateTarget, EpochPlan, RecreateTarget
from penstock.model.plan_json import plan_from_text
from penstock.model.schema import TableId
from penstock.state.changes import EpochApplied, EpochPlanned, EpochsBegun, StateChange, ValueSet
from penstock.state.database import BEGAN_AFTER, now_us
from penstock.state.layout import EPOCHS_MAX, EPOCHS_WITH_TABLES_MAX, delete_unused_schemas, store_plan
from penstock.state.schemas import Schemas


class Epochs(Schemas):
    def plan(self, plan: EpochPlan, *, alone: bool = False) -> None:
        """Makes a plan durable and moves the position to its end. From then on, the epoch is applied exactly
        as planned. `alone`: the plan is for a table that catches up behind the position, so the position does
        not move."""
        with self.transaction():
            reach = LogRange(self.position, self.position) if alone and self.position else plan.range
            self.commit([EpochPlanned(plan, reach.start, reach.end, now_us())])
            self.advance(reach.end)

    def last_epoch(self) -> int:
        return int(self._rows("SELECT coalesce(max(epoch), 0) FROM epochs")[0][0])

    def begin_after(self, epoch: int) -> None:
        """For a state without epochs: targets may have recorded any up to this one, so numbers go on behind
        it."""
        self.commit([ValueSet(BEGAN_AFTER, str(epoch)), EpochsBegun(epoch, now_us())])

    def pending(self) -> list[EpochPlan]:
        """Returns the plans that are not applied yet, oldest first."""
        with self.reading():
            rows = self._rows("SELECT plan FROM epochs WHERE applied_us IS NULL ORDER BY epoch")
            return [self._parsed_plan(text) for (text,) in rows]

    def _parsed_plan(self, text: str) -> EpochPlan:
        return self.read(lambda: plan_from_text(text, self.schema))

    def oldest_planned(self) -> Offset | None:
        """Returns the offset up to which the log is not needed by any plan that is not applied yet, or None
        if there is no such plan."""
        [(oldest,)] = self._rows("SELECT min(oldest) FROM epochs WHERE applied_us IS NULL")
        return None if oldest is None else Offset(oldest)

    def has_committed(self, epoch: int, table: TableId) -> bool | None:
        """Whether an applied epoch has left a commit in a table's target. None if the epoch is too old to
        know (`EPOCHS_WITH_TABLES_MAX`). Steps that create the target leave no commit. Steps for foreign keys
        may leave none, and are not counted. All other steps leave one."""
        rows = self._rows("SELECT committed FROM epochs WHERE epoch = ? AND committed IS NOT NULL", epoch)
        return str(table) in self.read(lambda: json.loads(rows[0][0])) if rows else None

    def has_pending(self) -> bool:
        return bool(self._rows("SELECT 1 FROM epochs WHERE applied_us IS NULL LIMIT 1"))

    def applied(self, plan: EpochPlan, *, keep: int = EPOCHS_MAX) -> None:
        """Records an epoch as applied. Deletes its plan, and the definitions that only this plan used. Call
        inside the transaction that records what the epoch did to tables and chunks. `keep`: number of applied
        epochs whose entries are kept."""
        makes = CreateTarget | AdoptTarget | RecreateTarget | ApplyCascades
        committed = [
            one.table for one in plan.tables if any(not isinstance(step, makes) for step in one.steps)
        ]
        self.commit([EpochApplied(plan.epoch, committed, now_us(), keep)])

    def _apply(self, change: StateChange) -> None:
        match change:
            case EpochPlanned(plan, start, end, planned_us):
                store_plan(self._db, plan, start, end, planned_us)
            case EpochApplied():
                self._end(change)
            case EpochsBegun(after, noted_us):
                self._db.execute(
                    "INSERT INTO epochs VALUES (?, 0, 0, 0, ?, ?, NULL, '[]')", (after, noted_us, noted_us)
                )
            case _:
                super()._apply(change)

    def _end(self, applied: EpochApplied) -> None:
        epoch = applied.epoch
        self._db.execute(
            "UPDATE epochs SET applied_us = ?, plan = NULL, committed = ? WHERE epoch = ?",
            (applied.applied_us, json.dumps(list(map(str, applied.committed))), epoch),
        )
        named = self._rows("SELECT schema FROM planned_schemas WHERE epoch = ?", epoch)
        self._db.execute("DELETE FROM planned_schemas WHERE epoch = ?", (epoch,))
        delete_unused_schemas(self._db, [number for (number,) in named])
        self._db.execute(
            "UPDATE epochs SET committed = NULL WHERE committed IS NOT NULL AND epoch <= ?",
            (epoch - EPOCHS_WITH_TABLES_MAX,),
        )
        self._db.execute(
            "DELETE FROM epochs WHERE epoch < ? AND applied_us IS NOT NULL", (epoch - applied.keep,)
        )

    def give_up_pending(self) -> None:
        """Ends the plans that are not applied. Their numbers are not used again, because targets may have
        recorded them."""
        with self.transaction():
            for plan in self.pending():
                self.applied(replace(plan, tables=()))

    def applied_offset(self) -> Offset | None:
        """Returns the offset up to which the log is applied at the targets, or None if nothing is planned
        yet."""
        rows = self._rows("SELECT min(start) FROM epochs WHERE applied_us IS NULL")
        return Offset(rows[0][0]) if rows and rows[0][0] is not None else self.position
