"""Whether a pipeline lives is asked in one way, and only its process decides."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from tests.disk.holding import holding

from penstock import config as configuration
from penstock.config import PipelineConfig
from penstock.disk import directory
from penstock.errors import ConfigError
from penstock.relaylog import lease
from penstock.relaylog.segment import LEASE_FILE, STATUS_FILE
from penstock.relaylog.status import age_seconds, stamp
from penstock.runtime import targets
from penstock.runtime.describe import describe, describe_receiver, ensure_run
from penstock.state import StateStore


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    """A pipeline that has run and was killed: its last report is there, and as young as can be."""
    found = configuration.parse(
        {"name": "x", "source": {"user": "u"}, "tables": ["shop.*"], "state": str(tmp_path / "state"),
         "sink": {"type": "iceberg", "path": str(tmp_path / "lake")}}
    )  # fmt: skip
    state = StateStore(found.state)
    state.close()
    (found.state / "lock").touch()
    report(found)
    return found


def report(config: PipelineConfig, **fields: object) -> None:
    document = {"running": True, "pid": os.getpid(), "tables": [], **stamp(), **fields}
    (config.state / "status.json").write_text(json.dumps(document))


def test_a_killed_pipeline_does_not_run_however_young_its_report_is(config: PipelineConfig) -> None:
    assert not directory.is_held(config.state)


def test_a_stopped_process_still_runs_its_pipeline(config: PipelineConfig) -> None:
    with holding(config.state / "lock") as process:
        process.send_signal(signal.SIGSTOP)
        assert directory.is_held(config.state)
        with (
            pytest.raises(ConfigError, match="Another process runs the pipeline"),
            directory.held(config.state),
        ):
            pass
        process.kill()
        process.wait()
        assert not directory.is_held(config.state), "the lock goes with the process"


def test_a_living_pipeline_answers_by_its_report_whatever_the_wall_clock_says(config: PipelineConfig) -> None:
    with holding(config.state / "lock"):
        report(config, updated=time.time() - 7200)  # the clock was set two hours ahead since
        assert describe(config)["running"] and describe(config)["silent_seconds"] is None


def test_the_age_of_a_report_does_not_depend_on_the_wall_clock() -> None:
    now = stamp()
    assert age_seconds(now) < 5
    assert age_seconds(now | {"updated": time.time() + 7200}) < 5
    assert age_seconds(now | {"updated": 0}) < 5
    boot, monotonic = now["clock"]
    assert age_seconds(now | {"clock": [boot, monotonic - 100]}) >= 100
    elsewhere = {"updated": time.time() - 50, "clock": ["another machine", 0.0]}
    assert 49 < age_seconds(elsewhere) < 60
    assert age_seconds({}) > 10**6 and age_seconds({"updated": time.time() + 600}) > 10**6


def test_a_pipeline_can_start_while_others_ask_whether_it_lives(config: PipelineConfig) -> None:
    stopping = threading.Event()

    def ask() -> None:
        while not stopping.is_set():
            directory.is_held(config.state)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(100):
            with directory.held(config.state):
                assert directory.is_held(config.state)
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def test_a_receiver_that_is_gone_is_not_taken_for_the_process_that_has_its_number_now(tmp_path: Path) -> None:
    said = {"state": "streaming", "pid": os.getpid(), **stamp()}
    (tmp_path / STATUS_FILE).write_text(json.dumps(said))
    (tmp_path / LEASE_FILE).touch()
    assert describe_receiver(tmp_path) == "killed"
    with holding(tmp_path / LEASE_FILE):
        assert lease.is_held(tmp_path)
        assert describe_receiver(tmp_path) == f"streaming (process {os.getpid()})"
        said["clock"] = [said["clock"][0], said["clock"][1] - 40]
        (tmp_path / STATUS_FILE).write_text(json.dumps(said))
        assert "last report 40 s ago" in describe_receiver(tmp_path)


def test_a_pipeline_that_was_never_run_is_refused_by_every_command_alike(tmp_path: Path) -> None:
    fresh = configuration.parse(
        {"name": "x", "source": {"user": "u"}, "tables": ["shop.*"], "state": str(tmp_path / "none"),
         "sink": {"type": "iceberg", "path": str(tmp_path / "lake")}}
    )  # fmt: skip
    for ask in (describe, ensure_run):
        with pytest.raises(ConfigError, match="has not been run yet"):
            ask(fresh)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_a_file_that_the_disk_refuses_is_named_with_the_cure(number: int) -> None:
    told = pytest.raises(ConfigError, match=r"/state/x cannot be written: .* Free space")
    with told as raised, directory.disk_errors_explained():
        raise OSError(number, os.strerror(number), "/state/x")
    assert os.strerror(number) in raised.value.message


def test_errors_that_are_no_trouble_of_a_disk_stay_what_they_are() -> None:
    with pytest.raises(FileNotFoundError), directory.disk_errors_explained():
        raise FileNotFoundError(errno.ENOENT, "No such file", "x")
    with pytest.raises(ValueError), directory.disk_errors_explained():
        raise ValueError


def test_a_copy_of_a_state_may_not_write_the_same_targets_at_the_same_time(
    config: PipelineConfig, tmp_path: Path
) -> None:
    """Both would number epochs alike, and each would take the other's commits for its own."""
    shutil.copytree(config.state, tmp_path / "copy")
    (tmp_path / "lake").mkdir()
    with ExitStack() as stack:
        state = stack.enter_context(closing(StateStore(config.state)))
        copy = stack.enter_context(closing(StateStore(tmp_path / "copy")))
        refused = pytest.raises(ConfigError, match="same identity")
        with targets.locked(config, state.uuid), refused, targets.locked(config, copy.uuid):
            pass
        with targets.locked(config, copy.uuid):
            pass
        another = stack.enter_context(closing(StateStore(tmp_path / "another")))
        with targets.locked(config, state.uuid), targets.locked(config, another.uuid):
            pass  # another pipeline, with targets of its own in one warehouse
