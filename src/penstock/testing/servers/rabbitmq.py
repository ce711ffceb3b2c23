"""Private servers of RabbitMQ with the plug-in for streams, from Debian's packages.

Erlang's machine is started by the loader among the unpacked files, without the scripts around it. It starts
helpers by itself: in their place are scripts that do the same. The server registers at `epmd`, which is
a process of its own.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import ClassVar

from penstock.testing import artifacts, debian
from penstock.testing.servers.process import PrivateServer, free_port

_HELPERS = ("erl_child_setup", "inet_gethost")


def _erts(root: Path) -> Path:
    return next(root.glob("usr/lib/erlang/erts-*"))


def _program(root: Path, name: str) -> list[str]:
    return debian.program(root, str((_erts(root) / "bin" / name).relative_to(root)))


class _PortMapper(PrivateServer):
    """Erlang's `epmd`."""

    kind = "epmd"

    def __init__(self, root: Path, folder: Path | None) -> None:
        super().__init__(folder=folder)
        self._root = root
        self.start()

    def command(self) -> tuple[list[str], dict[str, str]]:
        argv = [*_program(self._root, "epmd"), "-port", str(self.port), "-address", self.host]
        return argv, {"PATH": os.defpath, "LC_ALL": "C"}

    def ready(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), 5):
            return True
        return False


class RabbitMqServer(PrivateServer):
    """One server, with the account `penstock` and the password `penstock`. It keeps its data over `stop`,
    `kill9` and `start`. `configuration`: further lines of `rabbitmq.conf`."""

    kind = "rabbitmq"
    suite: ClassVar[str] = "sid"
    user = password = "penstock"

    def __init__(self, configuration: str = "", *, folder: Path | None = None) -> None:
        self._root = artifacts.entry(f"rabbitmq-{self.suite}", self._unpack)
        super().__init__(folder=folder)
        self._amqp_port = free_port()
        self._erlang_port = free_port()
        self._mapper: _PortMapper | None = None
        try:
            self._mapper = _PortMapper(self._root, folder)
            self._write_files(configuration)
            self.start()
        except BaseException:
            self.close()
            raise

    @classmethod
    def _unpack(cls, target: Path) -> None:
        debian.unpack_packages(["rabbitmq-server"], target, suite=cls.suite)

    @property
    def url(self) -> str:
        return f"rabbitmq-stream://{self.host}:{self.port}"

    @property
    def amqp_url(self) -> str:
        """Where the same server speaks AMQP."""
        return f"rabbitmq-stream://{self.host}:{self._amqp_port}"

    def _write_files(self, configuration: str) -> None:
        binaries = self.folder / "bin"
        binaries.mkdir()
        for name in _HELPERS:
            (binaries / name).write_text(f'#!/bin/sh\nexec {" ".join(_program(self._root, name))} "$@"\n')
        (binaries / "erl").write_text("#!/bin/sh\n")  # called only to have `epmd` started
        for file in binaries.iterdir():
            file.chmod(0o755)
        lines = [
            f"listeners.tcp.1 = {self.host}:{self._amqp_port}",
            f"stream.listeners.tcp.1 = {self.host}:{self.port}",
            f"stream.advertised_host = {self.host}",
            f"stream.advertised_port = {self.port}",
            f"default_user = {self.user}",
            f"default_pass = {self.password}",
            configuration,
        ]
        (self.folder / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
        (self.folder / "enabled_plugins").write_text("[rabbitmq_stream].\n")

    def command(self) -> tuple[list[str], dict[str, str]]:
        assert self._mapper is not None
        home = next(self._root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*"))
        erlang, binaries = self._root / "usr/lib/erlang", str(self.folder / "bin")
        argv = [
            *_program(self._root, "beam.smp"), "-W", "w", "--", "-root", str(erlang), "-bindir", binaries,
            "-progname", "erl", "--", "-home", str(self.folder), "--", "-noshell", "-noinput",
            "-boot", str(erlang / "bin/start_sasl"), "-s", "rabbit", "boot",
            "-epmd_port", str(self._mapper.port), "-kernel", "inet_dist_use_interface", "{127,0,0,1}",
        ]  # fmt: skip
        environment = {
            "PATH": os.defpath, "LC_ALL": "C.UTF-8", "TZ": "UTC", "HOME": str(self.folder), "EMU": "beam",
            "PROGNAME": "erl", "BINDIR": binaries, "ROOTDIR": str(erlang), "ERL_LIBS": str(home / "plugins"),
            "ERL_EPMD_PORT": str(self._mapper.port), "RABBITMQ_HOME": str(home), "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"), "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RABBITMQ_PLUGINS_DIR": str(home / "plugins"), "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"), "RABBITMQ_NODENAME": "rabbit@localhost",
            "RABBITMQ_DIST_PORT": str(self._erlang_port),
        }  # fmt: skip
        return argv, environment

    def ready(self) -> bool:
        """Whether the server answers. It listens for AMQP last."""
        address = self.host, self._amqp_port
        with contextlib.suppress(OSError), socket.create_connection(address, 5):
            return True
        return False

    def close(self) -> None:
        super().close()
        mapper, self._mapper = self._mapper, None
        if mapper is not None:
            mapper.close()


class RabbitMq310Server(RabbitMqServer):
    """The release of Debian 12."""

    suite: ClassVar[str] = "bookworm"
