"""No table waits for something that will not come, whatever is parked, read, dropped or removed."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from penstock.cascades.keys import after, hindered
from penstock.cascades.waiting import Nobody, Operator, Parents, is_unfinished, waits_for
from penstock.model.offset import Offset
from penstock.model.schema import DEFAULT_TYPES, CascadingKey, Column, TableId, TableSchema
from penstock.model.table import (
    CatchingUp,
    Dropped,
    Parked,
    Reading,
    Removed,
    ResnapshotPending,
    Streaming,
    TableState,
)

READ = Streaming(snapshot_done=True)


class Pipeline:
    """The tables of a pipeline and the parts that decide about them, without a source: keys are as each
    table's entry in `schemas`, which is what a resnapshot finds."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.names = [TableId("shop", f"t{number}") for number in range(chance.randint(2, 9))]
        self.clock = 10
        self.schemas = {name: self.schema(name) for name in self.names}
        self.tables = {
            name: TableState(schema, Offset(10), Reading(splitting=True))
            for name, schema in self.schemas.items()
            if chance.random() < 0.95  # the others are not captured
        }

    def schema(self, name: TableId) -> TableSchema:
        """Most keys go one way; some make circles, and some refer to their own table."""
        parents = {
            one for one in self.names
            if self.chance.random() < (0.35 if one < name else 0.1 if one == name else 0.05)
        }  # fmt: skip
        columns = (
            Column("id", "int", nullable=False),
            *(Column(one.table, "int") for one in sorted(parents)),
        )
        keys = tuple(
            CascadingKey(f"to_{one.table}", (one.table,), one, ("id",), "CASCADE", "NO ACTION")
            for one in self.chance.sample(sorted(parents), len(parents))
        )
        return TableSchema(name, columns, ("id",), foreign_keys=keys)

    def put(self, name: TableId, phase: object) -> None:
        self.tables[name] = replace(self.tables[name], phase=phase)  # type: ignore[arg-type]

    def happens(self) -> None:
        """Something happens to a table: at the source, at its target, or because an operator wants it."""
        name = self.chance.choice(list(self.tables) or self.names)
        if name not in self.tables:
            return
        state = self.tables[name]
        match self.chance.choice(("park", "drop", "remove", "again", "unpark", "alter", "read", "changed")):
            case "park" if not state.gone and state.parked is None:
                resumes = Offset(self.clock) if self.chance.random() < 0.5 else None
                self.tables[name] = state.park(Offset(self.clock), "No.", "Mend it.", resumes)
            case "drop" if state.planned:
                self.put(name, Dropped(Offset(self.clock)))
            case "remove":
                self.put(name, Removed(Offset(self.clock)))
            case "again" if not isinstance(state.phase, Removed):
                self.asked(name)
            case "unpark" if isinstance(state.phase, Parked):
                self.put(name, state.phase.resumes or ResnapshotPending("unparked", state.phase))
            case "alter":  # also what a parked table has now is not known before it is read again
                self.schemas[name] = self.schema(name)
            case "changed" if state.planned:
                self.tables[name] = state.read_again("a statement changed its rows")
            case "read":
                self.reads(name)

    def asked(self, name: TableId) -> None:
        """As `signals/work.py` does it."""
        state = self.tables[name]
        schema = replace(state.schema, foreign_keys=self.schemas[name].foreign_keys)
        self.tables[name] = replace(state, schema=schema, phase=ResnapshotPending("asked for", state.parked))

    def reads(self, name: TableId) -> None:
        if isinstance(self.tables[name].phase, Reading | CatchingUp):
            self.put(name, READ)

    def plans(self) -> None:
        """As `planning/planner.py` and `planning/resnapshots.py` do it, between two epochs."""
        self.clock += 1
        for name, why in hindered(self.tables, DEFAULT_TYPES).items():
            if not why.parks or self.tables[name].parked is None:
                self.tables[name] = after(self.tables[name], why, Offset(self.clock))
        self.judge()
        for name, waits in waits_for(self.tables).items():
            if waits == Nobody():
                self.clock += 1
                phase = Reading(splitting=True)
                self.tables[name] = TableState(self.schemas[name], Offset(self.clock), phase)

    def judge(self) -> None:
        waiting = waits_for(self.tables)
        pending = {name for name, one in self.tables.items() if isinstance(one.phase, ResnapshotPending)}
        assert waiting.keys() == pending
        for name, waits in waiting.items():
            match waits:
                case Operator(parent=parent):
                    assert self.tables[name].status == "parked", f"{name} waits, and does not say for whom"
                    assert isinstance(self.tables[parent].phase, Parked) or isinstance(
                        waiting[parent], Operator
                    )
                case Parents(tables=parents):
                    assert parents and name not in parents
                    for parent in parents:
                        phase = self.tables[parent].phase
                        assert isinstance(phase, Reading | CatchingUp | ResnapshotPending), (name, phase)
                        assert not isinstance(waiting.get(parent), Operator), "it will not come"
                case Nobody():
                    pass


@pytest.mark.parametrize("seed", range(60))
def test_without_an_operator_every_table_is_followed_gone_or_parked_in_the_end(seed: int) -> None:
    pipeline = Pipeline(random.Random(seed))
    for _ in range(12):
        for _ in range(pipeline.chance.randint(0, 3)):
            pipeline.happens()
            if pipeline.chance.random() < 0.5:
                pipeline.plans()
        for _ in range(4 * len(pipeline.names) + 4):  # nobody acts any more
            pipeline.plans()
            before = dict(pipeline.tables)
            for name in before:
                pipeline.reads(name)
            pipeline.plans()
            if pipeline.tables == before:
                break
        else:
            raise AssertionError("the tables do not come to rest")
        assert not is_unfinished(pipeline.tables)
        for name, state in pipeline.tables.items():
            assert state.streaming or state.gone or state.status == "parked", (name, state.phase)
            assert not state.streaming or all(
                key.parent == name or pipeline.tables[key.parent].streaming
                for key in state.schema.foreign_keys
            ), f"changes of the parents of {name} do not come"
