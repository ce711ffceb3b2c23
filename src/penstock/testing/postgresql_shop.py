"""The shop on PostgreSQL, for the demo, tests and benchmarks: the server creates its rows itself, and threads
change them."""

from __future__ import annotations

import random
import threading
import time
from contextlib import AbstractContextManager, suppress
from typing import Any

import psycopg

from penstock.sources.postgresql.log_position import lsn_of
from penstock.testing.servers.postgresql import PostgreSqlServer
from penstock.testing.workload import Shop
from penstock.testing.writer import Counts

SETTINGS = {"wal_level": "logical"}
PUBLICATION = "penstock_shop"

_SCHEMA = """
CREATE TYPE status AS ENUM ('new', 'paid', 'packed', 'sent', 'returned', 'closed');
CREATE TABLE customers (
  id bigint PRIMARY KEY, email varchar(120) NOT NULL, name text NOT NULL, country char(2) NOT NULL, born date,
  vip boolean NOT NULL, score double precision, balance numeric(12,2) NOT NULL, interests text[],
  preferences jsonb, token uuid, created_at timestamp NOT NULL, updated_at timestamptz);
CREATE TABLE products (
  id int PRIMARY KEY, sku varchar(12) NOT NULL UNIQUE, title text NOT NULL, price numeric(10,2) NOT NULL,
  weight real, stock int NOT NULL, opens time, description text, attributes json, image bytea);
ALTER TABLE products ALTER description SET STORAGE EXTERNAL;
CREATE TABLE orders (
  id bigint PRIMARY KEY, customer_id bigint NOT NULL, status status NOT NULL, placed_at timestamp NOT NULL,
  paid_at timestamptz, ready_in interval, total numeric(12,2) NOT NULL, currency char(3) NOT NULL,
  channel smallint NOT NULL, address inet, note text);
CREATE TABLE items (
  order_id bigint, line smallint, product_id int NOT NULL, quantity smallint NOT NULL,
  price numeric(10,4) NOT NULL, discount double precision, comment varchar(60), PRIMARY KEY (order_id, line));
"""

# `n` is the row's number. A long `description` is stored apart, so an update of other columns leaves it out.
_ROWS = {
    "customers": """SELECT n, 'kunde.' || n || '@café.example', (ARRAY['Ada','李雷','Zoë 🦊'])[n % 3 + 1],
        (ARRAY['DE','FR','US'])[n % 3 + 1], DATE '1930-01-01' + (n % 28000)::int, n % 2 = 0, n / 7e3,
        n % 20000000 / 100.0, ARRAY['books', NULL, 'it''s ' || n], jsonb_build_object('size', n % 40),
        md5(n::text)::uuid, TIMESTAMP '2024-02-29 23:59:59.000001' + n * INTERVAL '1 ms',
        CASE WHEN n % 3 > 0 THEN TIMESTAMPTZ '2024-03-31 00:30:00.125Z' + n * INTERVAL '1 s' END""",
    "products": """SELECT n, 'S' || n, 'Fußball 🎸 ' || n, n % 99999999 / 100.0, n / 64.0, n % 16777216,
        TIME '00:00' + (n % 86400) * INTERVAL '1 s', repeat(md5(n::text), (n % 4 * 40)::int),
        json_build_object('n', n, 'deep', NULL), sha256(n::text::bytea)""",
    "orders": """SELECT n, 1 + n % {customers}, (enum_range(NULL::status))[n % 6 + 1],
        TIMESTAMP '2023-01-01' + n % 90000000 * INTERVAL '1 s',
        CASE WHEN n % 4 > 0 THEN TIMESTAMPTZ '2023-01-01 06:00Z' + n * INTERVAL '1 s' END,
        n % 200 * INTERVAL '1 day 0.125 s', n % 99999999 / 100.0, 'EUR', n % 256, '10.0.0.1/8',
        CASE WHEN n % 3 = 0 THEN 'après 18h 🚪' END""",
    "items": """SELECT n, line, 1 + n % {products}, 1 + n % 9, n % 99999999 / 10000.0, n % 40 / 1e2, 'gift 🎀'
        FROM generate_series({first}, {last}) n, generate_series(1, 1 + n % 3) line""",
}  # fmt: skip
SCHEMA_CHANGES = (
    "ALTER TABLE customers ADD COLUMN tier int NOT NULL DEFAULT 7",
    "ALTER TABLE items RENAME COLUMN comment TO remark",
    "ALTER TABLE products ALTER weight TYPE double precision",  # writes all rows again, not into the log
)
_RECONNECT_SECONDS = 0.1
"""Pause before connecting again to a server that ends sessions."""
_RECOVERY_SECONDS_MAX = 120.0
"""How long a server may recover from a crash: seconds, and more on a busy machine."""


def connected(server: PostgreSqlServer, *, autocommit: bool = True) -> psycopg.Connection[Any]:
    return psycopg.connect(server.url, user=server.user, password=server.password, autocommit=autocommit)


def connected_when_ready(server: PostgreSqlServer) -> psycopg.Connection[Any]:
    """As `connected`, when the server has recovered from a crash."""
    deadline = time.monotonic() + _RECOVERY_SECONDS_MAX
    while True:
        try:
            return connected(server)
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
        time.sleep(_RECONNECT_SECONDS)


def has_reached(place: str, goal: int) -> bool:
    """Whether a position of the log, as the server prints it, is at `goal` or behind it."""
    return lsn_of(place) >= goal


def insert(shop: Shop, table: str, first: int, last: int) -> str:
    """SQL that inserts the rows with these numbers; of `items`, those of these orders."""
    rows = _ROWS[table].format(customers=shop.customers, products=shop.products, first=first, last=last)
    source = "" if table == "items" else f" FROM generate_series({first}::bigint, {last}) n"
    return f"INSERT INTO {table} {rows}{source} ON CONFLICT DO NOTHING"


def load(server: PostgreSqlServer, shop: Shop) -> None:
    """Creates the tables with their rows, and a publication of them."""
    counts = {"orders": shop.orders, "items": shop.orders, "customers": shop.customers,
              "products": shop.products}  # fmt: skip
    with connected(server) as sql:
        sql.execute(_SCHEMA.encode())
        for table, count in counts.items():
            sql.execute(insert(shop, table, 1, count).encode())
        sql.execute(f"CREATE PUBLICATION {PUBLICATION} FOR ALL TABLES".encode())
        sql.execute("VACUUM ANALYZE")


class PostgreSqlWriter(AbstractContextManager["PostgreSqlWriter"]):
    """Changes a loaded shop until `stop`, at `rate` row changes per second. A session that the server ends is
    opened again, at `server`; `counts` does not include its interrupted transaction."""

    def __init__(
        self, server: PostgreSqlServer, shop: Shop, *, seed: int = 1, rate: float = 800, threads: int = 2
    ) -> None:
        self.counts = Counts()
        self.server, self._shop, self._pace, self._step = server, shop, rate / threads, threads
        self._stop, self._lock = threading.Event(), threading.Lock()
        self._error: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._work, args=(number, random.Random(f"{seed}-{number}")), daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the writer after its current transactions. Raises the error of a thread that failed."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._error is not None:
            raise self._error

    def _work(self, number: int, chance: random.Random) -> None:
        # A number is used once, also if its transaction was interrupted: it may have been committed.
        first = max(self._shop.orders, self._shop.products) + 1_000_000 + 10 * number
        try:
            while not self._stop.is_set():
                with suppress(psycopg.OperationalError), connected(self.server, autocommit=False) as sql:
                    while not self._stop.is_set():
                        first += 10 * self._step
                        self._pause(self._transaction(sql, chance, first))
                self._stop.wait(_RECONNECT_SECONDS)
        except BaseException as error:
            self._error = error
            self._stop.set()

    def _pause(self, changes: int) -> None:
        self._stop.wait(changes / self._pace)

    def _transaction(self, sql: psycopg.Connection[Any], chance: random.Random, first: int) -> int:
        changes = 0
        for statement in _statements(self._shop, chance, first):
            changes += max(0, sql.execute(statement.encode()).rowcount)
        if chance.random() < 0.05:
            sql.rollback()
            return 0
        sql.commit()
        with self._lock:
            self.counts.transactions += 1
            self.counts.updates += changes
        return changes


def _statements(shop: Shop, chance: random.Random, first: int) -> list[str]:
    """A transaction of an application. `first`: of ten numbers for new rows."""
    order, product = chance.randrange(1, shop.orders + 1), chance.randrange(1, shop.products + 1)
    customer = chance.randrange(1, shop.customers + 1)
    kinds = [
        [insert(shop, table, first, first + chance.randrange(9)) for table in ("orders", "items")],
        [f"UPDATE orders SET status = 'paid', paid_at = now() WHERE id BETWEEN {order} AND {order + 9}"],
        [f"UPDATE customers SET balance = balance - 1.25, updated_at = now() WHERE id = {customer}"],
        [f"UPDATE products SET stock = stock + 1 WHERE id BETWEEN {product} AND {product + 9}"],
        [f"UPDATE items SET line = line + {delta} WHERE order_id = {order}" for delta in (100, -100)],
        [f"UPDATE customers SET id = {first} WHERE id = {customer}"],
        [f"DELETE FROM items WHERE order_id = {order}", f"DELETE FROM orders WHERE id = {order}"],
        [f"DELETE FROM orders WHERE id = {order}", insert(shop, "orders", order, order)],
        [insert(shop, "orders", first, first), "SAVEPOINT here", "DELETE FROM items WHERE order_id < 9",
         "ROLLBACK TO here", insert(shop, "items", first, first)],
    ]  # fmt: skip
    return chance.choices(kinds, weights=(30, 25, 12, 12, 5, 3, 6, 3, 4))[0]
