"""Private NATS servers with JetStream, from Debian's packages."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import ClassVar

from penstock.testing import artifacts, debian
from penstock.testing.servers.process import PrivateServer


class NatsServer(PrivateServer):
    """One server, with the account `penstock` and the password `penstock`, unless `configuration` has a
    section `authorization`. It keeps its data over `stop`, `kill9` and `start`. `configuration`: further
    lines of its file."""

    kind = "nats"
    suite: ClassVar[str] = "sid"
    user = password = "penstock"

    def __init__(self, configuration: str = "", *, folder: Path | None = None) -> None:
        artifacts.entry(self.release(), self._unpack)
        super().__init__(folder=folder)
        self.configuration = configuration
        try:
            (self.folder / "data").mkdir()
            self.start()
        except BaseException:
            self.close()
            raise

    @classmethod
    def release(cls) -> str:
        return f"nats-{cls.suite}"

    @classmethod
    def _unpack(cls, target: Path) -> None:
        debian.unpack_packages(["nats-server"], target, suite=cls.suite)

    @property
    def url(self) -> str:
        return f"nats://{self.host}:{self.port}"

    def start(self) -> None:
        lines = [f"host: {self.host}", f"port: {self.port}"]
        if "jetstream" not in self.configuration:
            lines.append(f'jetstream: {{store_dir: "{self.folder}/data", max_file_store: 4GB}}')
        if "authorization" not in self.configuration:
            lines.append(f"authorization: {{user: {self.user}, password: {self.password}}}")
        (self.folder / "server.conf").write_text("\n".join([*lines, self.configuration, ""]))
        super().start()

    def command(self) -> tuple[list[str], dict[str, str]]:
        argv = debian.program(artifacts.cache_root() / self.release(), "usr/sbin/nats-server")
        argv += ["--config", str(self.folder / "server.conf")]
        return argv, {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}

    def ready(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), 5) as connection:
            return connection.recv(5) == b"INFO "
        return False


class Nats29Server(NatsServer):
    """The release of Debian 12."""

    suite: ClassVar[str] = "bookworm"
