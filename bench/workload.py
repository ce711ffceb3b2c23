"""What a workload is: tables, and the changes of theirs that the log holds.

Everybody reads the same log: a workload's changes of the tables of `bench`, from their creation on, then a
tail. The tail is rows of another table. Whoever reads the log stops at its first event, well before the end,
so that nobody waits for a buffer to fill.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from penstock.testing.servers import MySqlServer

DATABASE = "bench"
TABLE = "orders"
"""The table of the workload `orders`, and of whatever reads tables rather than the log."""
TAIL_TABLE = "tail"
_TAIL_ROWS = 20_000
_TAIL_TRANSACTION_ROWS = 100

PEER_USER = "peer"
PEER_PASSWORD = "peer"
"""With mysql_native_password and no TLS: what every peer can do."""
PEER_ACCOUNT = (
    f"CREATE USER '{PEER_USER}'@'%' IDENTIFIED WITH mysql_native_password BY '{PEER_PASSWORD}'",
    f"GRANT ALL ON *.* TO '{PEER_USER}'@'%'",
)


@dataclass(frozen=True)
class Counts:
    """What the log holds for the workload's tables. No key comes back once its row is deleted."""

    inserts: int
    updates: int
    deletes: int

    @property
    def changes(self) -> int:
        return self.inserts + self.updates + self.deletes

    @property
    def rows_left(self) -> int:
        return self.inserts - self.deletes


class Workload(ABC):
    """`scale` is a number above 0; 1 is the full size, at most about 330 MB of log."""

    name: str
    about: str
    """Half a sentence: what its changes are."""
    one_log_file: bool = True
    """Readers of the log that know only one file can read it."""
    version: int = 1
    """Part of the name of the cached log: raise it when what is logged changes."""

    @abstractmethod
    def definitions(self, scale: float) -> Iterable[str]:
        """What makes the tables (and procedures), in the database made for them. Not in the log."""

    @abstractmethod
    def write(self, server: MySqlServer, scale: float) -> Counts:
        """Runs the changes; says what the server said they were."""

    @abstractmethod
    def compared(self, scale: float) -> dict[str, Sequence[str]]:
        """All tables, each with the columns by which a target is compared with it: SQL expressions whose
        text MySQL and Spark print alike."""


def prepare(server: MySqlServer, workload: Workload, scale: float) -> None:
    """Tables and users; the source then forgets the log of that, as one with a long life has."""
    server.execute(
        f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4",
        *workload.definitions(scale),
        f"CREATE TABLE {DATABASE}.{TAIL_TABLE} (id INT NOT NULL PRIMARY KEY, note VARCHAR(40) NOT NULL)",
        *PEER_ACCOUNT,
        "FLUSH BINARY LOGS",
    )
    file, _ = server.position()
    server.execute(f"PURGE BINARY LOGS TO '{file}'")


def run(server: MySqlServer, statements: Sequence[str], *, connections: int = 2) -> int:
    """Runs statements over several connections, each a transaction; how many rows they changed."""

    def share(number: int) -> int:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00'")
            return sum(cursor.execute(statement) for statement in statements[number::connections])

    with ThreadPoolExecutor(connections) as pool:
        return sum(pool.map(share, range(connections)))


def write_tail(server: MySqlServer) -> None:
    with server.connect(database=DATABASE) as connection, connection.cursor() as cursor:
        for low in range(0, _TAIL_ROWS, _TAIL_TRANSACTION_ROWS):
            values = ", ".join(f"({number}, 'tail')" for number in range(low, low + _TAIL_TRANSACTION_ROWS))
            cursor.execute(f"INSERT INTO {TAIL_TABLE} VALUES {values}")


def thousands(scale: float, at_full_size: int) -> int:
    """A number of rows, a multiple of 1,000."""
    return max(1, round(at_full_size * scale / 1000)) * 1000
