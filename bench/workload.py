"""The log that everybody reads: the changes of `bench.orders` (see `penstock.testing.orders`), then a tail.

The tail is rows of another table. Whoever reads the log stops at its first event, well before the end, so
that nobody waits for a buffer to fill.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.testing import orders
from penstock.testing.servers import MySqlServer

WORKLOAD_VERSION = 2
"""Part of the name of the cached log: raise it when what is logged changes."""

DATABASE = "bench"
TABLE = "orders"
TAIL_TABLE = "tail"
JSON_COLUMN = 13
"""Number of the JSON column, counted from 0."""
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
    """What the log holds for `bench.orders`."""

    inserts: int
    updates: int
    deletes: int

    @property
    def changes(self) -> int:
        return self.inserts + self.updates + self.deletes

    @property
    def rows_left(self) -> int:
        return self.inserts - self.deletes


def counts_at(scale: float) -> Counts:
    amount = orders.Orders(scale)
    return Counts(inserts=amount.inserts, updates=amount.updates, deletes=amount.deletes)


def prepare(server: MySqlServer) -> None:
    """Tables and users; the source then forgets the log of that, as one with a long life has."""
    orders.create(server)
    server.execute(
        f"CREATE TABLE {DATABASE}.{TAIL_TABLE} (id INT NOT NULL PRIMARY KEY, note VARCHAR(40) NOT NULL)",
        *PEER_ACCOUNT,
        "FLUSH BINARY LOGS",
    )
    file, _ = server.position()
    server.execute(f"PURGE BINARY LOGS TO '{file}'")


def write(server: MySqlServer, scale: float) -> Counts:
    """Runs the changes, then the tail; says what the log now holds."""
    orders.change(server, orders.Orders(scale))
    with server.connect(database=DATABASE) as connection, connection.cursor() as cursor:
        for low in range(0, _TAIL_ROWS, _TAIL_TRANSACTION_ROWS):
            values = ", ".join(f"({number}, 'tail')" for number in range(low, low + _TAIL_TRANSACTION_ROWS))
            cursor.execute(f"INSERT INTO {TAIL_TABLE} VALUES {values}")
    return counts_at(scale)
