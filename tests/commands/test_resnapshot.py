"""`penstock resnapshot` and `penstock unpark`: what they print and how they end, while those parts of a
pipeline that work on their signals do so."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.phases import READ, SPLITTING

from penstock import config as configuration
from penstock.commands.resnapshot import resnapshot, unpark
from penstock.disk import directory
from penstock.errors import ConfigError
from penstock.model.offset import LogRange, Offset, SourcePosition
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.table import TableState
from penstock.planning.resnapshots import Resnapshots
from penstock.relaylog import segment_format
from penstock.runtime.unpark import unpark as bring_back
from penstock.signals.work import Signals
from penstock.sinks.base import Commit, Ours, TargetState
from penstock.sources.table_filter import TableFilter
from penstock.state import StateStore

A = TableId("shop", "a")
SCHEMA = TableSchema(A, (Column("id", "int"),), ("id",))
LIVE = TableState(SCHEMA, Offset(4), READ, last_epoch=1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A pipeline that has run, with one table."""
    config = configuration.parse(
        {"name": "x", "source": {"user": "u"}, "tables": ["shop.*"], "state": str(tmp_path / "state"),
         "sink": {"type": "iceberg", "path": str(tmp_path / "lake")}}
    )  # fmt: skip
    configuration.save(config, tmp_path / "pipeline.yaml")
    state = StateStore(config.state)
    state.put_table(LIVE)
    state.advance(Offset(9))
    state.close()
    return tmp_path / "pipeline.yaml"


class Log:
    """A relay log that holds all of its source."""

    start = Offset(4)
    source_uuid = "a"

    def refresh(self) -> Offset:
        return Offset(9)

    def reached(self, position: SourcePosition) -> bool:
        return True

    def offset_reaching(self, position: SourcePosition) -> Offset:
        return Offset(9)

    def statements(self, between: LogRange) -> list[object]:
        return []


@dataclass
class Catalog:
    refuses: str

    def read_table(self, table: TableId) -> TableSchema:
        if self.refuses:
            raise ConfigError(self.refuses, hint="Mend it.")
        return SCHEMA

    def unfollowable(
        self, tables: Collection[TableId], *, cascades: bool, reads: bool
    ) -> dict[TableId, tuple[str, str]]:
        return {}

    def add_key(self, table: TableId) -> str:
        return f"Give {table} a key"


@dataclass
class Source:
    catalog: Catalog

    def end_position(self) -> SourcePosition:
        return segment_format.position("binlog.000001", 9)


class Sink:
    def open(self, table: TableId) -> TargetState:
        return Ours(Commit("x", 1), ("id",), empty=False)


def at_once(condition: Callable[[], Any], what: str, *, seconds: float = 0) -> None:
    assert condition(), what


@contextmanager
def running(file: Path, *, refuses: str = "") -> Iterator[StateStore]:
    """What a pipeline does for these commands: signals, the way back of parked tables, and resnapshots are
    its own; log, source and sink are scripts. `refuses`: why the source does not show its tables.

    If the loop fails, it gives the pipeline's lock back, as a process that ends does. So the commands stop
    waiting, and the loop's error fails the test."""
    config = configuration.load(file)
    state, stopping = StateStore(config.state), threading.Event()
    log: Any = Log()
    sink: Any = Sink()
    source: Any = Source(Catalog(refuses))
    nothing: Any = None
    signals = Signals(
        state, config, TableFilter(config.tables), [], discover=lambda reads: None, catalog=nothing,
        unpark=lambda table: bring_back(state, log, sink, table, protect_log=lambda offset: None),
        limit=lambda limits: None, advance_log=lambda: None,
    )  # fmt: skip
    rereads = Resnapshots(state, log, source, config, sink.open, wait=at_once, renew=lambda: None)
    failures: list[Exception] = []
    began = threading.Event()

    def loop() -> None:
        try:
            with directory.held(config.state):
                began.set()
                while not stopping.wait(0.01):
                    signals.work()
                    rereads.work()
        except Exception as error:
            failures.append(error)
            began.set()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        began.wait()
        yield state
    finally:
        stopping.set()
        thread.join()
        if failures:
            raise failures[0]


def test_a_pipeline_that_does_not_run_finds_the_signal_when_it_does(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resnapshot(file, ["shop.a"], recreate=False, as_json=False)
    assert capsys.readouterr().out == "shop.a will be read again when the pipeline runs.\n"
    unpark(file, ["shop.a"], as_json=True)
    assert json.loads(capsys.readouterr().out) == {"shop.a": {"ok": True, "pending": True}}
    state = StateStore(configuration.load(file).state)
    assert [(one.type, one.status) for one in state.signals()] == [
        ("execute-snapshot", "accepted"),
        ("unpark", "accepted"),
    ]


def test_a_table_that_a_pipeline_does_not_have_is_refused_also_while_it_does_not_run(file: Path) -> None:
    for command in (unpark, partial(resnapshot, recreate=False)):
        with pytest.raises(ConfigError, match=r"does not capture shop\.b"):
            command(file, ["shop.a", "shop.b"], as_json=False)
    assert not StateStore(configuration.load(file).state).signals()


def test_a_running_pipeline_answers_once_it_has_begun(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(file) as state:
        resnapshot(file, ["shop.a"], recreate=True, as_json=False)
        found = state.table(A)
        assert found is not None and (found.phase, found.target_reset) == (SPLITTING, "recreate")
        assert capsys.readouterr().out == "shop.a is being read again into a new target.\n"
        resnapshot(file, ["shop.a"], recreate=False, as_json=True)
        assert json.loads(capsys.readouterr().out) == {"shop.a": {"ok": True}}
        unpark(file, ["shop.a"], as_json=False)
        assert capsys.readouterr().out == "shop.a is not parked.\n"


def test_an_error_of_the_loop_ends_the_commands_and_the_test(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(self: Signals) -> None:
        raise KeyError("a fault of the loop")

    monkeypatch.setattr(Signals, "work", fault)
    with pytest.raises(KeyError, match="a fault of the loop"), running(file):
        resnapshot(file, ["shop.a"], recreate=False, as_json=False)


def test_what_keeps_a_table_as_it_is_is_an_error(file: Path) -> None:
    with running(file, refuses="no grant"):
        with pytest.raises(ConfigError, match=r"shop\.b: The pipeline does not capture shop\.b"):
            resnapshot(file, ["shop.b"], recreate=False, as_json=False)
        with pytest.raises(ConfigError, match="no grant") as error:
            resnapshot(file, ["shop.a"], recreate=False, as_json=False)
        assert error.value.hint == "Mend it."
        with pytest.raises(ConfigError, match="parked again: no grant"):
            unpark(file, ["shop.a"], as_json=False)
    with running(file) as state:
        unpark(file, ["shop.a"], as_json=True)
        found = state.table(A)
        assert found is not None and found.phase == SPLITTING
    with pytest.raises(ConfigError):
        resnapshot(file, ["nodot"], recreate=False, as_json=False)
