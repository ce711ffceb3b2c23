"""The benchmark's table: `bench.orders`, 15 columns of mixed types, and the log that making it leaves behind.

At scale 1: 600,000 inserts and 300,000 updates and 60,000 deletes, in transactions of 100 rows: 960,000
changes, 1.26 million row images, about 300 MB of log; 540,000 rows remain. Made inside the server, from the
row number alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from penstock.testing.servers import MySqlClient
from penstock.testing.workload import numbers

_TRANSACTION_ROWS = 100

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
"""The values of the row `n`."""

CHANGE = (
    "status = status % 5 + 1, amount = amount + 0.0001, priority = 255 - priority, "
    "updated_at = '2024-12-31 23:59:59.999'"
)
"""What an update sets; every row differs afterwards."""


@dataclass(frozen=True)
class Orders:
    """How much of each there is, at `scale` (a multiple of 1/600)."""

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
        """What is left in the table."""
        return self.inserts - self.deletes


def write(server: MySqlClient, orders: Orders, *, connections: int = 2) -> None:
    """Makes `bench.orders` with its inserts, then its updates, then its deletes, over several connections."""
    create(server)
    change(server, orders, connections=connections)


def create(server: MySqlClient) -> None:
    """The empty table, in a database made anew."""
    server.execute("DROP DATABASE IF EXISTS bench", "CREATE DATABASE bench CHARACTER SET utf8mb4", TABLE)


def change(server: MySqlClient, orders: Orders, *, connections: int = 2) -> None:
    """The inserts, then the updates, then the deletes."""
    for statements in (list(_inserts(orders)), list(_updates(orders)), list(_deletes(orders))):
        with ThreadPoolExecutor(connections) as pool:
            shares = [statements[share::connections] for share in range(connections)]
            for _ in pool.map(lambda share: server.execute("SET time_zone = '+00:00'", *share), shares):
                pass


def insert(rows: int, first: int) -> str:
    """One statement that inserts `rows` (≤ 100,000) of them, their ids in order from `first` on."""
    return f"INSERT INTO bench.orders SELECT {ROW} FROM {numbers(rows, first)}"


def _inserts(orders: Orders) -> Iterator[str]:
    for first in range(1, orders.inserts + 1, _TRANSACTION_ROWS):
        yield insert(_TRANSACTION_ROWS, first)


def _updates(orders: Orders) -> Iterator[str]:
    """Each row of every second hundred once."""
    for first in range(1, orders.inserts + 1, 2 * _TRANSACTION_ROWS):
        yield (
            f"UPDATE bench.orders SET {CHANGE} WHERE id BETWEEN {first} AND {first + _TRANSACTION_ROWS - 1}"
        )


def _deletes(orders: Orders) -> Iterator[str]:
    """Every tenth hundred."""
    for first in range(1, orders.inserts + 1, 10 * _TRANSACTION_ROWS):
        yield f"DELETE FROM bench.orders WHERE id BETWEEN {first} AND {first + _TRANSACTION_ROWS - 1}"
