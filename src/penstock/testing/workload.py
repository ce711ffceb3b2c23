"""A shop for the demo, tests and benchmarks: four tables of varied types that load fast. `writer.py` changes
them as real systems do.

The server creates the rows itself (INSERT … SELECT over a table of digits), so loading costs the client
nothing. The rows depend only on the row number, so equal arguments give equal tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from penstock.testing.servers import MySqlClient

TABLES = ("customers", "items", "orders", "products")

_SCHEMA = """
CREATE TABLE {db}.customers (
  id BIGINT UNSIGNED NOT NULL PRIMARY KEY,
  email VARCHAR(120) CHARACTER SET latin1 NOT NULL,
  name VARCHAR(80) NOT NULL,
  country CHAR(2) CHARACTER SET ascii NOT NULL,
  born DATE NULL,
  vip TINYINT UNSIGNED NOT NULL DEFAULT 0,
  score DOUBLE NULL,
  balance DECIMAL(12,2) NOT NULL DEFAULT 0.00,
  interests SET('books','games','garden','music','sport') NOT NULL DEFAULT '',
  preferences JSON NULL,
  token VARBINARY(16) NULL,
  created_at DATETIME(6) NOT NULL,
  updated_at TIMESTAMP(3) NULL,
  KEY email (email)
) CHARACTER SET utf8mb4;
CREATE TABLE {db}.products (
  id INT UNSIGNED NOT NULL PRIMARY KEY,
  sku CHAR(12) CHARACTER SET latin1 NOT NULL,
  title VARCHAR(160) NOT NULL,
  category ENUM('books','games','garden','music','café','other') NOT NULL,
  price DECIMAL(10,2) NOT NULL,
  weight FLOAT NULL,
  flags BIT(10) NOT NULL DEFAULT b'0',
  stock MEDIUMINT NOT NULL,
  released YEAR NULL,
  opens TIME NULL,
  description TEXT NULL,
  attributes JSON NULL,
  image VARBINARY(64) NULL,
  UNIQUE KEY sku (sku)
) CHARACTER SET utf8mb4;
CREATE TABLE {db}.orders (
  id BIGINT UNSIGNED NOT NULL PRIMARY KEY,
  customer_id BIGINT UNSIGNED NOT NULL,
  status ENUM('new','paid','packed','sent','returned','closed') NOT NULL DEFAULT 'new',
  placed_at DATETIME(6) NOT NULL,
  paid_at TIMESTAMP(6) NULL,
  ready_in TIME(3) NULL,
  total DECIMAL(12,2) NOT NULL,
  currency CHAR(3) CHARACTER SET ascii NOT NULL DEFAULT 'EUR',
  channel TINYINT UNSIGNED NOT NULL,
  gift TINYINT(1) NOT NULL DEFAULT 0,
  note TEXT NULL,
  KEY customer (customer_id)
) CHARACTER SET utf8mb4;
CREATE TABLE {db}.items (
  order_id BIGINT UNSIGNED NOT NULL,
  line SMALLINT UNSIGNED NOT NULL,
  product_id INT UNSIGNED NOT NULL,
  quantity SMALLINT NOT NULL,
  price DECIMAL(10,4) NOT NULL,
  discount DOUBLE NULL,
  comment VARCHAR(60) NULL,
  PRIMARY KEY (order_id, line)
) CHARACTER SET utf8mb4
"""

# `n` is the row's number. CRC32 spreads it, so that rows with adjacent numbers differ.
CUSTOMER = """n, CONCAT('kunde.', n, '@café.example'),
  CONCAT(ELT(n % 7 + 1, 'Ada', 'Björn', '李雷', 'Zoë', 'Иван', 'Mary', '🦊 Fox'),
    ' ', ELT(n % 5 + 1, 'Łuk', 'Ng', 'Å', 'Smith', '✨')),
  ELT(n % 5 + 1, 'DE', 'FR', 'US', 'CN', 'SE'),
  IF(n % 11 = 0, NULL, DATE_ADD('1930-01-01', INTERVAL CRC32(n) % 28000 DAY)),
  CRC32(n) % 256, IF(n % 13 = 0, NULL, (CRC32(n) % 1000000) / 7e3 - 50), CRC32(n) % 20000000 / 100 - 100000,
  CRC32(n) % 32, IF(n % 17 = 0, NULL, JSON_OBJECT('theme', ELT(n % 2 + 1, 'dark', 'light'), 'size', n % 40,
  'ratio', CAST(n % 100 / 100 AS DECIMAL(4,2)), 'list',
  JSON_ARRAY(n, NULL, TRUE, '🎁'))),
  IF(n % 19 = 0, NULL, UNHEX(MD5(n))), TIMESTAMPADD(MICROSECOND, CRC32(n), '2024-02-29 23:59:59.000001'),
  IF(n % 3 = 0, NULL, TIMESTAMPADD(SECOND, n, '2024-03-31 00:30:00.125'))"""
PRODUCT = """n, CONCAT('SKU', LPAD(n, 9, '0')), CONCAT(ELT(n % 4 + 1, 'Lamp', 'Fußball', '茶壶', 'Guitar 🎸'),
    ' ', n),
  n % 6 + 1, CRC32(n) % 99999999 / 100, IF(n % 7 = 0, NULL, CRC32(n) % 100000 / 64e0), n % 1024,
  CAST(CRC32(n) % 16777216 AS SIGNED) - 8388608, IF(n % 23 = 0, NULL, 1901 + n % 255),
  IF(n % 5 = 0, NULL, SEC_TO_TIME(CAST(CRC32(n) % 6000000 AS SIGNED) - 3000000)),
  IF(n % 29 = 0, NULL, REPEAT(CONCAT('Line ', n, ' — ', CHAR(10), 'naïve 🙂 '), n % 6)),
  IF(n % 2 = 0, NULL, JSON_OBJECT('n', n, 'big', 18446744073709551615 - n,
    'deep', JSON_OBJECT('é', JSON_ARRAY()))),
  IF(n % 3 = 0, NULL, UNHEX(SHA2(n, 256)))"""
ORDER = """n, 1 + CRC32(n) % {customers}, n % 6 + 1,
  TIMESTAMPADD(SECOND, n % 90000000, '2023-01-01 00:00:00.5'),
  IF(n % 4 = 0, NULL, TIMESTAMPADD(MICROSECOND, CRC32(n),
    TIMESTAMPADD(SECOND, n % 90000000, '2023-01-01 06:00:00'))),
  IF(n % 6 = 0, NULL, SEC_TO_TIME(n % 200000 + 0.125)), CRC32(n) % 99999999 / 100,
  ELT(n % 3 + 1, 'EUR', 'USD', 'SEK'), n % 256, n % 10 = 0,
  IF(n % 3 > 0, NULL, CONCAT(ELT(n % 4 + 1, 'Bitte klingeln', 'leave at door 🚪', '', 'après 18h'),
    IF(n % 5 = 0, n, '')))"""
ITEM = """n, line, 1 + CRC32(n * 4 + line) % {products}, 1 + (n + line) % 9,
  CRC32(n + line) % 99999999 / 10000,
  IF(line = 2, NULL, (n % 40) / 1e2), IF(n % 8 = 0, CONCAT('gift ', line, ' 🎀'), NULL)"""

_DIGITS = "(SELECT 0 d UNION ALL " + " UNION ALL ".join(f"SELECT {digit}" for digit in range(1, 10)) + ")"
LINES = "(SELECT 1 line UNION ALL SELECT 2 UNION ALL SELECT 3)"


def numbers(count: int, first: int) -> str:
    """Returns SQL for a derived table of `count` (≤ 100,000) consecutive numbers `n` from `first` on."""
    names = "abcde"[: max(1, len(str(count - 1)))]
    value = " + ".join(f"{name}.d * {10**power}" for power, name in enumerate(names))
    tables = ", ".join(f"{_DIGITS} {name}" for name in reversed(names))
    return f"(SELECT {first} + {value} AS n FROM {tables} WHERE {value} < {count} ORDER BY n) numbers"


@dataclass(frozen=True)
class Shop:
    """Number of rows of each table after loading. Row numbers start at 1."""

    customers: int
    products: int
    orders: int
    database: str = "shop"

    @classmethod
    def of_rows(cls, rows: int, database: str = "shop") -> Shop:
        """Returns a shop of at least `rows` rows in total: about 58 % items, 29 % orders, 11 % customers, 2 %
        products."""
        return cls(
            customers=rows * 11 // 100 + 1, products=rows * 2 // 100 + 1, orders=rows * 29 // 100 + 3,
            database=database,
        )  # fmt: skip

    @property
    def items(self) -> int:
        return sum(1 + number % 3 for number in range(1, self.orders + 1))

    @property
    def rows(self) -> int:
        return self.customers + self.products + self.orders + self.items

    def select(self, table: str, count: int, first: int) -> str:
        """Returns a SELECT of the rows of `table` with `count` numbers from `first` on. For `items`, these
        are the numbers of their orders."""
        source = numbers(count, first)
        if table == "items":
            columns = ITEM.format(products=self.products)
            return f"SELECT {columns} FROM {source} JOIN {LINES} ls ON line <= 1 + n % 3"
        columns = {"customers": CUSTOMER, "products": PRODUCT, "orders": ORDER}[table]
        return f"SELECT {columns.format(customers=self.customers)} FROM {source}"


def load(server: MySqlClient, shop: Shop, *, connections: int = 3, batch_rows: int = 10_000) -> None:
    """Creates the database and fills its tables over several connections, with one transaction per batch."""
    server.execute(f"CREATE DATABASE {shop.database} CHARACTER SET utf8mb4")
    server.execute(*_SCHEMA.format(db=shop.database).strip().split(";\n"))
    with ThreadPoolExecutor(connections) as pool:
        for _ in pool.map(lambda statement: server.execute("SET time_zone = '+00:00'", statement),
                          _batches(shop, batch_rows)):  # fmt: skip
            pass


def _batches(shop: Shop, batch_rows: int) -> Iterator[str]:
    counts = {
        "orders": shop.orders,
        "items": shop.orders,
        "customers": shop.customers,
        "products": shop.products,
    }
    for table, count in counts.items():
        for first in range(1, count + 1, batch_rows):
            size = min(batch_rows, count + 1 - first)
            yield f"INSERT INTO {shop.database}.{table} {shop.select(table, size, first)}"
