from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from penstock.runtime import shutdown
from penstock.runtime.shutdown import BY_FORCE, FINISHED_SECONDS, Ending, leave_by_force
from penstock.secret import Secret, lent
from penstock.state.report import read_end

HANGS = """
import sys, threading
from penstock.runtime.shutdown import Ending
from penstock.signals.commands import parse as _  # some code of ours
import penstock.relaylog.writer as writer

told = threading.Event()
told.set()
with Ending(told, 1.0, exits=True) as one:
    one.forced = lambda message: print("noted", flush=True)
    if sys.argv[1:]:
        one.begin("the first error")
    writer._Flusher(lambda: None).submit(threading.Event().wait)
    threading.Event().wait()
"""

FILLED = """
import os, sys, threading
os.set_blocking(2, False)
try:
    while True:
        os.write(2, b"x" * 4096)
except BlockingIOError:
    os.set_blocking(2, True)
"""


def test_steps_are_taken_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    forced = threading.Event()
    monkeypatch.setattr(shutdown, "TICK_SECONDS", 0.02)
    told = threading.Event()
    with Ending(told, 0.9) as one:

        def interrupt(reason: str) -> int:
            steps.append("interrupt")
            return 1

        one.interrupt = interrupt
        one.cancel_jobs = lambda: steps.append("cancel")

        def note(message: str) -> None:
            steps.append(message)
            forced.set()

        one.forced = note
        assert one.left() == FINISHED_SECONDS, "nothing has told it to end"
        assert not forced.wait(1.2) and steps == []
        told.set()
        began = time.monotonic()
        assert one.left() <= 0.9 and one.left(0.5) <= 0.45
        assert forced.wait(30)
        assert time.monotonic() - began >= 0.85
    assert steps[0] == "interrupt" and "cancel" in steps
    assert "stop_timeout (0.9 s)" in steps[-1] and "Nothing is lost" in steps[-1]


def test_a_run_that_ends_in_time_is_left_alone() -> None:
    told = threading.Event()
    with Ending(told, 1.0) as one:
        one.forced = lambda message: pytest.fail(message)
        told.set()
    time.sleep(1.5)  # longer than it had


@pytest.mark.parametrize(("arguments", "code"), [([], BY_FORCE), (["error"], 1)])
def test_a_process_that_hangs_ends_and_says_where_it_hung(arguments: list[str], code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGS, *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == code, done.stderr
    assert done.stderr.count("ended by force") == 1 and len(done.stderr.splitlines()) == 1, done.stderr
    assert "still waiting for the relay log" in done.stderr and "relaylog.writer" not in done.stderr
    assert ("penstock: the first error" in done.stderr) == bool(arguments)
    assert "noted" in done.stdout


def test_a_process_that_hangs_ends_also_where_nobody_reads_what_it_says() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HANGS], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    process.stderr.close()
    assert process.wait(60) == BY_FORCE


def test_a_process_that_hangs_ends_also_where_what_it_says_finds_no_room() -> None:
    full, read = HANGS.replace("import sys, threading", FILLED), 0
    process = subprocess.Popen(
        [sys.executable, "-c", full], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        assert process.wait(60) == BY_FORCE
    finally:
        process.kill()
        assert process.stderr is not None
        read = len(process.stderr.read())
        process.stderr.close()
    assert read > 10_000, "the pipe was full"


def test_a_run_that_ends_by_force_leaves_its_reason_and_no_password(tmp_path: Path) -> None:
    stack = contextlib.ExitStack()  # never closed: the process ends
    stack.enter_context(lent({"password": Secret("hunter2")}, tmp_path))
    leave_by_force(tmp_path, "The disk does not answer.")
    assert list((tmp_path / "secrets").iterdir()) == []
    end = read_end(tmp_path)
    assert end is not None and end["message"] == "The disk does not answer."
