"""Private hot standbys of private PostgreSQL servers."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path

import psycopg

from penstock.testing.servers.postgresql import PostgreSqlServer
from penstock.testing.servers.process import PrivateServer

_OF_THE_RUNNING = ("pg_replslot", "pg_stat_tmp", "pg_notify", "pg_subtrans", "pg_dynshmem")
"""Folders whose content is of the running server alone."""


class PostgreSqlStandby(PostgreSqlServer):
    """A hot standby that begins with a copy of the running primary's data. `settings`: besides those of the
    primary. If it is stopped for long, it needs the primary's `wal_keep_size`."""

    def __init__(self, primary: PostgreSqlServer, *, settings: Mapping[str, str] | None = None) -> None:
        self.version = primary.version
        self._settings = {**primary._settings, **(settings or {})}
        PrivateServer.__init__(self)
        try:
            _copy(primary, self.folder / "data")
            self.follow(primary)
            self.start()
        except BaseException:
            self.close()
            raise

    def follow(self, primary: PostgreSqlServer) -> None:
        """From its next start on."""
        (self.folder / "data" / "standby.signal").touch()
        self._settings["primary_conninfo"] = (
            f"host={primary.host} port={primary.port} user={primary.user} password={primary.password} "
            f"dbname={primary.database}"
        )


def _copy(server: PostgreSqlServer, folder: Path) -> None:
    """A copy of the data, from which the server can be recovered."""
    begin, end = "pg_backup_start('copy', true)", "pg_backup_stop(false)"
    if server.version < 15:
        begin, end = "pg_start_backup('copy', true, false)", "pg_stop_backup(false, false)"
    with psycopg.connect(
        host=server.host, port=server.port, dbname=server.database, user=server.user,
        password=server.password, autocommit=True,
    ) as sql:  # fmt: skip
        sql.execute(f"SELECT {begin}".encode())
        shutil.copytree(server.folder / "data", folder, ignore=_passing, copy_function=_copy_present)
        row = sql.execute(f"SELECT labelfile FROM {end}".encode()).fetchone()
    assert row is not None
    (folder / "backup_label").write_text(row[0])
    folder.chmod(0o700)


def _passing(folder: str, names: list[str]) -> list[str]:
    if Path(folder).name in _OF_THE_RUNNING:
        return names
    return [name for name in names if name in ("postmaster.pid", "postmaster.opts")]


def _copy_present(source: str, target: str) -> None:
    """The server removes files while they are copied. Its log says so."""
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(source, target)
