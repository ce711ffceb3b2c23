"""A process in a file system of its own sees only what it was given, and its children end with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil

from penstock.testing.scenario import wait_for
from penstock.testing.servers import private_root


def test_a_program_sees_programs_and_the_folders_it_is_given_and_nothing_else(tmp_path: Path) -> None:
    for name in ("root", "given", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "given" / "file").write_text("")
    argv = private_root.command(
        ["/bin/sh", "-c", "pwd; ls /given /tmp /home /root /var; touch made"],
        root=tmp_path / "root",
        read_only={tmp_path / "given": "/given"},
        writable={tmp_path / "work": "/work"},
    )
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["/work", "/given:", "file", "/tmp:"], done.stderr
    assert (tmp_path / "work" / "made").exists()
    assert list((tmp_path / "root").iterdir()) == [], "nothing is mounted here"


def test_descendants_end_with_the_program(tmp_path: Path) -> None:
    left = "import os, time; os.fork() or (os.setsid(), time.sleep(600)); time.sleep(600)"
    process = subprocess.Popen(private_root.with_descendants([sys.executable, "-c", left]), cwd=tmp_path)
    family = psutil.Process(process.pid)
    wait_for(lambda: len(family.children(recursive=True)) >= 3, "the program and its child")
    descendants = family.children(recursive=True)
    process.kill()
    process.wait(60)
    wait_for(lambda: not any(one.is_running() for one in descendants), "all of them to end")
