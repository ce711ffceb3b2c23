"""Signals that come by a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.signals.channels import FileChannel, accept
from penstock.state import StateStore


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
    assert bad == b"\n" or "is no signal" in caplog.text


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
