"""Base class of private database servers: a data directory copied from a template, options, a free port."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pymysql

from penstock.errors import TransientError
from penstock.testing import artifacts
from penstock.testing.servers.client import MySqlClient
from penstock.testing.servers.process import PrivateServer, ServerFailed, free_port

_NOBODY_YET = (2003, 2013)
"""Client errors while a server starts: nobody listens, or the listener is still closing."""


THROW_AWAY: Mapping[str, Any] = {
    "server_id": 1,
    "log_bin": "binlog",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "local_infile": "ON",
    "secure_file_priv": "",
    "skip_name_resolve": True,
    "max_connections": 200,
    # For speed, not for safety: these servers are thrown away. A crash test sets the first two to 1.
    "innodb_flush_log_at_trx_commit": 0,
    "sync_binlog": 0,
    "innodb_doublewrite": "OFF",
    "innodb_buffer_pool_size": "128M",
    "performance_schema": "OFF",  # takes a third of the time of a start
}
"""Options with which every server starts, besides its own."""


class DatabaseServer(PrivateServer, MySqlClient):
    """A private server. `options` are named as in my.cnf: a value, True for an option without a value, None
    to leave the option out.

    A subclass is one release of one product. It defines where its files come from (`unpack`), how a data
    directory is created (`initialise`) and how the server is run (`program`, `environment`).
    """

    release: ClassVar[str]
    """Product and version. The name of the release's folder in the cache begins with it."""
    files: ClassVar[int] = 1
    """Version of the files that `unpack` creates. Increase it when that changes, for example with the
    artifact. Later versions than the first are part of the folder's name."""
    layout: ClassVar[int] = 1
    """Version of the data directory that `initialise` creates. Increase it when that changes."""
    PASSWORD: ClassVar[str] = "penstock"
    tls = False
    DEFAULTS: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, options: Mapping[str, Any] | None = None, *, folder: Path | None = None) -> None:
        """Starts the server. `folder`: parent of the server's own folder; default: the cache."""
        self.user = "root"
        self.password = self.PASSWORD
        template = self.prepare()
        self.options = _normalised(self.DEFAULTS) | _normalised(options or {})
        super().__init__(folder=folder)
        try:
            shutil.copytree(template, self.datadir, copy_function=_copy_sparse)
            # Each server needs its own: a server that starts removes all temporary tables in its folder.
            (self.folder / "tmp").mkdir()
            self._start_on_free_port()
        except BaseException:
            self.close()
            raise

    # Defined by subclasses

    @classmethod
    def unpack(cls, target: Path) -> None:
        """Fills the cache folder of the release with the server's files."""
        raise NotImplementedError

    @classmethod
    def initialise(cls, target: Path) -> None:
        """Creates a data directory with the administrator's account and without a server UUID."""
        raise NotImplementedError

    @classmethod
    def program(cls) -> list[str]:
        """Returns the server's path and the arguments of every start."""
        raise NotImplementedError

    @classmethod
    def environment(cls) -> dict[str, str]:
        return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}

    # Life cycle

    @classmethod
    def home(cls) -> Path:
        """Returns the cache folder of the release."""
        return artifacts.cache_root() / cls._entry()

    @classmethod
    def _entry(cls) -> str:
        return cls.release if cls.files == 1 else f"{cls.release}-files-{cls.files}"

    @classmethod
    def prepare(cls) -> Path:
        """Downloads the server and creates a data directory as a template, once. Returns the template."""
        artifacts.entry(cls._entry(), cls.unpack)
        return artifacts.entry(f"{cls._entry()}-data-{cls.layout}", cls.initialise)

    @property
    def datadir(self) -> Path:
        return self.folder / "data"

    def start(self, options: Mapping[str, Any] | None = None) -> None:
        """Starts the server with the same data and port as before. `options` change those of the earlier
        start."""
        self.options |= _normalised(options or {})
        super().start()

    def restart(self, options: Mapping[str, Any] | None = None) -> None:
        self.stop()
        self.start(options)

    def binlog_files(self) -> list[Path]:
        """Returns the binary log files on disk, oldest first. Works while the server is down."""
        index = self.datadir / f"{self.options['log_bin']}.index"
        return [(self.datadir / name).resolve() for name in index.read_text().split()]

    def command(self) -> tuple[list[str], dict[str, str]]:
        options = {"port": self.port, "bind_address": "127.0.0.1", "datadir": self.datadir,
                   "tmpdir": self.folder / "tmp", **self.options}  # fmt: skip
        return [*self.program(), *_arguments(options)], self.environment()

    def ready(self) -> bool:
        try:
            self.connect(connect_timeout=5, read_timeout=5).close()
        except pymysql.err.OperationalError as error:
            if error.args[0] in _NOBODY_YET:
                return False
            raise
        return True

    def _start_on_free_port(self) -> None:
        for _ in range(5):
            try:
                return self.start()
            except ServerFailed as error:
                if "Bind on TCP/IP port" not in error.message:
                    raise
                self.port = free_port()
        raise TransientError(f"No free port was found for a private {self.kind}.")


_BLOCK_BYTES = 1 << 16
"""Bytes of the smallest hole: several pages of the file system."""


def _copy_sparse(source: str, target: str) -> None:
    """Copies a file, and leaves holes in place of zeros. Three quarters of a new data directory are zeros,
    mostly in the redo log."""
    zeros = bytes(_BLOCK_BYTES)
    with open(source, "rb", buffering=0) as old, open(target, "wb", buffering=0) as new:
        while block := old.read(_BLOCK_BYTES):
            if block == zeros:
                new.seek(len(block), os.SEEK_CUR)
            else:
                new.write(block)
        new.truncate()
    shutil.copymode(source, target)


def run_as() -> list[str]:
    """Returns the option without which a server refuses to run as root; empty for other accounts."""
    return ["--user=root"] if os.geteuid() == 0 else []


def _normalised(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name.lstrip("-").replace("-", "_"): value for name, value in options.items()}


def _arguments(options: Mapping[str, Any]) -> list[str]:
    given = {name.replace("_", "-"): value for name, value in options.items() if value is not None}
    return [f"--{name}" if value is True else f"--{name}={value}" for name, value in given.items()]
