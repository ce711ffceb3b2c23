"""`penstock move`: at most one of two places can run, whenever the command is killed."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.runtime.killed import killed_before

from penstock.config import PipelineConfig
from penstock.errors import ConfigError
from penstock.model.offset import Offset
from penstock.relaylog import consumers
from penstock.relaylog.consumers import Consumer
from penstock.runtime import move as moving
from penstock.runtime.fresh_state import stopped
from penstock.state import StateStore
from penstock.state.moved import refuse_moved


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    """A pipeline with a state, whose relay log is elsewhere."""
    made = PipelineConfig.model_validate(
        {
            "name": "x",
            "source": {"host": "h", "user": "u", "password": "p"},
            "tables": ["d.*"],
            "sink": {"type": "iceberg", "path": str(tmp_path / "lake")},
            "state": str(tmp_path / "old"),
            "relay_log": {"path": str(tmp_path / "log")},
        }
    )
    with closing(StateStore(made.state, owner=True)) as state:
        state.set_meta("position", "7")
        identity = state.uuid
    for name, text in (("staging/chunks/4/t/a.parquet", "rows"), ("spark/offsets/0", "x"), ("lock", "")):
        path = made.state / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    made.relay_log_path.mkdir()
    (made.relay_log_path / "relay.json").write_text('{"uuid": "u"}')
    (made.relay_log_path / f"{0:020d}-000001.binlog").write_bytes(os.urandom(3_000_000))
    Consumer(made.relay_log_path, "x", needs=Offset(7), id=identity, kind="pipeline").close()
    return made


def move(config: PipelineConfig, to: Path) -> moving.Moved:
    with stopped([config]):
        return moving.move(config, [], to)


def may_run(state: Path) -> bool:
    if not (state / "state.sqlite").exists():
        return False
    try:
        refuse_moved(state)
    except ConfigError:
        return False
    return True


def test_everything_that_a_run_needs_is_copied_and_the_old_place_is_closed(
    config: PipelineConfig, tmp_path: Path
) -> None:
    moved = move(config, tmp_path / "new")
    assert moved.state == tmp_path / "new" / "state" and moved.relay_log == tmp_path / "new" / "relay"
    assert any(str(tmp_path / "lake") in one for one in moved.stays)
    with closing(StateStore(moved.state, owner=True)) as new, closing(StateStore(config.state)) as old:
        assert new.uuid == old.uuid and new.position == 7
    assert (moved.state / "staging/chunks/4/t/a.parquet").read_text() == "rows"
    assert not (moved.state / "spark").exists()
    for path in config.relay_log_path.iterdir():
        if path.is_file() and path.name != "lease":
            assert (moved.relay_log / path.name).read_bytes() == path.read_bytes()
    assert [one.name for one in consumers.registered(moved.relay_log)] == ["x"]
    assert may_run(moved.state) and not may_run(config.state)
    assert oct(moved.state.stat().st_mode & 0o777) == "0o700"
    with pytest.raises(ConfigError, match=f"was moved from .* to {moved.state}"):
        move(config, tmp_path / "third")


@pytest.mark.parametrize("steps", range(24))
def test_a_move_that_was_killed_is_repeated_and_never_leaves_two_places_that_run(
    config: PipelineConfig, tmp_path: Path, steps: int
) -> None:
    new = tmp_path / "new"
    names = ("put_mark", "remove_mark", "_copy_file", "sync")
    died = killed_before(steps, moving, names, lambda: move(config, new))
    assert died or steps > 3
    assert not died or steps < 23, "each step was the last one once"
    assert may_run(config.state) + may_run(new / "state") <= 1
    if not may_run(new / "state"):
        move(config, new)
    assert may_run(new / "state") and not may_run(config.state)
    with closing(sqlite3.connect(new / "state" / "state.sqlite")) as copy:
        assert copy.execute("SELECT value FROM meta WHERE name = 'position'").fetchone() == ("7",)
    assert (new / "state/staging/chunks/4/t/a.parquet").read_text() == "rows"


def test_what_cannot_move_is_refused_and_left_as_it_is(config: PipelineConfig, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(ConfigError, match="not empty"):
        move(config, tmp_path / "full")
    with pytest.raises(ConfigError, match="inside each other"):
        move(config, config.state / "new")
    Consumer(config.relay_log_path, "other", needs=Offset(0)).close()
    with pytest.raises(ConfigError, match="other readers, which would stay behind: other"):
        move(config, tmp_path / "new")
    with stopped([config]), pytest.raises(ConfigError, match="Another process runs"):
        move(config, tmp_path / "new")
    assert may_run(config.state)
