"""`penstock resnapshot` and `penstock unpark`: what they say and how they end, with a loop that does signals
as a pipeline's does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.phases import READ, SPLITTING

from penstock import config as configuration
from penstock.commands.resnapshot import resnapshot, unpark
from penstock.disk import directory
from penstock.errors import ConfigError
from penstock.model.offset import Offset
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.table import TableState
from penstock.signals.work import Signals
from penstock.sources.catalog import Catalog
from penstock.sources.table_filter import TableFilter
from penstock.state import StateStore

A = TableId("shop", "a")
LIVE = TableState(TableSchema(A, (Column("id", "int"),), ("id",)), Offset(4), READ, last_epoch=1)


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


@contextmanager
def running(file: Path, *, parks: str = "") -> Iterator[StateStore]:
    """Signals are done; resnapshots that are pending begin at once, or are parked for a reason."""
    config = configuration.load(file)
    state, stopping = StateStore(config.state), threading.Event()

    def bring_back(table: TableId) -> dict[str, Any]:
        found = state.table(table)
        assert found is not None
        if found.status != "parked":
            return {"ok": True, "action": "none"}
        state.put_table(found.read_again("its rows are not known"))
        return {"ok": True, "action": "resnapshot", "reason": "its rows are not known"}

    signals = Signals(
        state, config, TableFilter(config.tables), [], discover=lambda reads: None,
        catalog=cast(Catalog, None), unpark=bring_back, limit=lambda limits: None,
        advance_log=lambda: None,
    )  # fmt: skip

    def loop() -> None:
        while not stopping.is_set():
            signals.work()
            for table in state.tables().values():
                with state.transaction():
                    if table.resnapshot_pending:
                        state.put_table(replace(table, phase=SPLITTING))
                    if table.resnapshot_pending and parks:
                        state.park(table.table, offset=Offset(9), reason=parks, hint="Mend it.")
            stopping.wait(0.01)

    with directory.held(config.state):
        thread = threading.Thread(target=loop)
        thread.start()
        try:
            yield state
        finally:
            stopping.set()
            thread.join()


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


def test_what_keeps_a_table_as_it_is_is_an_error(file: Path) -> None:
    with running(file, parks="no grant"):
        with pytest.raises(ConfigError, match=r"shop\.b: The pipeline does not capture shop\.b"):
            resnapshot(file, ["shop.b"], recreate=False, as_json=False)
        with pytest.raises(ConfigError, match="no grant") as error:
            resnapshot(file, ["shop.a"], recreate=False, as_json=False)
        assert error.value.hint == "Mend it."
        with pytest.raises(ConfigError, match="parked again: no grant"):
            unpark(file, ["shop.a"], as_json=False)
    with running(file):
        unpark(file, ["shop.a"], as_json=True)
    with pytest.raises(ConfigError):
        resnapshot(file, ["nodot"], recreate=False, as_json=False)
