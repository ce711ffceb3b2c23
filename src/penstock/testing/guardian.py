"""The guardian of one private server: a small process that owns the server process and its folder.

It is started as `python -I -S guardian.py FOLDER PARENT_PID`. It reads commands as JSON lines from stdin, and
answers each one with a JSON line on stdout. When stdin ends or the parent is gone, it kills the server,
removes the folder and exits. If the guardian itself is killed, the kernel kills the server
(PR_SET_PDEATHSIG). The folder's lock is then free, and the next private server that is started removes the
folder.

Only the standard library is used: the guardian must start in milliseconds and must not depend on the caller's
environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
LOCK_NAME = "guardian.lock"


def _die_with_guardian() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Guardian:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.server: subprocess.Popen[bytes] | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "start":
                return self._start(request["argv"], request["env"], request["log"])
            case "signal":
                return self._signal(request["signal"], request["timeout_s"])
            case "poll":
                return {"code": None if self.server is None else self.server.poll()}
        return {"error": f"unknown command {request['do']}"}

    def _start(self, argv: list[str], env: dict[str, str], log: str) -> dict[str, Any]:
        if self.server is not None and self.server.poll() is None:
            return {"error": "the server is running already"}
        with open(log, "ab") as file:
            self.server = subprocess.Popen(
                argv, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=self.folder,
                preexec_fn=_die_with_guardian,
            )  # fmt: skip
        return {"pid": self.server.pid}

    def _signal(self, number: int, timeout_s: float) -> dict[str, Any]:
        """Sends the signal and waits for the server to end. `code` in the answer is None if it did not end in
        time."""
        if self.server is None:
            return {"code": None}
        if self.server.poll() is None:
            self.server.send_signal(number)
        try:
            return {"code": self.server.wait(timeout_s)}
        except subprocess.TimeoutExpired:
            return {"code": None}

    def clean_up(self) -> None:
        self._signal(signal.SIGKILL, 30)
        shutil.rmtree(self.folder, ignore_errors=True)


def serve(guardian: Guardian, parent: int) -> None:
    """Answers commands until stdin ends or the parent is gone."""
    # A forked child of the parent may keep our stdin open, so the parent is watched through its pidfd too.
    handles = [0]
    with contextlib.suppress(OSError):  # an old kernel has no pidfd: only stdin is watched
        handles.append(os.pidfd_open(parent))
    if os.getppid() != parent:
        return
    pending = b""
    while True:
        ready, _, _ = select.select(handles, [], [])
        if 0 not in ready:
            return
        data = os.read(0, 65536)
        if not data:
            return
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            try:
                reply = guardian.answer(json.loads(line))
            except OSError as error:
                reply = {"error": str(error)}
            os.write(1, json.dumps(reply).encode() + b"\n")


def main() -> None:
    folder, parent = sys.argv[1], int(sys.argv[2])
    os.setsid()  # signals to the caller's process group (Ctrl-C) must not end the guardian
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which the server would inherit
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    lock = open(Path(folder, LOCK_NAME), "w")  # noqa: SIM115 - held as long as the process lives
    fcntl.flock(lock, fcntl.LOCK_EX)
    guardian = Guardian(folder)
    try:
        os.write(1, b"{}\n")  # the parent learns that the folder is locked
        serve(guardian, parent)
    except (OSError, ValueError):
        pass  # the parent ended in the middle of a message
    finally:
        guardian.clean_up()


if __name__ == "__main__":
    main()
