"""`penstock verify` and the pipeline agree on a place of the log, whether the pipeline runs or not."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.phases import PARKED, READ

from penstock import config as configuration
from penstock.config import PipelineConfig, VerifyConfig
from penstock.disk import directory, lock
from penstock.errors import ConfigError, TransientError
from penstock.model.offset import LogRange, Offset, SourcePosition
from penstock.model.plan import EpochPlan
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.signal import VERIFY
from penstock.model.table import TableState
from penstock.relaylog import segment_format
from penstock.relaylog.segment import LEASE_FILE
from penstock.signals.comparisons import Comparisons
from penstock.signals.work import Signals
from penstock.state import StateStore
from penstock.verify.subject import ComparedVersion, NotCompared, Why
from penstock.verify.target_versions import PipelineVersions

A, B, DOTTED = TableId("shop", "a"), TableId("shop", "b"), TableId("shop", "c.d|e")
HOOKS = ("discover", "catalog", "unpark", "limit", "advance_log")
MARK = segment_format.position("binlog.000001", 90)


def live(table: TableId, **fields: Any) -> TableState:
    schema = TableSchema(table, (Column("id", "int"),), ("id",), version=3)
    given: dict[str, Any] = {"phase": READ, "last_epoch": 1} | fields
    return TableState(schema, Offset(4), **given)


@dataclass
class Log:
    """A relay log whose offsets are the source's positions."""

    reached: int = 100
    touched: dict[TableId, tuple[int, int]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    path: Path = Path("/nowhere")
    grows: int = 0

    def refresh(self) -> None:
        self.reached += self.grows

    def offset_reaching(self, position: SourcePosition) -> Offset | None:
        place = Offset(position.order[-1])
        return place if place <= self.reached else None

    def tables(self, reach: LogRange) -> dict[TableId, tuple[int, int]]:
        return self.touched

    def statements(self, reach: LogRange) -> list[str]:
        return self.said


class Sink:
    """A `Readable` of which only versions are asked for."""

    def version(self, table: TableId) -> str:
        return f"version of {table.table}"

    hold = version

    def read(self, table: TableId, version: str | None = None) -> Any:
        raise AssertionError("no target is read here")


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    found = configuration.parse(
        {"name": "x", "source": {"user": "u"}, "tables": ["shop.*"], "state": str(tmp_path / "state"),
         "sink": {"type": "iceberg", "path": str(tmp_path / "lake")}}
    )  # fmt: skip
    with contextlib.closing(StateStore(found.state)) as state:
        for table in (live(A), live(B, phase=PARKED), live(DOTTED)):
            state.put_table(table)
        state.advance(Offset(80))
    return found


def asked(config: PipelineConfig, state: StateStore, log: Log) -> PipelineVersions:
    return PipelineVersions(config, state, log)  # type: ignore[arg-type]


def started(state: StateStore) -> None:
    """Starts the signals that have arrived, as a pipeline does."""
    signals = Signals(state, None, None, (), **dict.fromkeys(HOOKS))  # type: ignore[arg-type]
    for signal in state.signals("accepted"):
        signals._start(signal)


@contextlib.contextmanager
def running(config: PipelineConfig, log: Log) -> Iterator[threading.Event]:
    """A pipeline's loop, as far as requests go; it applies what it is to end an epoch at."""
    stopping = threading.Event()

    def loop(held: threading.Event) -> None:
        with contextlib.closing(StateStore(config.state)) as state, directory.held(config.state):
            comparisons = Comparisons(state, log, Sink())  # type: ignore[arg-type]
            held.set()
            while not stopping.wait(0.01):
                started(state)
                for cut in comparisons.work():
                    state.advance(cut)

    began = threading.Event()
    thread = threading.Thread(target=loop, args=(began,))
    thread.start()
    assert began.wait(20)
    try:
        yield stopping
    finally:
        stopping.set()
        thread.join()


def test_a_running_pipeline_tells_all_versions_at_one_place_and_what_is_not_to_be_compared(
    config: PipelineConfig,
) -> None:
    log = Log()
    with contextlib.closing(StateStore(config.state)) as state, running(config, log):
        found = asked(config, state, log)
        now = found.hold([A, B, DOTTED])
        assert isinstance(now[A], TableSchema) and isinstance(now[B], NotCompared)
        offset, held = found.versions_at([A, B, DOTTED], MARK)
        assert offset == 90
        assert held[A] == ComparedVersion("version of a", 3)
        assert held[DOTTED] == ComparedVersion("version of c.d|e", 3)
        parked = held[B]
        assert isinstance(parked, NotCompared) and parked.why == Why.PARKED


def test_a_pipeline_plans_nothing_between_the_answer_and_release(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.closing(StateStore(config.state)) as state, running(config, Log()) as stopping:
        found = asked(config, state, Log())
        found.hold([A])
        assert len(state.verifying()) == 1
        found.cut([A], MARK, stay=False)
        assert state.verifying() == []
        found.cut([A], MARK, stay=True)
        stopping.set()
        [waiting] = state.verifying()
        comparisons = Comparisons(state, Log(), Sink())  # type: ignore[arg-type]
        clock: list[int] = []
        for module in ("signals.comparisons", "state.signals"):
            monkeypatch.setattr(f"penstock.{module}.now_us", lambda: clock[-1])
        for seconds, held_then in ((19, True), (30, True), (51, False)):
            clock.append(waiting.updated_us + seconds * 1_000_000)
            assert comparisons.work() == [] and comparisons.held is held_then
            if seconds < 30:
                found.stay()
        assert state.verifying() == [], "a killed `verify` stops nothing"


def test_a_pipeline_goes_on_when_it_is_released(config: PipelineConfig) -> None:
    with contextlib.closing(StateStore(config.state)) as state, running(config, Log()):
        found = asked(config, state, Log())
        found.cut([A], MARK, stay=True)
        assert len(state.verifying()) == 1
        found.release()
        assert state.verifying() == []


def test_only_verify_holds_a_pipeline(config: PipelineConfig) -> None:
    with contextlib.closing(StateStore(config.state)) as state:
        state.send("mine", VERIFY, {}, "rest")
        started(state)
        [refused] = state.signals()
        assert refused.status == "refused" and "penstock verify" in refused.answer["message"]
        assert state.verifying() == []


def test_an_epoch_that_was_planned_meanwhile_is_noticed(config: PipelineConfig) -> None:
    with contextlib.closing(StateStore(config.state)) as state:
        found = asked(config, state, Log())
        assert found.is_unchanged(0)
        plan = EpochPlan(1, LogRange(Offset(80), Offset(85)), ())
        state.plan(plan)
        assert not found.is_unchanged(0) and not found.is_unchanged(1)
        with pytest.raises(ConfigError, match="has not ended its last epoch"):
            found.cut([A], MARK, stay=True)
        state.applied(plan)
        assert found.is_unchanged(1) and not found.is_unchanged(0)


def test_a_pipeline_that_ends_while_it_is_asked_is_one_that_does_not_run(config: PipelineConfig) -> None:
    log = Log(reached=10)  # it never reaches the mark
    with contextlib.closing(StateStore(config.state)) as state, running(config, log) as stopping:
        threading.Timer(0.5, stopping.set).start()
        with pytest.raises(ConfigError, match="is not running"):
            asked(config, state, log).versions_at([A], MARK)


@pytest.mark.parametrize(("touched", "said"), [({A: (1, 10)}, []), ({}, ["ALTER TABLE shop.a"])])
def test_a_stopped_pipeline_that_has_log_to_apply_is_not_compared(
    config: PipelineConfig, touched: dict[TableId, tuple[int, int]], said: list[str]
) -> None:
    with contextlib.closing(StateStore(config.state)) as state:
        with pytest.raises(ConfigError, match="has not applied 10 bytes of log"):
            asked(config, state, Log(touched=touched, said=said)).versions_at([A], MARK)
        offset, held = asked(config, state, Log(touched={B: (1, 10)})).versions_at([A, DOTTED], MARK)
        assert offset == 80 and held == {A: ComparedVersion(None, 3), DOTTED: ComparedVersion(None, 3)}


def test_a_pipeline_that_holds_its_state_and_does_not_answer_is_named(
    config: PipelineConfig,
) -> None:
    config = config.model_copy(update={"verify": VerifyConfig(hold_timeout=200)})
    with contextlib.closing(StateStore(config.state)) as state, directory.held(config.state):
        with pytest.raises(TransientError, match=r"runs, but did not answer within 0\.2 s") as error:
            asked(config, state, Log()).hold([A])
        assert "`verify.hold_timeout`" in error.value.hint
        assert not state.signals("accepted", "running"), "nobody is asked any more"


def test_a_receiver_without_a_pipeline_is_waited_for(config: PipelineConfig, tmp_path: Path) -> None:
    log = Log(reached=50, grows=10, path=tmp_path)
    (tmp_path / LEASE_FILE).touch()
    with contextlib.closing(StateStore(config.state)) as state:
        with lock.held(tmp_path / LEASE_FILE):
            offset, _ = asked(config, state, log).versions_at([A], MARK)
        assert offset == 80
        with pytest.raises(ConfigError, match="ends before") as error:
            asked(config, state, Log(reached=50, grows=10, path=tmp_path)).versions_at([A], MARK)
        assert "penstock receive" in error.value.hint
