"""Processes that hold a lock."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import penstock

OURS = (
    "import sys, time; from pathlib import Path; from penstock.disk import lock; "
    "held = lock.take(Path(sys.argv[1])); print(held is not None, flush=True); time.sleep(600)"
)
JAVAS = (  # what FileChannel.lock() does: a record lock that belongs to the process
    "import fcntl, sys, time; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); "
    "print(True, flush=True); time.sleep(600)"
)


@contextmanager
def holding(path: Path, program: str = JAVAS) -> Iterator[subprocess.Popen[str]]:
    path.touch()
    environment = {**os.environ, "PYTHONPATH": str(Path(penstock.__file__).parent.parent)}
    command = [sys.executable, "-c", program, str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None and process.stdout.readline() == "True\n"
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
