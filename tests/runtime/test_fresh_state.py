"""A new state for targets that exist: what it removes, where its numbers begin, and what a kill leaves."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.killed import killed_before

from penstock.config import PipelineConfig
from penstock.errors import ConfigError
from penstock.model.offset import Offset
from penstock.model.schema import TableId
from penstock.model.table import Change
from penstock.relaylog.consumers import Consumer, registered
from penstock.relaylog.files import LogPlace
from penstock.relaylog.segment import FIRST_OFFSET_FILE, LEASE_FILE
from penstock.relaylog.writer import RelayLogWriter
from penstock.runtime import fresh_state
from penstock.runtime.fresh_state import Numbers, OldState, begin, first_numbers, prepared, stopped
from penstock.runtime.targets import check_relay_log
from penstock.state import StateStore
from penstock.store.opening import open_store

FILES = ("staging/chunks/part-1/t/0.json", "spark/offsets/0", "index/1/run", "dead_letters/0.jsonl", "logs/a")


def config_in(folder: Path, **options: Any) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "name": "x",
            "source": {"host": "h", "user": "u", "password": "p"},
            "tables": ["d.*"],
            "sink": {"type": "iceberg", "path": str(folder / "lake")},
            "state": str(folder / "state"),
            "relay_log": {"path": str(folder / "log")},
            **options,
        }
    )


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    """A pipeline that has planned up to offset 0 of a log with one segment."""
    made = config_in(tmp_path)
    with closing(StateStore(made.state, owner=True)) as state:
        state.set_meta("position", "0")
        identity = state.uuid
    for name in FILES:
        path = made.state / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    log = made.relay_log_path
    log.mkdir()
    (log / "relay.json").write_text('{"uuid": "u"}')
    for suffix in ("binlog", "index"):
        (log / f"{0:020d}-000001.{suffix}").touch()
    Consumer(log, "x", needs=Offset(0), id=identity, kind="pipeline").close()
    return made


def start_over(config: PipelineConfig) -> str:
    old = OldState.of(config)
    with stopped([config]):
        begin(prepared(config, old.uuid or "lost", old, together=()), old.uuid)
    return str(old.uuid)


def test_new_numbers_are_behind_all_that_an_earlier_state_can_have_used() -> None:
    year = 365 * 86_400
    now = fresh_state.SINCE_S + year
    first = first_numbers(now, Numbers())
    assert first.offset == year * 8 * 2**20 and first.epoch == year * 1000
    again = first_numbers(now + 60, Numbers())
    assert again.offset - first.offset == 60 * 8 * 2**20
    known = first_numbers(now, Numbers(Offset(2**50), 10**12, 10**9))
    assert known.offset > 2**50 and known.epoch == 10**12 and known.generation == 10**9
    assert first_numbers(2_300_000_000, Numbers()).offset < 2**52  # exact in Redis and HBase, still in 2042
    with pytest.raises(ConfigError, match="clock"):
        first_numbers(5.0, Numbers())


def test_state_and_log_begin_anew_and_what_is_not_theirs_stays(config: PipelineConfig) -> None:
    with closing(StateStore(config.state)) as state:
        state.add_change(Change(TableId("d", "t"), 1, Offset(0), "found", "captured"))
    before = time.time()
    uuid = start_over(config)
    with closing(StateStore(config.state, owner=True)) as state:
        assert state.uuid == uuid and state.position is None and not state.tables() and not state.history()
        assert state.last_epoch() == state.began_after > (before - fresh_state.SINCE_S) * 999
        state.add_change(Change(TableId("d", "t"), 1, Offset(0), "found", "captured"))
        assert state.last_change() == state.began_after + 1
    left = {str(path.relative_to(config.state)) for path in config.state.rglob("*") if path.is_file()}
    assert {"dead_letters/0.jsonl", "logs/a"} <= left and not left & set(FILES[:3])
    assert {path.name for path in config.relay_log_path.iterdir()} == {FIRST_OFFSET_FILE, LEASE_FILE}
    with closing(RelayLogWriter(config.relay_log_path, config.relay_log)) as writer:
        assert writer.end > (before - fresh_state.SINCE_S) * 8e6
    assert OldState.of(config).is_fresh


def test_a_log_that_others_read_stays(config: PipelineConfig) -> None:
    Consumer(config.relay_log_path, "served", needs=Offset(0)).close()
    files = {path.name for path in config.relay_log_path.iterdir()}
    fresh = prepared(config, str(OldState.of(config).uuid), OldState.of(config), together=())
    assert fresh.log_readers == ("served",)
    assert all(not path.is_relative_to(config.relay_log_path) for path, _ in fresh.removes())
    start_over(config)
    assert files == {path.name for path in config.relay_log_path.iterdir()}
    assert [one.name for one in registered(config.relay_log_path)] == ["served", "x"]
    with pytest.raises(ConfigError, match=r"Others read the relay log .*: served, x"):
        prepared(config, "an owner that has not read it", OldState(), together=())


def test_a_log_whose_archive_would_be_mixed_with_a_new_one_is_refused(
    config: PipelineConfig, tmp_path: Path
) -> None:
    url = (tmp_path / "archive").as_uri()
    archived = config_in(tmp_path, relay_log={"path": str(config.relay_log_path), "archive": url})
    manifest = {"format": 1, "relay": {"uuid": "u"}, "generation": 1, "owner": {}, "segments": []}
    open_store(url).put("log.json", json.dumps(manifest).encode())
    with pytest.raises(ConfigError, match=r"archive .* has the relay log so far"):
        prepared(archived, str(OldState.of(config).uuid), OldState(), together=())
    assert (config.relay_log_path / "relay.json").exists()


def test_a_pipeline_that_runs_or_reads_no_rows_is_refused(config: PipelineConfig, tmp_path: Path) -> None:
    with stopped([config]), pytest.raises(ConfigError, match="Another process runs"), stopped([config]):
        pass
    with (
        closing(RelayLogWriter(config.relay_log_path, config.relay_log)),
        pytest.raises(ConfigError, match="A receiver writes the relay log"),
    ):
        start_over(config)
    assert not OldState.of(config).is_fresh
    never = config_in(tmp_path, snapshot={"mode": "never"})
    with pytest.raises(ConfigError, match="reads no rows"):
        prepared(never, "u", OldState(), together=())


@pytest.mark.parametrize("steps", range(20))
def test_a_kill_leaves_a_pipeline_that_is_refused_or_has_begun_anew_and_can_be_repeated(
    config: PipelineConfig, steps: int
) -> None:
    uuid = OldState.of(config).uuid
    intact = {path.name for path in config.relay_log_path.iterdir()}
    names = ("_remove", "replace_file", "sync", "open_staging")
    died = killed_before(steps, fresh_state, names, lambda: start_over(config))
    assert died or steps > 3
    assert not died or steps < 19, "each step was the last one once"
    if not OldState.of(config).is_fresh:
        with closing(StateStore(config.state)) as state:
            if intact <= {path.name for path in config.relay_log_path.iterdir()}:
                check_relay_log(LogPlace.of(config), state)
            else:
                with pytest.raises(ConfigError, match="penstock reset"):
                    check_relay_log(LogPlace.of(config), state)
    start_over(config)
    assert OldState.of(config).is_fresh and OldState.of(config).uuid == uuid
    assert (config.relay_log_path / FIRST_OFFSET_FILE).exists()
