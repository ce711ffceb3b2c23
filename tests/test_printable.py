"""What others wrote does nothing where it is shown, and programs get it as it is."""

from __future__ import annotations

import io
import json
import logging
import shlex
import subprocess
import sys
import unicodedata
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.commands import terminal
from penstock.commands.screen import screen, summary_line
from penstock.printable import LogFormatter, argument, printable, printable_json

HOSTILE = (
    "a\x1b[2J\x1b]0;owned\x07\n\r\t\x00\x7f\x85\x9b31m\u202eevil\u2066\u200b\u2028\ufeff"
    "[red]x[/][/red]:smile:"
)
"""Clears the screen, sets its title, forges lines, turns and hides text, and speaks rich's markup."""


def is_unsafe(character: str) -> bool:
    """By Unicode: controls, formats (direction, no width), surrogates, ends of lines and paragraphs."""
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(
        character
    ) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


@given(st.text(st.characters()))
@example(HOSTILE)
def test_nothing_in_it_is_obeyed(text: str) -> None:
    shown = printable(text)
    assert not any(map(is_unsafe, shown))
    shown.encode()


@given(st.text(st.characters(categories=("L", "N", "P", "S", "M", "Zs"))))
def test_a_name_that_can_be_seen_is_shown_as_it_is(text: str) -> None:
    assert printable(text) == text


def test_lines_that_are_not_ours_are_indented() -> None:
    assert printable("one\npenstock: all is well", lines=True) == "one\n  penstock: all is well"


@given(st.recursive(st.text(st.characters()), lambda inner: st.dictionaries(st.text(st.characters()), inner)))
@example({HOSTILE: HOSTILE, "\U000e0041": "\U0001f600"})
def test_json_holds_every_name_as_it_is_and_nothing_that_a_terminal_obeys(value: Any) -> None:
    for ascii_only in (True, False):
        text = printable_json(json.dumps(value, ensure_ascii=ascii_only))
        assert json.loads(text) == value
        assert not any(map(is_unsafe, text))
        text.encode()


def test_a_log_has_one_line_a_record() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LogFormatter("%(levelname)s %(name)s: %(message)s"))
    logger = logging.Logger("penstock.test")
    logger.addHandler(handler)
    logger.warning("%s is parked", "shop.x\nWARNING penstock: all is well\x1b[2J")
    try:
        raise ValueError("x\nWARNING penstock: all is well\x1b[2J")
    except ValueError:
        logger.warning("failed", exc_info=True)
    lines = stream.getvalue().rstrip("\n").split("\n")
    assert [line for line in lines if line.startswith("WARNING")] == [
        "WARNING penstock.test: shop.x\\nWARNING penstock: all is well\\x1b[2J is parked",
        "WARNING penstock.test: failed",
    ]
    assert "\x1b" not in stream.getvalue()


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
@example("shop.$(touch canary)`touch canary`'; touch canary")
def test_a_name_in_a_command_is_one_argument(name: str) -> None:
    assert shlex.split(argument(name)) == [name]


def test_a_plain_name_in_a_command_stays_plain() -> None:
    assert argument("shop.orders_2024") == "shop.orders_2024"


def drawn(thing: Any) -> str:
    out = terminal.console(file=io.StringIO(), width=2000, force_terminal=True, color_system=None)
    out.print(thing)
    return out.file.getvalue()  # type: ignore[attr-defined, no-any-return]


STATUS: dict[str, Any] = {
    "pipeline": HOSTILE,
    "epoch": 1,
    "lag": {"seconds": 1.0, "bytes": 1, "transactions": 1},
    "snapshot": {
        "chunks": 1,
        "chunks_placed": 0,
        "rows_placed": 0,
        "rows_left": 0,
        "done": False,
        "throttled": HOSTILE,
    },
    "retrying": [
        {"what": HOSTILE, "table": HOSTILE, "since": "2026", "attempts": 3, "reason": HOSTILE},
    ],
    "tables": [
        {
            "table": HOSTILE,
            "status": "parked",
            "snapshot": "done",
            "chunks": {"placed": 0, "total": 0},
            "rows_placed": 0,
            "rows_estimate": 0,
            "parked": {"reason": HOSTILE, "hint": HOSTILE},
            "resnapshot_pending": None,
            "catching_up": None,
            "last_change": None,
            "verified": {"at": "2026", "verdict": HOSTILE, "keys_different": 0, "offset": 1},
        }
    ],
}


def test_the_table_of_a_pipeline_shows_hostile_names_as_text() -> None:
    text = drawn(screen(STATUS)).replace("\x1b[1m", "").replace("\x1b[3m", "").replace("\x1b[0m", "")
    assert text.count(printable(HOSTILE)) == 9
    assert text.count("\n") == 11  # heading, speed, snapshot, wait, heads, two lines of a row, frame, retry
    assert not any(map(is_unsafe, text.replace("\n", "")))


def test_the_line_of_a_pipeline_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.say(summary_line(STATUS))
    shown = capsys.readouterr().out
    assert shown.count("\n") == 1 and shown.endswith("\n")
    assert not any(map(is_unsafe, shown[:-1]))


def test_an_error_of_the_command_line_shows_a_hostile_name_as_text(tmp_path: Any) -> None:
    for arguments in (["status", str(tmp_path / HOSTILE.replace("\0", ""))], ["inspect", "x\x1b[2J\udcff.y"]):
        done = subprocess.run(
            [sys.executable, "-m", "penstock", *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 1 and "penstock: " in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
        assert not any(map(is_unsafe, done.stderr.replace("\n", "")))
