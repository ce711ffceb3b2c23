"""How long a report is believed, and how often a run writes one."""

from __future__ import annotations

import json
import re
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.phases import READ

from penstock import PenstockError, Pipeline
from penstock import config as configuration
from penstock.commands.status import status
from penstock.config import PipelineConfig
from penstock.disk import directory
from penstock.errors import ConfigError
from penstock.model.offset import Offset
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.table import TableState
from penstock.relaylog.status import stamp
from penstock.runtime.describe import describe, describe_member
from penstock.runtime.progress import Progress
from penstock.state import StateStore
from penstock.testing.servers.process import free_port


def pipeline(folder: Path, **options: Any) -> PipelineConfig:
    return configuration.parse(
        {"name": "x", "source": {"user": "u"}, "tables": ["shop.*"], "state": str(folder / "state"),
         "sink": {"type": "console"}, **options}
    )  # fmt: skip


def test_a_report_is_believed_for_ten_of_its_intervals(tmp_path: Path) -> None:
    config, slow = pipeline(tmp_path), pipeline(tmp_path, report_interval="10s")
    StateStore(config.state).close()
    written = stamp()
    boot, monotonic = written["clock"]
    written |= {"updated": time.time() - 50, "clock": [boot, monotonic - 50]}
    (config.state / "status.json").write_text(json.dumps({"running": True, **written}))
    with directory.held(config.state):
        assert describe(slow)["running"]
        with pytest.raises(ConfigError, match="has received nothing"):
            describe(config)  # the report counts no more: the files are asked, and there is no log


def test_a_pipeline_that_never_reached_its_source_is_told_from_one_whose_log_is_gone(tmp_path: Path) -> None:
    config = pipeline(tmp_path)
    with closing(StateStore(config.state)) as state:
        with pytest.raises(ConfigError, match="has received nothing") as told:
            describe(config)
        assert "penstock run" in told.value.hint
        state.advance(Offset(9))
        with pytest.raises(ConfigError, match="is not a relay log"):
            describe(config)


def test_a_pipeline_whose_run_failed_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing listens at the source's port."""
    source = {"user": "u", "host": "127.0.0.1", "port": free_port()}
    config = pipeline(tmp_path, source=source)
    with pytest.raises(PenstockError) as failed:
        Pipeline(config).run(once=True)
    with pytest.raises(ConfigError, match="has not been run yet") as told:
        describe(config)
    assert failed.value.message in told.value.hint
    assert not describe_member(config)["running"]
    file = tmp_path / "shop.yaml"
    configuration.save(config, file)
    several = yaml.safe_load(file.read_text())
    sink = several.pop("sink")
    file.write_text(yaml.safe_dump({**several, "sinks": [sink, {**sink, "name": "second"}]}))
    with pytest.raises(PenstockError):
        Pipeline.load(f"{file}#second").run(once=True)
    status(file, history=False, as_json=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert "It has not been run yet." in shown and failed.value.message in shown


class Log:
    path = Path("nowhere")


def test_a_run_reports_once_an_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = pipeline(tmp_path, report_interval="20s")
    log: Any = Log()
    with closing(StateStore(config.state)) as state:
        progress = Progress(config, state, log, None)
        monkeypatch.setattr(progress, "text", lambda: "{}")
        progress.write()
        now = time.monotonic()
        for seconds, due in [(0.5, False), (15, False), (20.5, True)]:
            monkeypatch.setattr("time.monotonic", lambda at=now + seconds: at)
            assert progress.should_report() == due


class IdleLog(Log):
    start, end = Offset(4), Offset(9)

    def refresh(self) -> Offset:
        return Offset(9)

    def position_at(self, offset: Offset) -> None:
        return None


class IdleReceiver:
    def describe(self) -> str:
        return "streaming"


def documented(heading: str) -> set[str]:
    """The keys in the first column of the first table behind `heading` in docs/json.md."""
    page = (Path(__file__).parents[2] / "docs" / "json.md").read_text()
    parts = page.split(heading, 1)[1].split("\n\n")
    table = next(part for part in parts if part.startswith("| key"))
    return {key for row in table.strip().splitlines()[2:] for key in re.findall("`(.+?)`", row.split("|")[1])}


def test_the_keys_of_the_status_are_those_of_its_page(tmp_path: Path) -> None:
    config = pipeline(tmp_path)
    log: Any = IdleLog()
    schema = TableSchema(TableId("shop", "a"), (Column("id", "int"),), ("id",))
    with closing(StateStore(config.state)) as state:
        state.advance(Offset(9))
        state.put_table(TableState(schema, Offset(4), READ, last_epoch=1))
        document = Progress(config, state, log, IdleReceiver()).to_json()
    only_sometimes = {"silent_seconds", "views"}
    assert set(document) == documented("## `penstock status`") - only_sometimes
    [table] = document["tables"]
    assert set(table) == documented("Each of `tables`:")
