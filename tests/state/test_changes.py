"""The changes of the state as values: each durable step is one list of them, and they lead to the same state
elsewhere."""

from __future__ import annotations

import ast
import random
import re
import shutil
import sqlite3
import typing
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.phases import READ, READING, SPLITTING
from tests.state.test_state import SCHEMA, staged
from tests.state.test_state import chunk as chunk_of

from penstock import state as state_package
from penstock.errors import InternalError, TransientError
from penstock.model.offset import LogRange, Offset
from penstock.model.partial_snapshot import Part
from penstock.model.plan import DeleteOlder, EpochPlan, KeptColumns, TablePlan
from penstock.model.schema import Column, TableId
from penstock.model.signal import VERIFY
from penstock.model.table import Change, Phase, TableState
from penstock.state import StateStore
from penstock.state.changes import StateChange, ValueSet

TABLES = [TableId("shop", name) for name in ("orders", "items", "notes")]


class Recorded:
    """A journal that keeps the steps."""

    def __init__(self) -> None:
        self.steps: list[Sequence[StateChange]] = []
        self.refuses = False

    def commit(self, changes: Sequence[StateChange]) -> None:
        if self.refuses:
            raise TransientError("the journal does not answer")
        self.steps.append(changes)


class Undone(Exception):
    pass


class History:
    """Writes at random, as pipelines do and as they do not."""

    def __init__(self, state: StateStore, seed: int) -> None:
        self.state, self.dice = state, random.Random(seed)
        self.epoch = 0
        self.acts = [getattr(self, name) for name in dir(type(self)) if name.startswith("do_")]

    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            if self.dice.random() < 0.4:
                with suppress(Undone), self.state.transaction():
                    for _ in range(self.dice.randrange(1, 5)):
                        self.dice.choice(self.acts)()
                    if self.dice.random() < 0.2:
                        raise Undone
            else:
                self.dice.choice(self.acts)()

    @property
    def table(self) -> TableState:
        name = self.dice.choice(TABLES)
        known = self.state.table(name)
        columns = (*SCHEMA.columns, *(Column(f"c{n}", "int") for n in range(self.dice.randrange(3))))
        schema = replace(SCHEMA, table=name, columns=columns, version=len(columns))
        return known or TableState(schema, Offset(4), SPLITTING)

    def _chunks(self, table: TableId, first: int) -> list[Any]:
        count, ends = self.dice.randrange(1, 4), self.dice.random() < 0.5
        made = [chunk_of(first + n, last=ends and n == count - 1) for n in range(count)]
        return [replace(one, table=table) for one in made]

    def do_tables(self) -> None:
        table = self.table
        phase: Phase = self.dice.choice((SPLITTING, READING, READ))
        kept = KeptColumns(table.schema, ("id",)) if self.dice.random() < 0.3 else None
        self.state.put_table(replace(table, phase=phase, kept_columns=kept, last_epoch=self.epoch))

    def do_chunks(self) -> None:
        table = replace(self.table, phase=SPLITTING)
        self.state.put_table(table)
        last = self.state.last_chunk(table.table)
        added = self._chunks(table.table, last.number + 1 if last else 0)
        self.state.add_chunks(table, added, rows_guess=self.dice.choice([None, 7]))
        for each in self.state.chunks(table.table):
            now = staged(0, f"attempt {self.dice.random()}", last=False)
            if each.status == "planned" and self.dice.random() < 0.7:
                self.state.chunk_staged(replace(now, chunk=each.chunk))
            elif each.status == "staged" and self.dice.random() < 0.3:
                self.state.chunk_void(each.chunk)
            elif each.staged is not None and self.dice.random() < 0.7:
                self.state.chunks_placed([each.staged])

    def do_forget(self) -> None:
        self.state.forget_chunks(self.table.table)

    def do_partials(self) -> None:
        self.state.begin_partial(f"signal {self.dice.random()}", self.table.table, Offset(9), Part(("1",)))
        for one in self.state.partials():
            parts = [replace(each, snapshot=one.number) for each in self._chunks(one.table, 0)]
            self.state.set_partial_chunks(one, parts)
            for each in self.state.chunks(one.table, "planned", snapshot=one.number):
                self.state.chunk_staged(replace(staged(0, "partial"), chunk=each.chunk))
            done = [each.staged for each in self.state.chunks(one.table, "staged", snapshot=one.number)]
            self.state.chunks_placed([each for each in done if each is not None])
        if self.dice.random() < 0.3:
            self.state.end_partials(self.table.table, "why")

    def do_park(self) -> None:
        why = self.dice.choice(["", "read it"])
        self.state.park(self.table.table, offset=Offset(9), reason="r", hint="h", resnapshot=why)

    def do_epochs(self) -> None:
        table = self.table
        self.epoch = self.state.last_epoch() + 1
        steps = (DeleteOlder(Offset(self.epoch)),) if self.dice.random() < 0.7 else ()
        planned = TablePlan(table.schema, steps, start=table.start) if steps else None
        reach = LogRange(Offset(self.epoch * 10), Offset(self.epoch * 10 + 10))
        self.state.plan(EpochPlan(self.epoch, reach, (planned,) if planned else ()))
        for plan in self.state.pending()[:-1] if self.dice.random() < 0.8 else ():
            self.state.applied(plan, keep=5)
        if self.dice.random() < 0.1:
            self.state.give_up_pending()

    def do_history(self) -> None:
        table = self.table
        self.state.add_change(Change(table.table, 1, Offset(9), "what", "decision", "statement", 5))

    def do_values(self) -> None:
        name = f"name {self.dice.randrange(3)}"
        self.state.set_meta(name, "x") if self.dice.random() < 0.7 else self.state.remove_meta(name)

    def do_signals(self) -> None:
        self.state.send(f"id {self.dice.randrange(99)}", "log", {"message": "m"}, "file")
        for signal in self.state.signals("accepted"):
            if self.dice.random() < 0.5:
                self.state.set_signal(signal.id, "done", {"n": 1})

    def do_verify(self) -> None:
        name = f"asked {self.dice.randrange(99)}"
        self.state.send(name, VERIFY, {}, VERIFY)
        self.state.set_signal(name, "running", {"held": True})
        self.state.renew_signal(name)
        if self.dice.random() < 0.8:
            self.state.set_signal(name, "done", {"offset": 1})


def content(folder: Path) -> dict[str, list[Any]]:
    """All rows of the state's file."""
    with closing(sqlite3.connect(folder / "state.sqlite")) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: sorted(database.execute(f"SELECT * FROM {name}"), key=repr) for name in names}


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 12))])
def test_the_same_steps_lead_to_the_same_state_elsewhere(tmp_path: Path, seed: int) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir(mode=0o700)
    StateStore(tmp_path / "here").close()
    shutil.copy(tmp_path / "here/state.sqlite", tmp_path / "there/state.sqlite")
    state, journal = StateStore(tmp_path / "here"), Recorded()
    state.journal = journal
    state.begin_after(40)
    History(state, seed).go_on(150)
    state.close()
    again = StateStore(tmp_path / "there")
    for step in journal.steps:
        again.commit(step)
    again.close()
    assert content(tmp_path / "there") == content(tmp_path / "here")
    assert {type(change) for step in journal.steps for change in step} == set(typing.get_args(StateChange))


def test_nothing_is_written_past_the_changes() -> None:
    """What writes is reached from `_apply` alone: no method that others call does it itself."""
    own = {"transaction", "reading"}  # they begin and end transactions
    found = 0
    for path in Path(state_package.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and re.search(r"_db\.execute", ast.unparse(node)):
                assert node.name.startswith("_") or node.name in own, f"{path.name}: {node.name}"
                found += 1
    assert found > 10


def test_a_step_is_one_list_of_changes_however_many_calls_it_takes(tmp_path: Path) -> None:
    state, journal = StateStore(tmp_path), Recorded()
    state.journal = journal
    with state.transaction():
        state.set_meta("a", "1")
        with state.transaction():
            state.commit([ValueSet("b", "2"), ValueSet("c", "3")])
        assert state.meta("b") == "2" and journal.steps == []
    with suppress(Undone), state.transaction():
        state.set_meta("d", "4")
        raise Undone
    with state.transaction():
        assert state.meta("d") is None
    assert journal.steps == [(ValueSet("a", "1"), ValueSet("b", "2"), ValueSet("c", "3"))]


def test_nothing_is_written_within_a_read(tmp_path: Path) -> None:
    state = StateStore(tmp_path)
    with pytest.raises(InternalError), state.reading():
        state.set_meta("a", "1")
    assert state.meta("a") is None
    state.set_meta("a", "2")
    with state.transaction(), state.reading():
        state.set_meta("a", "3")
    assert state.meta("a") == "3"


def test_what_the_journal_does_not_have_the_state_does_not_have(tmp_path: Path) -> None:
    state, journal = StateStore(tmp_path), Recorded()
    state.journal = journal
    state.put_table(TableState(SCHEMA, Offset(4), SPLITTING))
    before = content(tmp_path)
    journal.refuses = True
    with pytest.raises(TransientError), state.transaction():
        state.put_table(TableState(SCHEMA, Offset(4), READ))
        state.set_meta("a", "1")
    assert state.meta("a") is None and state.tables()[SCHEMA.table].phase == SPLITTING
    assert content(tmp_path) == before
