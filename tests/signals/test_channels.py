"""Signals that come by a file, and what is said where HTTP cannot be had."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from penstock.config import SignalsConfig
from penstock.signals.acceptance import WARNINGS_MAX, accept
from penstock.signals.channels import FileChannel
from penstock.state import StateStore
from penstock.state.signals import SignalsWait


def line(signal_id: str, **more: object) -> str:
    return json.dumps({"id": signal_id, "type": "log", "data": {"message": "x"}, **more}) + "\n"


def test_lines_that_are_appended_are_accepted_once(tmp_path: Path) -> None:
    state, path = StateStore(tmp_path), tmp_path / "signals"
    channel = FileChannel(path, state)
    channel.poll()  # no file yet
    path.write_text(line("a") + line("b"))
    channel.poll()
    channel.poll()
    with open(path, "a") as file:
        file.write(line("c")[:20])
        file.flush()
        channel.poll()  # half a line
        assert [one.id for one in state.signals()] == ["a", "b"]
        file.write(line("c")[20:] + line("a"))
    state.close()
    again = StateStore(tmp_path)
    FileChannel(path, again).poll()
    assert [one.id for one in again.signals()] == ["a", "b", "c"]


def test_a_pipe_in_place_of_the_file_is_named_and_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.mkfifo(tmp_path / "signals")
    FileChannel(tmp_path / "signals", StateStore(tmp_path)).poll()
    assert "cannot be read" in caplog.text


def test_answers_are_not_written_through_a_link(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state, path = StateStore(tmp_path), tmp_path / "signals"
    channel = FileChannel(path, state)
    path.write_text(line("a"))
    channel.poll()
    mine = tmp_path / "profile"
    mine.write_text("mine")
    (tmp_path / "signals.answers").symlink_to(mine)
    channel.answered(state.signals()[0])
    assert mine.read_text() == "mine" and "cannot be written" in caplog.text


def test_a_file_that_is_replaced_is_read_from_its_beginning(tmp_path: Path) -> None:
    state, path = StateStore(tmp_path), tmp_path / "signals"
    channel = FileChannel(path, state)
    path.write_text(line("a") + line("b"))
    channel.poll()
    path.rename(tmp_path / "old")
    path.write_text(line("c"))
    channel.poll()
    path.write_text("")
    channel.poll()
    path.write_text(line("d"))
    channel.poll()
    assert [one.id for one in state.signals()] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    "bad",
    [b"no json\n", b"\xff\xfe\n", b"[]\n", b'{"type": "log"}\n', b'{"id": 5, "type": "log"}\n', b"\n",
     b'{"id": "x", "type": 7}\n', b'{"id": "x", "type": "log", "data": []}\n', b"[" * 100_000 + b"\n",
     b'{"id": "\\ud800", "type": "log"}\n', b'{"id": "x", "type": "\\ud800"}\n',
     b'{"id": "x", "type": "log", "data": {"message": "\\ud800"}}\n',
     b'{"id": "x", "type": "log", "data": {"message": NaN}}\n',
     b'{"id": "x", "type": "log", "data": {"message": ' + b"[" * 500 + b"]" * 500 + b"}}\n"],
)  # fmt: skip
def test_what_is_no_signal_is_passed_over(
    bad: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state, path = StateStore(tmp_path), tmp_path / "signals"
    path.write_bytes(bad + line("a").encode())
    FileChannel(path, state).poll()
    assert [one.id for one in state.signals()] == ["a"]
    assert bad == b"\n" or "is not a signal" in caplog.text


def test_answers_are_appended_for_signals_of_this_channel(tmp_path: Path) -> None:
    state, path = StateStore(tmp_path), tmp_path / "signals"
    channel = FileChannel(path, state)
    accept(state, "mine", "log", {"message": "x"}, "file")
    accept(state, "other", "log", {"message": "x"}, "command")
    for one in state.signals():
        channel.answered(one)
    [answer] = (tmp_path / "signals.answers").read_text().splitlines()
    assert json.loads(answer)["id"] == "mine"


def test_an_id_that_is_known_is_the_same_signal(tmp_path: Path) -> None:
    state = StateStore(tmp_path)
    assert accept(state, "a", "log", {"message": "x"}, "command")
    state.set_signal("a", "done", {"message": "x"})
    assert not accept(state, "a", "park", {"tables": ["x.y"]}, "file")
    [found] = state.signals()
    assert (found.type, found.status) == ("log", "done")


CANARY = "CANARY9137"


@pytest.mark.parametrize(
    "bad",
    [b"CANARY9137", b'{"id": "CANARY9137"}', b'{"CANARY9137": 1}', b'"CANARY9137"', b"CANARY9137 \xff",
     b'{"id": "a", "type": "log", "data": "CANARY9137"}', b'{"id": "CANARY9137", "type": ["CANARY9137"]}',
     b'{"id": "' + b"CANARY9137" * 50 + b'", "type": "log"}', b'{"id": 1, "type": "log", "CANARY9137": NaN}'],
)  # fmt: skip
def test_the_log_says_where_what_is_no_signal_stands_and_never_what_it_holds(
    bad: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state, path = StateStore(tmp_path), tmp_path / "signals"
    before = line("a").encode()
    path.write_bytes(before + b"\n" + bad + b"\n")
    FileChannel(path, state).poll()
    assert CANARY not in caplog.text
    assert f"{path}: the line at byte {len(before) + 1} is not a signal: " in caplog.text


def test_a_file_of_nonsense_does_not_fill_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state, path = StateStore(tmp_path), tmp_path / "signals"
    path.write_bytes(b"x\n" * 10_000 + line("a").encode())
    FileChannel(path, state).poll()
    assert [one.id for one in state.signals()] == ["a"]
    assert len(caplog.records) == WARNINGS_MAX + 1
    assert f"{10_000 - WARNINGS_MAX} more entries are not signals" in caplog.text


def test_ended_signals_are_kept_in_bounds_of_number_age_and_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateStore(tmp_path)
    state.limit_signals(SignalsConfig(keep=3, keep_age=60_000))
    for number in range(10):
        state.send(str(number), "log", {"message": "x"}, "command")
    for number in range(9):
        state.set_signal(str(number), "done", {})
    assert [one.id for one in state.signals()] == ["6", "7", "8", "9"], "what waits is kept"
    monkeypatch.setattr("penstock.state.signals.now_us", lambda: time.time_ns() // 1000 + 61_000_000)
    state.set_signal("9", "done", {})
    assert [one.id for one in state.signals()] == ["9"]
    monkeypatch.setattr("penstock.state.signals.SIGNALS_BYTES_MAX", 3000)
    for number in range(10, 14):
        state.send(str(number), "log", {"message": "x" * 1000}, "command", limited=False)
        state.set_signal(str(number), "done", {})
    assert [one.id for one in state.signals()] == ["12", "13"]


def test_no_more_signals_are_taken_while_too_many_wait(tmp_path: Path) -> None:
    state = StateStore(tmp_path)
    state.limit_signals(SignalsConfig(waiting_max=2))
    assert accept(state, "a", "log", {"message": "x"}, "command")
    assert accept(state, "b", "log", {"message": "x"}, "command")
    with pytest.raises(SignalsWait, match="No more signals are accepted"):
        accept(state, "c", "log", {"message": "x"}, "command")
    assert not accept(state, "a", "log", {}, "command"), "what is known is no new one"
    assert state.signals_full()
    state.set_signal("a", "done", {})
    assert accept(state, "c", "log", {"message": "x"}, "command")
