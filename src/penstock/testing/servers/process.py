"""Base class of private server processes of any product: folder, guardian and port."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from typing_extensions import Self

from penstock.errors import InternalError, PenstockError, TransientError
from penstock.testing import artifacts, guardian

_PORTS = range(20_000, 32_000)
"""Below the ephemeral ports, so that a stopped server finds its port free again."""
_START_TIMEOUT_S = 120
"""Seconds for a start, also of a server that recovers from a crash on a busy machine."""
_STOP_TIMEOUT_S = 60
"""Seconds for stopping in order. Then the server is killed."""

SHORT_LIVED_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
"""Java's options for servers that live for minutes: they compile quickly, and use few threads."""


class ServerFailed(PenstockError):
    """A server did not start, or ended by itself. The message contains the end of its log."""


def free_port() -> int:
    for port in random.sample(_PORTS, 200):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise TransientError(f"No free port between {_PORTS.start} and {_PORTS.stop} on 127.0.0.1.")


def _sweep(run_root: Path) -> None:
    """Removes folders whose guardian was killed. The caller must hold the lock `run`."""
    for lock in run_root.glob(f"*/{guardian.LOCK_NAME}"):
        with contextlib.suppress(OSError), open(lock) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)


class PrivateServer:
    """One private server with its folder, guardian and port. Subclasses define how it is run and when it is
    ready."""

    kind = "server"

    def __init__(self, *, folder: Path | None = None) -> None:
        self.host = "127.0.0.1"
        self.port = free_port()
        self._guardian_lock = threading.Lock()
        self._guardian: subprocess.Popen[bytes] | None = None
        self.pid: int | None = None
        with artifacts.locked("run"):
            root = folder or artifacts.cache_root() / "run"
            root.mkdir(parents=True, exist_ok=True)
            _sweep(root)
            self.folder = Path(tempfile.mkdtemp(prefix=f"{self.kind}-", dir=root))
            self._guardian = subprocess.Popen(
                [sys.executable, "-I", "-S", guardian.__file__, str(self.folder), str(os.getpid())],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
            self._read_reply()

    # Defined by subclasses

    def command(self) -> tuple[list[str], dict[str, str]]:
        """Returns the arguments and the environment of the server process."""
        raise NotImplementedError

    def ready(self) -> bool:
        """Whether the server answers. Called repeatedly while it starts."""
        raise NotImplementedError

    # Life cycle

    @property
    def log_path(self) -> Path:
        return self.folder / "server.log"

    def start(self) -> None:
        """Starts the server on its port and data. Returns when it answers. Raises `ServerFailed` if it does
        not."""
        argv, environment = self.command()
        request = {"do": "start", "argv": argv, "env": environment, "log": str(self.log_path)}
        self.pid = int(self._request(request)["pid"])
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self.ready():
            code = self._request({"do": "poll"})["code"]
            if code is not None or time.monotonic() > deadline:
                how = "is not ready yet" if code is None else f"ended with code {code}"
                raise ServerFailed(f"The private {self.kind} on port {self.port} {how}: {self.log_tail()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Shuts the server down cleanly, or kills it if that takes too long. Data, port and folder remain for
        `start`."""
        if (
            self._request({"do": "signal", "signal": signal.SIGTERM, "timeout_s": _STOP_TIMEOUT_S})["code"]
            is None
        ):
            self.kill9()

    def kill9(self) -> None:
        """Kills the server with SIGKILL, like a crash. Data, port and folder remain for `start`."""
        self._request({"do": "signal", "signal": signal.SIGKILL, "timeout_s": _STOP_TIMEOUT_S})

    @property
    def running(self) -> bool:
        return (
            self._guardian is not None
            and self.pid is not None
            and self._request({"do": "poll"})["code"] is None
        )

    def close(self) -> None:
        """Kills the server and removes its folder. May be called twice."""
        if self._guardian is not None:
            process, self._guardian = self._guardian, None
            assert process.stdin is not None and process.stdout is not None
            process.stdin.close()
            process.wait(_STOP_TIMEOUT_S)
            process.stdout.close()

    def log_tail(self, lines: int = 12) -> str:
        """Returns the last errors in the server's own log, or its last lines if it has no errors."""
        with contextlib.suppress(OSError):
            log = self.log_path.read_text(errors="replace").splitlines()
            return " / ".join([line for line in log if "[ERROR]" in line][-lines:] or log[-lines:])
        return "(no log)"

    def _request(self, request: dict[str, Any]) -> dict[str, Any]:
        """Sends a command to the guardian and returns its answer. Raises `ServerFailed` if the answer is an
        error."""
        with self._guardian_lock:
            if self._guardian is None or self._guardian.stdin is None:
                raise InternalError(f"This private {self.kind} is closed.")
            with contextlib.suppress(BrokenPipeError):
                self._guardian.stdin.write(json.dumps(request).encode() + b"\n")
                self._guardian.stdin.flush()
            reply = self._read_reply()
        if "error" in reply:
            raise ServerFailed(f"The private {self.kind}: {reply['error']}.")
        return reply

    def _read_reply(self) -> dict[str, Any]:
        assert self._guardian is not None and self._guardian.stdout is not None
        line = self._guardian.stdout.readline()
        if not line:
            raise ServerFailed(f"The guardian of the private {self.kind} has ended.")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
