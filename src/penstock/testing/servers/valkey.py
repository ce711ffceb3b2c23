"""Private Valkey servers, which speak the protocol of Redis, from Debian's packages."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from penstock.testing import artifacts, debian
from penstock.testing.servers.process import PrivateServer


class ValkeyServer(PrivateServer):
    """One server, with the password `penstock`. It keeps its data over `stop`, `kill9` and `start`, because
    it syncs each write. `options`: of `valkey.conf`."""

    kind = "valkey"
    release: ClassVar[str] = "valkey-sid"
    password = "penstock"

    def __init__(self, options: Mapping[str, str] | None = None, *, folder: Path | None = None) -> None:
        artifacts.entry(self.release, self._unpack)
        super().__init__(folder=folder)
        self.options = dict(options or {})
        try:
            (self.folder / "data").mkdir()
            self.start()
        except BaseException:
            self.close()
            raise

    @classmethod
    def _unpack(cls, target: Path) -> None:
        debian.unpack_packages(["valkey-server"], target, suite="sid")

    @property
    def url(self) -> str:
        return f"redis://{self.host}:{self.port}/0"

    def command(self) -> tuple[list[str], dict[str, str]]:
        options = {
            "bind": self.host,
            "port": str(self.port),
            "dir": str(self.folder / "data"),
            "requirepass": self.password,
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            "daemonize": "no",
            **self.options,
        }
        argv = debian.program(artifacts.cache_root() / self.release, "usr/bin/valkey-server")
        for name, value in options.items():
            argv += [f"--{name}", value]
        return argv, {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}

    def ready(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), 5) as connection:
            connection.sendall(f"AUTH {self.password}\r\nPING\r\n".encode())
            return b"+PONG" in connection.recv(100)
        return False
