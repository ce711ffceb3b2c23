"""One process holds a lock, others are turned away, and the kernel knows how long."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from tests.disk.holding import JAVAS, OURS, holding

from penstock.disk import lock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


@pytest.mark.parametrize("program", [OURS, JAVAS], ids=["ours", "java's"])
def test_a_lock_of_another_process_turns_away_and_names_it(path: Path, program: str) -> None:
    with holding(path, program) as process:
        assert lock.is_locked(path)
        assert lock.holder(path) == process.pid
        assert lock.by_holder(path) == f" (process {process.pid})"
        assert lock.take(path, wait_seconds=0) is None


def test_a_lock_ends_with_its_process_however_it_ends(path: Path) -> None:
    with holding(path, OURS) as process:
        process.send_signal(signal.SIGSTOP)
        assert lock.is_locked(path), "a stopped process still holds it"
        process.kill()
        process.wait()
        assert not lock.is_locked(path) and lock.holder(path) is None and lock.by_holder(path) == ""
        with lock.held(path, wait_seconds=0) as found:
            assert found is not None


def test_a_lock_keeps_out_other_threads_of_its_process(path: Path) -> None:
    with lock.held(path) as first:
        assert first is not None and lock.is_locked(path) and lock.holder(path) == os.getpid()
        assert lock.take(path, wait_seconds=0) is None
    assert not lock.is_locked(path)


def test_closing_another_descriptor_of_the_file_gives_up_nothing(path: Path) -> None:
    with lock.held(path):
        path.read_bytes()
        assert lock.is_locked(path)


def test_a_question_turns_nobody_away(path: Path) -> None:
    stopping = threading.Event()
    path.touch()

    def ask() -> None:
        while not stopping.is_set():
            lock.is_locked(path)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(300):
            with lock.held(path, wait_seconds=0) as found:
                assert found is not None
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def test_whoever_waits_gets_the_lock_when_it_is_given_up(path: Path) -> None:
    first = lock.take(path)
    assert first is not None
    threading.Timer(0.1, first.release).start()
    with lock.held(path, wait_seconds=60) as found:
        assert found is not None


def test_a_wait_has_a_limit(path: Path) -> None:
    with lock.held(path):
        began = time.monotonic()
        assert lock.take(path, wait_seconds=0.1) is None
        assert 0.1 <= time.monotonic() - began < 30


def test_a_forked_child_keeps_the_lock_and_a_program_it_executes_does_not(path: Path) -> None:
    first = lock.take(path)
    assert first is not None
    with subprocess.Popen(["sleep", "600"], close_fds=False) as program:
        try:
            pid = os.fork()
            if pid == 0:
                time.sleep(600)
                os._exit(0)
            first.release()
            assert lock.is_locked(path) and lock.holder(path) == pid
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            assert not lock.is_locked(path)
        finally:
            program.kill()


def test_a_lock_on_a_file_that_was_replaced_is_not_taken_for_the_lock(path: Path) -> None:
    first = lock.take(path)
    assert first is not None and first.is_current()
    path.unlink()
    assert not first.is_current()
    with lock.held(path, wait_seconds=0) as second:
        assert second is not None and second.is_current() and not first.is_current()
    first.release()


def test_a_lock_that_is_not_there_is_held_by_nobody(path: Path) -> None:
    assert not lock.is_locked(path) and lock.holder(path) is None
    assert not path.exists()


def test_neither_links_nor_pipes_are_locked_or_waited_for(path: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").touch()
    path.symlink_to(tmp_path / "elsewhere")
    for ask in (lock.take, lock.is_locked):
        with pytest.raises(OSError):
            ask(path)
    assert lock.holder(path) is None
    path.unlink()
    os.mkfifo(path)
    assert not lock.is_locked(path)


def test_the_file_is_for_this_account_alone(path: Path) -> None:
    old = os.umask(0)
    try:
        with lock.held(path):
            assert path.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(old)
