"""Changes a shop continuously, as many applications at once would.

Each thread has its own connection and random generator. Equal seeds give equal statements per thread; the
server decides how threads interleave. The changes of a transaction are counted from the server's own row
counts, once it has committed.

By default, the shop grows, and in the end the rows of its first load are gone. A `steady` writer can run
forever: it removes the rows that it added, oldest first, and reuses their numbers.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from types import TracebackType
from typing import Any

import pymysql
from typing_extensions import Self

from penstock.testing.servers import MySqlClient
from penstock.testing.workload import Shop

_DEADLOCK, _LOCK_TIMEOUT = 1213, 1205
_RETRIABLE = {_DEADLOCK, _LOCK_TIMEOUT}
_RECONNECT_SECONDS = 0.1
"""Pause before connecting again to a server that is away: tests kill and restart it."""
MOVED = 1 << 40  # first id for customers whose key is changed
_BLOCK = 1000  # numbers that `new_block` reserves at once
_LOOK_SECONDS = 0.05
"""How often a waiting thread looks whether it may go on."""
PLACED_MAX = 200  # blocks of numbers that one thread of a steady writer leaves in the tables
_REMOVED_MAX = 10  # blocks that it removes in one transaction


@dataclass
class Counts:
    """Committed row changes, as the log contains them, and numbers of transactions."""

    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    key_changes: int = 0
    """Updates that changed the primary key. They are also counted in `updates`."""
    transactions: int = 0
    large_transactions: int = 0
    rollbacks: int = 0
    """Transactions that were rolled back, and rollbacks to a savepoint."""

    @property
    def changes(self) -> int:
        return self.inserts + self.updates + self.deletes

    def add(self, other: Counts) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


@dataclass
class _Session:
    """The connection, the random generator and the current transaction of one thread."""

    cursor: pymysql.cursors.Cursor
    random: random.Random
    shop: Shop
    new_block: Callable[[], int]
    large_rows: int
    size: int = 1
    steady: bool = False
    done: Counts = field(default_factory=Counts)
    placed: deque[int] = field(default_factory=deque)
    """First numbers of the blocks with rows of this thread, if the writer is steady."""
    free: deque[int] = field(default_factory=deque)
    """First numbers of blocks whose rows were removed, for reuse."""
    away: tuple[int, int] | None = None
    """Old and new key of the customer whose key was changed, if the writer is steady."""
    committed: list[Callable[[], None]] = field(default_factory=list)
    """Functions to call once the current transaction has committed."""

    def run(self, sql: str) -> int:
        return self.cursor.execute(sql.replace("{db}", self.shop.database))

    def insert(self, sql: str) -> None:
        self.done.inserts += self.run(sql)

    def update(self, sql: str) -> None:
        self.done.updates += self.run(sql)

    def delete(self, sql: str) -> None:
        self.done.deletes += self.run(sql)

    def move(self, sql: str) -> None:
        """Runs an update that changes primary keys."""
        moved = self.run(sql)
        self.done.updates += moved
        self.done.key_changes += moved

    def order(self) -> int:
        """Returns the number of an order of the first load. The order may have been deleted."""
        return self.random.randrange(1, self.shop.orders + 1)

    def customer(self) -> int:
        return self.random.randrange(1, self.shop.customers + 1)

    def product(self) -> int:
        return self.random.randrange(1, self.shop.products + 1)

    def insert_rows(self, table: str, count: int, first: int) -> None:
        self.insert(f"INSERT INTO {{db}}.{table} {self.shop.select(table, count, first)}")

    def place(self) -> int:
        """Returns the first number of a block for new rows of this transaction."""
        first = self.free.popleft() if self.free else self.new_block()
        if self.steady:
            self.committed.append(lambda: self.placed.append(first))
        return first


# The transactions. Numbers of new rows come in blocks of 1,000, so threads never use the same ones.


def place_orders(session: _Session) -> None:
    first, count = session.place(), session.random.randrange(1, 6) * session.size
    session.insert_rows("orders", count, first)
    session.insert_rows("items", count, first)


def change_orders(session: _Session) -> None:
    first = session.order()
    status = session.random.choice(["paid", "packed", "sent", "returned", "closed"])
    session.update(
        f"UPDATE {{db}}.orders SET status = '{status}', paid_at = NOW(6), "
        f"note = IF(id % 3 = 0, NULL, '✓ {status}') "
        f"WHERE id BETWEEN {first} AND {first + session.random.randrange(20 * session.size)}"
    )


def change_customer(session: _Session) -> None:
    customer = session.customer()
    session.update(
        "UPDATE {db}.customers SET balance = balance - 1.25, score = score * 1.5, updated_at = NOW(3), "
        f"preferences = JSON_SET(COALESCE(preferences, '{{}}'), '$.seen', {session.random.randrange(1000)}) "
        f"WHERE id = {customer}"
    )
    session.update(f"UPDATE {{db}}.customers SET vip = (vip + 1) % 256 WHERE id = {customer}")


def change_products(session: _Session) -> None:
    first = session.product()
    session.update(
        "UPDATE {db}.products SET stock = (stock + 1) % 8388607, price = price % 90000000 + 0.01, "
        "flags = (flags + 1) % 1024, "
        "description = IF(id % 2 = 0, NULL, CONCAT('Neu ☕ ', id)) "
        f"WHERE id BETWEEN {first} AND {first + 16 * session.size - 1}"
    )


def move_items(session: _Session) -> None:
    """Changes a part of a composite key. All lines move away and back, and the first two swap places."""
    order = session.order()
    for change, those in (
        ("line + 100", "line < 100"),
        ("200", "line = 101"),
        ("101", "line = 102"),
        ("102", "line = 200"),
        ("line - 100", "line > 100"),
    ):
        session.move(f"UPDATE {{db}}.items SET line = {change} WHERE order_id = {order} AND {those}")


def move_customer(session: _Session) -> None:
    """Changes a primary key. A steady writer restores the old key with its next call."""
    if session.away is not None:
        before, now = session.away
        session.move(f"UPDATE {{db}}.customers SET id = {before} WHERE id = {now}")
        session.committed.append(lambda: setattr(session, "away", None))
        return
    before, now = session.customer(), MOVED + session.new_block()
    session.move(f"UPDATE {{db}}.customers SET id = {now} WHERE id = {before}")
    if session.steady:
        session.committed.append(lambda: setattr(session, "away", (before, now)))


def remove_orders(session: _Session) -> None:
    if session.steady:
        remove_oldest(session)
        return
    first = session.order()
    last = first + session.random.randrange(3)
    session.delete(f"DELETE FROM {{db}}.items WHERE order_id BETWEEN {first} AND {last}")
    session.delete(f"DELETE FROM {{db}}.orders WHERE id BETWEEN {first} AND {last}")


def remove_oldest(session: _Session) -> None:
    """Deletes the remaining rows of the oldest blocks, as far as there are more than `PLACED_MAX`."""
    surplus = min(_REMOVED_MAX, len(session.placed) - PLACED_MAX)
    for first in itertools.islice(session.placed, max(0, surplus)):
        last = first + _BLOCK - 1
        for table, column in (("items", "order_id"), ("orders", "id"), ("products", "id")):
            session.delete(f"DELETE FROM {{db}}.{table} WHERE {column} BETWEEN {first} AND {last}")
        session.committed.append(lambda: session.free.append(session.placed.popleft()))


def remove_and_insert_again(session: _Session) -> None:
    """Deletes, inserts and updates the same key twice, in one transaction."""
    order = session.order()
    for _ in range(2):
        session.delete(f"DELETE FROM {{db}}.orders WHERE id = {order}")
        session.insert_rows("orders", 1, order)
        session.update(f"UPDATE {{db}}.orders SET total = total + 1, gift = 1 - gift WHERE id = {order}")


def add_products(session: _Session) -> None:
    session.insert_rows("products", 10, session.place() % 4_000_000_000)


def change_mind(session: _Session) -> None:
    """Rolls back to a savepoint, and commits the rest."""
    first = session.place()
    session.insert_rows("orders", 2, first)
    before = Counts()
    before.add(session.done)
    session.run("SAVEPOINT here")
    session.insert_rows("items", 2, first)
    session.update(f"UPDATE {{db}}.orders SET total = 0 WHERE id = {first}")
    session.run("ROLLBACK TO SAVEPOINT here")
    session.done = before
    session.done.rollbacks += 1
    session.insert_rows("items", 2, first)


def give_up(session: _Session) -> None:
    """Makes changes that are rolled back: they must not appear anywhere."""
    first = session.new_block()
    session.insert_rows("orders", 5, first)
    session.update(f"UPDATE {{db}}.customers SET balance = 0 WHERE id = {session.customer()}")
    session.run("ROLLBACK")
    session.done = Counts(rollbacks=1)


def large_update(session: _Session) -> None:
    rows = session.large_rows
    first = session.random.randrange(1, max(2, session.shop.orders - rows))
    session.update(
        "UPDATE {db}.orders SET channel = (channel + 1) % 256, total = total % 9000000 + 0.5 "
        f"WHERE id BETWEEN {first} AND {first + rows - 1}"
    )


def large_insert(session: _Session) -> None:
    """Inserts many orders with their items in one transaction. Later large transactions may remove them."""
    count = max(1, session.large_rows // 3)
    for start in range(0, count, _BLOCK):  # numbers are reserved in blocks
        first = session.place()
        size = min(_BLOCK, count - start)
        session.insert_rows("orders", size, first)
        session.insert_rows("items", size, first)


def large_delete(session: _Session) -> None:
    first, last = session.order(), session.shop.orders
    for table, column in (("items", "order_id"), ("orders", "id")):
        session.delete(
            f"DELETE FROM {{db}}.{table} WHERE {column} > {last} "
            f"OR {column} BETWEEN {first} AND {first + 50} "
            f"LIMIT {session.large_rows // 2}"
        )


SMALL: dict[Callable[[_Session], None], int] = {
    place_orders: 30, change_orders: 25, change_customer: 10, change_products: 10, move_items: 4,
    move_customer: 3,
    remove_orders: 6, remove_and_insert_again: 3, add_products: 2, change_mind: 3, give_up: 4,
}  # fmt: skip
"""Ordinary transactions, with their frequency in percent."""

LARGE = (large_update, large_insert, large_delete)


class Writer:
    """Changes a loaded shop from `start` until `stop`.

    `rate`: row changes per second of all threads together, without large transactions. It may be set while
    the writer runs. 0 pauses it; infinity writes as fast as possible.

    `large_every_s`: seconds between transactions of about `large_rows` changes; 0 for none.

    `size`: factor for the size of small transactions. `steady`: see the description of this module.

    `patient`: after a lost connection, it tries to connect again until it can, each time to the address that
    `server` has at that moment.
    `counts` does not include the transactions that were interrupted.
    """

    def __init__(
        self,
        server: MySqlClient,
        shop: Shop,
        *,
        rate: float = 1000,
        threads: int = 2,
        seed: int = 1,
        large_every_s: float = 10,
        large_rows: int = 50_000,
        size: int = 1,
        steady: bool = False,
        patient: bool = False,
    ) -> None:
        self.server, self.shop, self.rate, self.seed = server, shop, rate, seed
        self._patient = patient
        self.large_every_s, self.large_rows = large_every_s, large_rows
        self.size, self.steady = size, steady
        self.counts = Counts()
        self._numbers = [itertools.count(index, threads) for index in range(threads)]
        self.highest = max(shop.orders, shop.products)
        """No order, item or product has ever had a higher number."""
        self._idle = [threading.Event() for _ in range(threads)]
        self._threads = [
            threading.Thread(target=self._work, args=(index,), daemon=True) for index in range(threads)
        ]
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._error: BaseException | None = None

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def running(self) -> bool:
        """Whether all threads run. False once a thread has failed; `stop` then raises its error."""
        return not self._stop.is_set() and all(thread.is_alive() for thread in self._threads)

    def pause(self) -> Counts:
        """Sets `rate` to 0, waits until no transaction runs, and returns the counts. Set `rate` to
        continue."""
        self.rate = 0
        while self.running and not all(idle.wait(_LOOK_SECONDS) for idle in self._idle):
            pass
        with self._lock:
            return replace(self.counts)

    def stop(self) -> Counts:
        """Ends the writer after the current transactions, and returns the counts. Raises the error of a
        thread that failed."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._error is not None:
            raise self._error
        return self.counts

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _work(self, index: int) -> None:
        try:
            while not self._stop.is_set():
                try:
                    with self._connect() as connection, connection.cursor() as cursor:
                        self._write(index, cursor)
                except (pymysql.err.OperationalError, pymysql.err.InterfaceError):
                    if not self._patient:
                        raise
                    self._idle[index].set()
                    self._stop.wait(_RECONNECT_SECONDS)
        except BaseException as error:
            self._error = error
            self._stop.set()

    def _connect(self) -> pymysql.connections.Connection[Any]:
        return self.server.connect(
            autocommit=False, init_command="SET time_zone = '+00:00', lock_wait_timeout = 60"
        )

    def _hand_out(self, first: int) -> int:
        with self._lock:
            self.highest = max(self.highest, first + _BLOCK - 1)
        return first

    def _write(self, index: int, cursor: pymysql.cursors.Cursor) -> None:
        numbers = self._numbers[index]
        base = max(self.shop.orders, self.shop.products) + 1_000_000
        session = _Session(
            cursor, random.Random(f"{self.seed}-{index}"), self.shop,
            lambda: self._hand_out(base + _BLOCK * next(numbers)), self.large_rows, self.size, self.steady,
        )  # fmt: skip
        kinds, weights = list(SMALL), list(SMALL.values())
        large = itertools.cycle(LARGE)
        next_at = time.monotonic()
        large_at = next_at + self.large_every_s if self.large_every_s and index == 0 else float("inf")
        while not self._stop.is_set():
            now = time.monotonic()
            self._idle[index].clear()
            if not self.rate:  # checked after `clear`, so that `pause` never takes a busy thread for idle
                self._idle[index].set()
                self._stop.wait(_LOOK_SECONDS)
                next_at = now
            elif now < next_at:
                self._stop.wait(min(next_at - now, 0.5))
            elif now >= large_at:
                self._transaction(session, next(large), large=True)
                large_at = time.monotonic() + self.large_every_s
                next_at = time.monotonic()
            else:
                written = self._transaction(session, session.random.choices(kinds, weights)[0])
                # A writer that has fallen behind makes up for at most one second.
                next_at = max(next_at, now - 1) + written * len(self._threads) / max(self.rate, 1e-9)

    def _transaction(self, session: _Session, act: Callable[[_Session], None], *, large: bool = False) -> int:
        """Runs and commits one transaction. Returns its row changes, at least 1. A deadlock or lock timeout
        counts as a rollback."""
        session.done, session.committed = Counts(), []
        try:
            act(session)
            session.run("COMMIT")
            for remember in session.committed:
                remember()
            if session.done.changes:
                session.done.transactions += 1
                session.done.large_transactions += large
        except pymysql.err.OperationalError as error:
            if error.args[0] not in _RETRIABLE:
                raise
            with contextlib.suppress(pymysql.err.Error):
                session.run("ROLLBACK")
            session.done = Counts(rollbacks=1)
        with self._lock:
            self.counts.add(session.done)
        return max(1, session.done.changes)
