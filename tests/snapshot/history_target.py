"""A target in memory: it does the steps of plans as sinks promise to (`sinks/base.py`)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.epochs import tasks
from penstock.epochs.table_outcome import TableOutcome
from penstock.model.change import CHANGE_TYPE, DELETED, SEQUENCE
from penstock.model.plan import (
    ApplyEvents,
    CreateTarget,
    DeleteOlder,
    EpochPlan,
    Evolve,
    PlaceChunks,
    RecreateTarget,
    Step,
    TablePlan,
    TruncateTarget,
)
from penstock.model.schema import DEFAULT_TYPES, TableId, TableSchema, TypeOptions
from penstock.sinks.base import Missing, Ours
from penstock.snapshot.placement import PlacementLimits
from penstock.snapshot.staging import Staging

Key = tuple[Any, ...]
Row = tuple[Any, ...]


class Broken(AssertionError):
    """The target is not what it must be."""


class Killed(Exception):
    """The pipeline's process is."""


class Target:
    """Merged tables, or, `append_only`, a change log. What one step of an epoch wrote is written once."""

    def __init__(
        self,
        staging: Staging,
        *,
        append_only: bool,
        limits: PlacementLimits,
        omitted: Callable[[TableSchema, TypeOptions], pa.RecordBatch],
    ) -> None:
        """`omitted`: see `sources.row_images.RowImages`."""
        self.staging = staging
        self.append_only = append_only
        self.limits = limits
        self._omitted = omitted
        self.rows: dict[TableId, dict[Key, tuple[Row, int]]] = {}
        self.log: dict[TableId, list[tuple[str, Key, Row, int]]] = {}
        self._done: set[tuple[int, TableId, int]] = set()

    def open(self, table: TableId) -> Missing | Ours:
        there = table in self.rows or table in self.log
        return Ours(None, ("key", "v"), False) if there else Missing()

    def now(self, table: TableId) -> dict[Key, Row]:
        if not self.append_only:
            return {key: row for key, (row, _) in self.rows.get(table, {}).items()}
        return self._replayed(table)

    def damage(self, table: TableId, keys: list[Key], dice: random.Random, position: int) -> None:
        held = self.rows[table]
        for key in keys:
            if dice.random() < 0.4:
                held.pop(key, None)
            else:
                held[key] = ((*key, -1), dice.choice((0, position)))

    def _replayed(self, table: TableId) -> dict[Key, Row]:
        """What the change log comes to, read in its order."""
        rows: dict[Key, Row] = {}
        newest: dict[Key, int] = {}
        for kind, key, row, sequence in self.log.get(table, ()):
            if kind == "truncate":
                rows.clear()
                newest.clear()
                continue
            if sequence < newest.get(key, 0):
                raise Broken(f"{table}: {kind} of {key} at {sequence} comes after {newest[key]}")
            newest[key] = sequence
            if kind in ("delete", "update_preimage"):
                rows.pop(key, None)
            else:
                rows[key] = row
        return rows

    # plans

    def apply(self, plan: EpochPlan, *, kill: random.Random | None) -> list[TableOutcome]:
        """`kill`: before one of the steps."""
        outcomes = []
        for table in plan.tables:
            outcome = TableOutcome(table.table)
            for number, step in enumerate(table.steps):
                if kill is not None and kill.random() < 0.5:
                    raise Killed
                mark = (plan.epoch, table.table, number)
                self._step(plan, table, step, outcome, again=mark in self._done)
                self._done.add(mark)
            outcomes.append(outcome)
        return outcomes

    def _step(
        self, plan: EpochPlan, table: TablePlan, step: Step, outcome: TableOutcome, *, again: bool
    ) -> None:
        outcome.wrote |= not isinstance(step, CreateTarget | RecreateTarget | DeleteOlder)
        match step:
            case CreateTarget():
                place = self.log if self.append_only else self.rows
                place.setdefault(table.table, [] if self.append_only else {})  # type: ignore[arg-type]
            case RecreateTarget():
                self.rows[table.table] = {}
                self._done = {mark for mark in self._done if mark[1] != table.table}
            case ApplyEvents():
                outcome.written = True
                if not again:
                    layout = "changelog" if step.mode == "changes" else "latest"
                    work = tasks.DecodeTask(table.schema.to_json(), step.splits, layout, DEFAULT_TYPES)
                    self._write(table, step.mode, list(tasks.decode(work)))
            case PlaceChunks():
                outcome.written = True
                outcome.placed.extend(step.chunks)
                if not again:
                    self._write(table, step.mode, list(tasks.place(self._placing(plan, table, step))))
            case TruncateTarget(sequence=sequence):
                outcome.truncated, outcome.written = True, False
                if not again:
                    at = int(plan.range.end if sequence is None else sequence)
                    self._truncate(table.table, at)
            case DeleteOlder():
                outcome.replaced = outcome.wrote = True
                held = self.rows[table.table]
                for key in [key for key, (_, at) in held.items() if at < step.sequence]:
                    del held[key]
            case Evolve():
                outcome.schema = step.schema
                if not again:
                    self._evolve(table, step)
            case _:
                raise Broken(f"{table.table}: a step {step.kind} has no place here")

    def _placing(self, plan: EpochPlan, table: TablePlan, step: PlaceChunks) -> tasks.PlaceTask:
        defaults = self._omitted(table.schema, DEFAULT_TYPES)
        layout: Any = "changelog" if step.mode == "changes" else "latest"
        text = table.schema.to_json()
        return tasks.PlaceTask(
            text, self.staging, step.chunks, step.scans, plan.range.end, layout, DEFAULT_TYPES, defaults
        )  # fmt: skip

    def _evolve(self, table: TablePlan, step: Evolve) -> None:
        """Rows that are there get the columns of the new definition; an added one is NULL."""
        names = [column.name for column in table.schema.columns]
        places = [None if one.before is None else names.index(one.before) for one in step.origins]

        def evolved(row: Row) -> Row:
            return tuple(None if place is None else row[place] for place in places)

        if self.append_only:
            log = self.log[table.table]
            log[:] = [(kind, key, evolved(row) if row else row, at) for kind, key, row, at in log]
        else:
            rows = self.rows[table.table]
            rows.update({key: (evolved(row), at) for key, (row, at) in rows.items()})

    def _truncate(self, table: TableId, at: int) -> None:
        if self.append_only:
            self.log[table].append(("truncate", (), (), at))
        else:
            self.rows[table].clear()

    def _write(self, table: TablePlan, mode: str, batches: list[pa.RecordBatch]) -> None:
        rows = [row for batch in batches for row in batch.to_pylist()]
        names = [column.name for column in table.schema.columns]
        seen: set[Key] = set()
        for fields in rows:
            row = tuple(fields[name] for name in names)
            key, sequence = tuple(fields[name] for name in table.schema.key), fields[SEQUENCE]
            if mode == "changes":
                self.log[table.table].append((fields[CHANGE_TYPE], key, row, sequence))
                continue
            if key in seen:
                raise Broken(f"{table.table}: {key} comes twice in one write")
            seen.add(key)
            held = self.rows[table.table]
            if mode == "append":
                if key in held:
                    raise Broken(f"{table.table}: {row} is appended, and there is {held[key]}")
                if not fields[DELETED]:
                    held[key] = (row, sequence)
            elif key in held and sequence <= held[key][1]:
                continue
            elif fields[DELETED]:
                held.pop(key, None)
            else:
                held[key] = (row, sequence)
