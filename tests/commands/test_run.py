"""How `penstock run` shows a pipeline: a screen at a terminal, lines elsewhere, JSON for programs."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.live import Live
from tests.commands.test_screen import status, table

from penstock import config as configuration
from penstock.commands import run as command
from penstock.commands.terminal import console, logged_above
from penstock.runtime.pipeline import Pipeline
from penstock.runtime.shutdown import BY_FORCE

PIPELINE = """
name: shop
source: {host: 127.0.0.1, user: penstock, password: x}
tables: [shop.*]
sink: {type: console}
state: STATE
stop_timeout: 1s
"""
HANGS = """
import os, signal, sys, threading
from pathlib import Path
from penstock.commands.run import run
from penstock.runtime import pipeline

def hang(*_, **__):
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait()

pipeline.open_source = hang
run(Path(sys.argv[1]), once=False, as_json=False)
"""
HIDES_CURSOR, SHOWS_CURSOR = "\x1b[?25l", "\x1b[?25h"


class ScriptedPipeline:
    """Reports one document and ends."""

    exits = False

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document

    def stop(self) -> None: ...

    def to_json(self) -> dict[str, Any]:
        return self._document

    def text(self) -> str:
        return json.dumps(self._document)

    def run(self, *, once: bool, on_progress: Any) -> ScriptedPipeline:
        on_progress(self)
        logging.getLogger("penstock.x").warning("shop.t0002 is parked")
        return self


def watched(monkeypatch: pytest.MonkeyPatch, *, terminal: bool, as_json: bool = False) -> str:
    """What stderr gets."""
    errors = io.StringIO()
    monkeypatch.setattr(sys, "stderr", errors)
    drawn = console(file=errors, force_terminal=terminal, width=100, height=30)
    monkeypatch.setattr(command, "console", lambda **_: drawn)
    monkeypatch.setattr(configuration, "load_several", lambda _: (None, {}))
    monkeypatch.setattr(Pipeline, "load", lambda _: ScriptedPipeline(status([table(1), table(2)])))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.StreamHandler(errors)])
    command.run(Path("shop.yaml"), once=False, as_json=as_json)
    return errors.getvalue()


def test_a_terminal_shows_the_tables_and_log_lines_stay_above_them(monkeypatch: pytest.MonkeyPatch) -> None:
    said = watched(monkeypatch, terminal=True)
    last = said[said.rindex("shop.t0002 is parked") :]
    assert "shop.t0001" in last and "shop: epoch 7" in last, "the screen is drawn again below the log line"


def test_what_is_no_terminal_gets_lines_and_at_the_end_what_the_run_has_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = watched(monkeypatch, terminal=False)
    assert said.splitlines() == [
        "epoch 7; lag 0.2 s, 2.0 KiB",
        "shop.t0002 is parked",
        "ended: 2 tables, 0 rows of snapshots; epoch 7; lag 0.2 s, 2.0 KiB",
    ]


def test_programs_get_json_on_stdout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    watched(monkeypatch, terminal=True, as_json=True)
    assert json.loads(capsys.readouterr().out)["epoch"] == 7


def test_the_log_goes_where_it_went_when_the_screen_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = io.StringIO()
    monkeypatch.setattr(sys, "stderr", errors)
    handler = logging.StreamHandler(errors)
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    with Live("", console=console(file=errors, force_terminal=True)) as live, logged_above(live):
        assert handler.stream is not errors
    assert handler.stream is errors


def read_to_end(terminal: int) -> str:
    """Everything that is written to a terminal until its last writer has ended."""
    said = b""
    try:
        while part := os.read(terminal, 65536):
            said += part
    except OSError:  # EIO: nobody has the other side open any more
        pass
    return said.decode()


def test_a_run_that_is_ended_by_force_gives_the_terminal_its_cursor_back(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(PIPELINE.replace("STATE", str(tmp_path / "state")))
    terminal, other_side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", HANGS, str(file)],
        stdin=other_side,
        stdout=other_side,
        stderr=other_side,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "200"},
    )
    try:
        os.close(other_side)
        said = read_to_end(terminal)
        assert process.wait(60) == BY_FORCE, said
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    assert HIDES_CURSOR in said and said.rfind(SHOWS_CURSOR) > said.rfind(HIDES_CURSOR), said
    assert "ended by force" in said[said.rfind(SHOWS_CURSOR) :], "the reason stands below the screen"
