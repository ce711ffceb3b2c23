"""The log that everybody reads: `bench.orders`, 15 columns of mixed types, changed in 100-row transactions.

At scale 1 that is 600,000 inserts, 299,999 updates and 59,999 deletes: 959,998 changes, 1.26 million row images,
540,001 rows left. The values are computed inside the server from the row's number, so that every build of the
log holds the same rows. After the changes comes a tail of 20,000 rows of another table: whoever reads the log
stops at its first event, well before the end, so that nobody waits for a buffer to fill.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.testing.servers import MySqlServer

WORKLOAD_VERSION = 1
"""Part of the name of the cached log: raise it when anything below changes what is logged."""

DATABASE = "bench"
TABLE = "orders"
TAIL_TABLE = "tail"
ROWS_FULL_SCALE = 600_000
TRANSACTION_ROWS = 100
TAIL_ROWS = 20_000

PEER_USER = "peer"
PEER_PASSWORD = "peer"
"""With mysql_native_password and no TLS: what every peer can do."""

CREATE_ORDERS = f"""
CREATE TABLE {DATABASE}.{TABLE} (
  id BIGINT NOT NULL PRIMARY KEY,
  customer_id INT UNSIGNED NOT NULL,
  status ENUM('new','paid','packed','shipped','delivered','returned') NOT NULL,
  priority TINYINT NOT NULL,
  quantity SMALLINT UNSIGNED NOT NULL,
  price DECIMAL(12,2) NOT NULL,
  weight DOUBLE,
  discount FLOAT,
  code CHAR(16) CHARACTER SET ascii NOT NULL,
  note VARCHAR(200),
  attributes JSON,
  token VARBINARY(32),
  due DATE,
  created DATETIME(6) NOT NULL,
  updated TIMESTAMP(3) NOT NULL DEFAULT '2024-01-01 00:00:00'
) DEFAULT CHARSET=utf8mb4
"""

_ROW = """
SELECT i.id, CRC32(i.id) % 100000, 1 + i.id % 6, i.id % 100 - 50, i.id % 1000,
  (CRC32(i.id) % 100000000) / 100, IF(i.id % 13 = 0, NULL, i.id / 7), (i.id % 100) / 100,
  UPPER(LEFT(MD5(i.id), 16)), IF(i.id % 11 = 0, NULL, CONCAT('order ', i.id, ' – ', SHA1(i.id), ' ', MD5(i.id))),
  JSON_OBJECT('source', ELT(1 + i.id % 3, 'web', 'app', 'shop'), 'lines', i.id % 9,
              'weights', JSON_ARRAY(i.id % 7, i.id / 4), 'gift', i.id % 2 = 0),
  UNHEX(LEFT(SHA1(i.id), 24)), DATE_ADD('2024-01-01', INTERVAL i.id % 700 DAY),
  DATE_ADD('2024-01-01', INTERVAL i.id * 1000003 MICROSECOND),
  DATE_ADD('2024-06-01', INTERVAL i.id SECOND)
"""


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


def rows_at(scale: float) -> int:
    """Rows inserted at a scale: whole thousands, at least 2,000, so that the statements below divide evenly."""
    return max(2_000, round(ROWS_FULL_SCALE * scale / 1000) * 1000)


def counts_at(scale: float) -> Counts:
    rows = rows_at(scale)
    return Counts(inserts=rows, updates=rows // 2 - 1, deletes=rows // 10 - 1)


def prepare(server: MySqlServer) -> None:
    """Tables and users; the source then forgets the log of that, as one with a long life has."""
    server.execute(
        f"CREATE DATABASE {DATABASE}",
        CREATE_ORDERS,
        f"CREATE TABLE {DATABASE}.{TAIL_TABLE} (id INT NOT NULL PRIMARY KEY, note VARCHAR(40) NOT NULL)",
        f"CREATE USER '{PEER_USER}'@'%' IDENTIFIED WITH mysql_native_password BY '{PEER_PASSWORD}'",
        f"GRANT ALL ON *.* TO '{PEER_USER}'@'%'",
        "FLUSH BINARY LOGS",
    )
    file, _ = server.position()
    server.execute(f"PURGE BINARY LOGS TO '{file}'")


def write(server: MySqlServer, scale: float) -> Counts:
    """Runs the changes; each statement is one transaction of 100 rows of `bench.orders`."""
    rows = rows_at(scale)
    orders = f"{DATABASE}.{TABLE}"
    with server.connect(database=DATABASE) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute("CREATE TEMPORARY TABLE hundred (n INT PRIMARY KEY)")
        cursor.executemany("INSERT INTO hundred VALUES (%s)", [(n,) for n in range(TRANSACTION_ROWS)])
        for low in range(1, rows, TRANSACTION_ROWS):
            cursor.execute(f"INSERT INTO {orders} {_ROW} FROM (SELECT n + {low} AS id FROM hundred) i ORDER BY id")
        for low in range(1, rows, 2 * TRANSACTION_ROWS):
            high = min(low + 2 * TRANSACTION_ROWS, rows)
            cursor.execute(
                f"UPDATE {orders} SET status = 'shipped', quantity = quantity + 1, price = price + 1.25, "
                "updated = DATE_ADD('2024-09-01', INTERVAL id SECOND) "
                f"WHERE id >= {low} AND id < {high} AND id % 2 = 0"
            )
        for low in range(1, rows, 10 * TRANSACTION_ROWS):
            high = min(low + 10 * TRANSACTION_ROWS, rows)
            cursor.execute(f"DELETE FROM {orders} WHERE id >= {low} AND id < {high} AND id % 10 = 0")
        for low in range(0, TAIL_ROWS, TRANSACTION_ROWS):
            cursor.execute(
                f"INSERT INTO {DATABASE}.{TAIL_TABLE} SELECT n + {low}, CONCAT('tail ', n) FROM hundred"
            )
    return counts_at(scale)
