"""Who may read what a pipeline keeps."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.config import RelayLogConfig
from penstock.disk import directory
from penstock.errors import ConfigError
from penstock.relaylog.writer import RelayLogWriter
from penstock.state import StateStore


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def test_what_is_made_is_for_this_account_alone_whatever_the_umask(tmp_path: Path) -> None:
    state = tmp_path / "a" / "b" / "state"
    directory.make(state, "state")
    with directory.held(state):
        store = StateStore(state)
        store.set_meta("a", "b")
        writer = RelayLogWriter(state / "relay", RelayLogConfig(disk_free_min=0))
        modes = {path.name: mode(path) for path in state.iterdir()}
        assert modes == {
            "lock": 0o600, "state.sqlite": 0o600, "state.sqlite-wal": 0o600, "state.sqlite-shm": 0o600,
            "relay": 0o700,
        }  # fmt: skip
        assert {mode(path) for path in (state / "relay").iterdir() if path.is_file()} <= {0o600}
        writer.close()
        store.close()
    assert (mode(state), mode(state.parent), mode(state.parent.parent)) == (0o700, 0o755, 0o755)


def test_what_is_open_is_closed_with_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = tmp_path / "state"
    (state / "chunks").mkdir(parents=True)
    (state / "state.sqlite").touch()
    outside = tmp_path / "others"
    outside.mkdir()
    (state / "link").symlink_to(outside)
    with caplog.at_level(logging.WARNING):
        directory.close_to_others(state, "state")
        directory.close_to_others(state, "state")
    assert [mode(path) for path in (state, state / "chunks", state / "state.sqlite")] == [0o700, 0o700, 0o600]
    assert mode(outside) == 0o777, "what a link names is not ours"
    assert len(caplog.records) == 1 and str(state) in caplog.text


def test_others_come_through_to_a_target_inside_and_to_nothing_else(tmp_path: Path) -> None:
    state, lake = tmp_path / "state", tmp_path / "state" / "lake"
    lake.mkdir(parents=True)
    (state / "chunks").mkdir()
    directory.close_to_others(state, "state", open_=[lake])
    assert (mode(state), mode(lake), mode(state / "chunks")) == (0o711, 0o777, 0o700)


def test_what_somebody_else_owns_and_others_can_read_is_refused_with_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, mode: int, **_: object) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    state = tmp_path / "state"
    state.mkdir()
    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(ConfigError, match="other accounts can read") as caught:
        directory.close_to_others(state, "state")
    assert f"chmod go-rwx {state}" in caught.value.hint
