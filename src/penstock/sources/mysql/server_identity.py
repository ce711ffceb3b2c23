"""Properties of a source, read when a receiver connects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pymysql

from penstock._core import GtidSet
from penstock.errors import ConfigError
from penstock.sources.mysql.connection import query, query_named
from penstock.sources.mysql.dialect import Dialect
from penstock.sources.mysql.faults import is_refusal

_DENIED = (1045, 1142, 1227)


@dataclass(frozen=True)
class Server:
    uuid: str
    """`Dialect.identity`."""
    server_id: int
    version: str
    dialect: Dialect
    has_gtids: bool
    executed: GtidSet
    purged: GtidSet
    files: tuple[tuple[str, int], ...]
    """Binlog files and sizes, oldest first; empty if the account may not see them."""
    prepared: bool
    """Whether it has prepared XA transactions. False also if the account may not see them."""
    applies: bool
    """Whether it is a replica whose applier runs. Then transactions that it lacks may still arrive."""
    last_of_server: dict[tuple[int, int], int]
    """MariaDB: the last transaction number of each server in each domain, as far as this server logged it."""

    def lacks(self, gtids: GtidSet) -> GtidSet:
        """The transactions in `gtids` that this server has never had.

        In MariaDB, one server after the other assigns the numbers of a domain. A server that continued
        without the last transactions soon has others with the same numbers. So the server that assigned a
        number counts, too.
        """
        if not self.dialect.mariadb:
            return gtids.difference(self.executed)
        unknown = []
        for text in str(gtids).split(",") if gtids else ():
            domain, server, number = (int(part) for part in text.split("-"))
            if self.last_of_server.get((domain, server), 0) < number:
                unknown.append(text)
        return GtidSet(",".join(unknown))


def describe(connection: Any) -> Server:
    """Asks a source for its properties. Raises `ConfigError` if it writes no binary log, or a log without
    what it applies as a replica."""
    dialect = Dialect.detect(connection)
    # GLOBAL is needed: in 5.7, the session's gtid_executed is another variable.
    mode, gtids = "@@GLOBAL.gtid_mode", "@@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged"
    if dialect.mariadb:
        mode, gtids = "'ON'", "@@GLOBAL.gtid_binlog_pos, @@GLOBAL.gtid_binlog_state"
    updates = dialect.logs_replicated
    row = query(
        connection,
        f"SELECT {dialect.identity}, @@server_id, @@version, @@log_bin, {mode}, {gtids}, @@{updates}",
    )[0]
    if not row[3]:
        raise ConfigError(
            "The source writes no binary log (log_bin is OFF).", hint="Start it with --log-bin."
        )
    replicates = _replicates(connection, dialect)
    if replicates and not int(row[7]):
        raise ConfigError(
            f"The source is a replica with {updates} = OFF: what it applies is not in its own log.",
            hint=f"Add {updates} = ON to its option file, under [mysqld], and restart it, or follow its "
            "source instead.",
        )
    files = _files(connection)
    if dialect.mariadb:
        purged, last = GtidSet(_before(connection, files)), _last_of_server(row[6])
    else:
        purged, last = GtidSet(row[6]), {}
    return Server(
        uuid=str(row[0]),
        server_id=row[1],
        version=row[2],
        dialect=dialect,
        has_gtids=str(row[4]).upper() == "ON",
        executed=GtidSet(row[5]),
        purged=purged,
        files=files,
        prepared=_has_prepared(connection),
        applies="Yes" in replicates,
        last_of_server=last,
    )


def _replicates(connection: Any, dialect: Dialect) -> list[str]:
    """For each server that it replicates from, whether the applier runs. Empty also if the account may not
    see that."""
    try:
        rows = query_named(connection, dialect.replica_status)
    except pymysql.Error as error:
        if not is_refusal(error):
            raise
        return []
    return [str(row.get("Slave_SQL_Running") or row.get("Replica_SQL_Running")) for row in rows]


def _has_prepared(connection: Any) -> bool:
    try:
        return bool(query(connection, "XA RECOVER"))
    except pymysql.Error as error:
        if not is_refusal(
            error
        ):  # MySQL 8.0 requires XA_RECOVER_ADMIN for this, which the account need not have
            raise
        return False


def _files(connection: Any) -> tuple[tuple[str, int], ...]:
    try:
        rows = query_named(connection, "SHOW BINARY LOGS")
    except Exception as error:
        if (
            getattr(error, "args", (0,))[0] in _DENIED
        ):  # without REPLICATION CLIENT; it is not needed with GTIDs
            return ()
        raise
    return tuple((row["Log_name"], int(row["File_size"])) for row in rows)


def _before(connection: Any, files: tuple[tuple[str, int], ...]) -> str:
    """The transactions that MariaDB had executed before its oldest file, as listed at the beginning of that
    file."""
    if not files:
        return ""
    return str(query(connection, "SELECT BINLOG_GTID_POS(%s, 4)", (files[0][0],))[0][0] or "")


def _last_of_server(state: str) -> dict[tuple[int, int], int]:
    parts = [part.split("-") for part in state.split(",") if part.strip()]
    return {(int(domain), int(server)): int(number) for domain, server, number in parts}
