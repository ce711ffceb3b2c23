"""The benchmark's table `bench.orders`, with 15 columns of mixed types, and the log that filling it produces.

At scale 1: 600,000 inserts, 300,000 updates and 60,000 deletes, in transactions of 100 rows. That is 960,000
changes, 1.26 million row images and about 300 MB of log; 540,000 rows remain. The server computes the rows
from the row number alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from penstock.testing.servers import MySqlClient
from penstock.testing.workload import numbers

_TRANSACTION_ROWS = 100
"""Rows of one INSERT, and so of one transaction."""

TABLE = """CREATE TABLE bench.orders (
  id BIGINT UNSIGNED NOT NULL PRIMARY KEY,
  customer_id INT UNSIGNED NOT NULL,
  status ENUM('new','paid','packed','sent','closed') NOT NULL,
  amount DECIMAL(14,4) NOT NULL,
  weight DOUBLE NULL,
  ratio FLOAT NULL,
  quantity SMALLINT NOT NULL,
  priority TINYINT UNSIGNED NOT NULL,
  created_at DATETIME(6) NOT NULL,
  updated_at TIMESTAMP(3) NULL,
  due DATE NULL,
  name VARCHAR(100) NOT NULL,
  note TEXT NULL,
  attributes JSON NULL,
  token BINARY(16) NOT NULL
) CHARACTER SET utf8mb4"""

ROW = """n, CRC32(n) % 4000000000, n % 5 + 1, CRC32(n) % 1000000000 / 10000,
  (CRC32(n) % 1000000) / 7e3, IF(n % 9 = 0, NULL, (n % 4096) / 64e0), CAST(n % 60000 AS SIGNED) - 30000,
  n % 256, TIMESTAMPADD(MICROSECOND, CRC32(n), TIMESTAMPADD(SECOND, n, '2024-01-01')),
  TIMESTAMPADD(SECOND, n, '2024-06-01'),
  IF(n % 7 = 0, NULL, DATE_ADD('2024-01-01', INTERVAL n % 900 DAY)),
  CONCAT('Customer ', n, ' — ', ELT(n % 4 + 1, 'Müller', '王芳', 'O''Brien', 'Søren 🚢')),
  IF(n % 5 = 0, NULL, CONCAT('Note on order ', n, ': ',
  REPEAT('deliver between nine and noon, ', 1 + n % 3))),
  JSON_OBJECT('source', ELT(n % 3 + 1, 'web', 'app', 'shop'),
  'visits', n % 1000, 'tags', JSON_ARRAY('a', n % 10)),
  UNHEX(MD5(n))"""
"""SQL for the values of row `n`."""

CHANGE = (
    "status = status % 5 + 1, amount = amount + 0.0001, priority = 255 - priority, "
    "updated_at = '2024-12-31 23:59:59.999'"
)
"""SET clause of the updates. It changes every row."""


@dataclass(frozen=True)
class Orders:
    """Numbers of inserts, updates and deletes at `scale`, a multiple of 1/600."""

    scale: float = 1.0

    @property
    def inserts(self) -> int:
        return max(1, round(600 * self.scale)) * 1000

    @property
    def updates(self) -> int:
        return self.inserts // 2

    @property
    def deletes(self) -> int:
        return self.inserts // 10

    @property
    def changes(self) -> int:
        return self.inserts + self.updates + self.deletes

    @property
    def rows(self) -> int:
        """Number of rows that remain in the table."""
        return self.inserts - self.deletes


def write(server: MySqlClient, orders: Orders, *, connections: int = 2) -> None:
    """Creates `bench.orders`, then runs its inserts, updates and deletes over several connections."""
    create(server)
    change(server, orders, connections=connections)


def create(server: MySqlClient) -> None:
    """Drops the database `bench` if it exists, and creates it with the empty table."""
    server.execute("DROP DATABASE IF EXISTS bench", "CREATE DATABASE bench CHARACTER SET utf8mb4", TABLE)


def change(server: MySqlClient, orders: Orders, *, connections: int = 2) -> None:
    """Runs the inserts, then the updates, then the deletes, over several connections."""
    for statements in (list(_inserts(orders)), list(_updates(orders)), list(_deletes(orders))):
        with ThreadPoolExecutor(connections) as pool:
            shares = [statements[share::connections] for share in range(connections)]
            for _ in pool.map(lambda share: server.execute("SET time_zone = '+00:00'", *share), shares):
                pass


def insert(rows: int, first: int) -> str:
    """Returns a statement that inserts `rows` (≤ 100,000) orders with consecutive ids from `first` on."""
    return f"INSERT INTO bench.orders SELECT {ROW} FROM {numbers(rows, first)}"


def _inserts(orders: Orders) -> Iterator[str]:
    for first in range(1, orders.inserts + 1, _TRANSACTION_ROWS):
        yield insert(_TRANSACTION_ROWS, first)


def _updates(orders: Orders) -> Iterator[str]:
    """Yields updates that change each row of every second block of 100 once."""
    for first in range(1, orders.inserts + 1, 2 * _TRANSACTION_ROWS):
        yield (
            f"UPDATE bench.orders SET {CHANGE} WHERE id BETWEEN {first} AND {first + _TRANSACTION_ROWS - 1}"
        )


def _deletes(orders: Orders) -> Iterator[str]:
    """Yields deletes of every tenth block of 100 rows."""
    for first in range(1, orders.inserts + 1, 10 * _TRANSACTION_ROWS):
        yield f"DELETE FROM bench.orders WHERE id BETWEEN {first} AND {first + _TRANSACTION_ROWS - 1}"
