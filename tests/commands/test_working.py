"""What a command shows while it works."""

from __future__ import annotations

import io
import logging
import sys
import time
from collections.abc import Iterator

import pytest

from penstock.commands import working
from penstock.commands.working import PROGRESS, Working
from penstock.steps import step


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The progress lines of the test."""
    found: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    PROGRESS.addHandler(handler)
    monkeypatch.setattr(working, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(working, "SILENT_SECONDS", 0.05)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    yield found
    PROGRESS.removeHandler(handler)


def until(found: list[str], text: str) -> None:
    deadline = time.monotonic() + 30
    while not any(text in line for line in found):
        assert time.monotonic() < deadline, found
        time.sleep(0.01)  # polls, with a limit


def test_a_step_that_takes_long_is_said_without_a_terminal(lines: list[str]) -> None:
    with Working("opening the state"):
        until(lines, "opening the state … 0 s")
        step("comparing %s", "shop.orders")
        until(lines, "comparing shop.orders … ")
    count = len(lines)
    step("nobody sees this")
    assert len(lines) == count


def test_a_quick_command_says_nothing(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working, "SILENT_SECONDS", 3600.0)
    with Working("opening the state"):
        step("comparing")
    assert lines == []


def test_output_at_a_terminal_is_whole_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    errors = Terminal()
    monkeypatch.setattr(working, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(sys, "stderr", errors)
    with Working("opening the state") as shown:
        deadline = time.monotonic() + 30
        while "opening the state … 0 s" not in errors.getvalue():
            assert time.monotonic() < deadline
            time.sleep(0.01)  # polls, with a limit
        shown.say("shop.orders: equal")
    assert capsys.readouterr().out == "shop.orders: equal\n"
