"""Differences between MySQL and MariaDB, and between their releases, in statements and properties.

| | MySQL | MariaDB |
|---|---|---|
| identity of a server | `server_uuid` | none: made of server_id, host name and port |
| executed | `gtid_executed`, a set | `gtid_binlog_pos`, the last GTID of each domain |
| stream by GTID | COM_BINLOG_DUMP_GTID with a set | `@slave_connect_state` and COM_BINLOG_DUMP |
| log without GTIDs | `gtid_mode` other than ON | never |
| end of the log | SHOW MASTER STATUS, since 8.2 SHOW BINARY LOG STATUS | SHOW MASTER STATUS |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.sources.mysql.catalog import parse_version
from penstock.sources.mysql.connection import query


@dataclass(frozen=True)
class Dialect:
    version: tuple[int, int, int]
    mariadb: bool

    @classmethod
    def of(cls, version: str) -> Dialect:
        """The dialect of a server with this `@@version`."""
        return cls(parse_version(version), "mariadb" in version.lower())

    @classmethod
    def detect(cls, connection: Any) -> Dialect:
        return cls.of(str(query(connection, "SELECT CAST(@@version AS CHAR)")[0][0]))

    @property
    def name(self) -> str:
        return "MariaDB" if self.mariadb else "MySQL"

    @property
    def identity(self) -> str:
        """An SQL expression that identifies the server. It has the same value in every session."""
        if self.mariadb:
            return "CONCAT('mariadb-', @@GLOBAL.server_id, '-', @@GLOBAL.hostname, '-', @@GLOBAL.port)"
        return "@@GLOBAL.server_uuid"

    @property
    def log_status(self) -> str:
        """MySQL 8.2 added `SHOW BINARY LOG STATUS`, and 8.4 removed `SHOW MASTER STATUS`."""
        new = not self.mariadb and self.version >= (8, 2, 0)
        return "SHOW BINARY LOG STATUS" if new else "SHOW MASTER STATUS"

    @property
    def replicas(self) -> str:
        new = not self.mariadb and self.version >= (8, 0, 22)
        return "SHOW REPLICAS" if new else "SHOW SLAVE HOSTS"

    @property
    def replica_status(self) -> str:
        if self.mariadb:
            return "SHOW ALL SLAVES STATUS"
        return "SHOW REPLICA STATUS" if self.version >= (8, 0, 22) else "SHOW SLAVE STATUS"

    @property
    def logs_replicated(self) -> str:
        """The variable that makes a replica log what it applies."""
        new = not self.mariadb and self.version >= (8, 0, 26)
        return "log_replica_updates" if new else "log_slave_updates"

    @property
    def log_privileges(self) -> tuple[str, str]:
        """The privileges that are needed to be a replica, and to read the end of the log."""
        if self.mariadb and self.version >= (10, 5, 2):
            return "REPLICATION SLAVE", "BINLOG MONITOR"
        return "REPLICATION SLAVE", "REPLICATION CLIENT"
