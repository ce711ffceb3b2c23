"""A subscription server in a process of its own, which can be killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from penstock.errors import PenstockError

STOP_S = 30.0
"""A server ends within some seconds; on a machine that does much else it takes longer."""


class RunningServer:
    """`penstock serve FILE`, any number of times, one after the other. What it says goes to `errors`."""

    def __init__(self, file: Path, errors: Path) -> None:
        self.file = file
        self.errors = errors
        self.process: subprocess.Popen[str] | None = None
        self.address = ""

    def start(self) -> str:
        """Returns the address. Raises `PenstockError` with what the server said if it does not start."""
        command = [sys.executable, "-m", "penstock", "serve", str(self.file), "--json"]
        with open(self.errors, "ab") as errors:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, text=True
            )
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            said = json.loads(line)
            if "listening" in said:
                self.listening: dict[str, str] = said["listening"]
                self.address = self.listening["canal"]
                return self.address
        raise PenstockError(f"the server did not start: {self.errors.read_text()}")

    def stop(self) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_S)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def kill_receiver(self) -> bool:
        """Kills the receiver, and returns whether there was one."""
        assert self.process is not None
        found = psutil.Process(self.process.pid).children()
        for one in found:
            one.kill()
        return bool(found)
