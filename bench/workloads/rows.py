"""Workloads of one table that is filled, changed and partly deleted in transactions of equal size.

Every row is inserted; then of the blocks of rows that a transaction makes every second one is updated; then
every tenth one is deleted. Rows are made inside the server, from the row number `n` alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.workload import DATABASE, TABLE, Counts, Workload, run, thousands
from penstock.testing import orders
from penstock.testing.servers import MySqlServer
from penstock.testing.workload import numbers

_BLOCK_ROWS_MAX = 100_000
"""What one INSERT makes at most (`numbers`)."""


@dataclass(frozen=True)
class Rows(Workload):
    name: str
    about: str
    table: str
    definition: str
    """CREATE TABLE."""
    row: str
    """The values of the row `n`."""
    change: str
    """SET of an update, which must change every row."""
    texts: Sequence[str]
    rows: int
    """Inserted at full size."""
    block_rows: int = 100
    """Of one transaction; where it is more than 100 it shrinks with the scale."""
    one_log_file: bool = True
    version: int = 1

    def definitions(self, scale: float) -> Iterable[str]:
        return [self.definition]

    def compared(self, scale: float) -> dict[str, Sequence[str]]:
        return {self.table: self.texts}

    def write(self, server: MySqlServer, scale: float) -> Counts:
        rows, block = thousands(scale, self.rows), self.block_rows
        if block > 100:
            block = min(_BLOCK_ROWS_MAX, thousands(min(scale, 1.0), block))
        table, last = f"{DATABASE}.{self.table}", block - 1

        def blocks(step: int) -> range:
            return range(1, rows + 1, step * block)

        return Counts(
            inserts=run(
                server,
                [
                    f"INSERT INTO {table} SELECT {self.row} FROM {numbers(min(block, rows + 1 - n), n)}"
                    for n in blocks(1)
                ],
            ),
            updates=run(
                server,
                [f"UPDATE {table} SET {self.change} WHERE id BETWEEN {n} AND {n + last}" for n in blocks(2)],
            ),
            deletes=run(
                server, [f"DELETE FROM {table} WHERE id BETWEEN {n} AND {n + last}" for n in blocks(10)]
            ),
        )


_ORDERS_TEXTS = (
    *("id", "customer_id", "status", "amount", "quantity", "priority", "due", "name", "note", "attributes"),
    "hex(token)",
)

ORDERS = Rows(
    name="orders",
    about="15 columns of mixed types, in transactions of 100 rows",
    table=TABLE,
    definition=orders.TABLE,
    row=orders.ROW,
    change=orders.CHANGE,
    texts=_ORDERS_TEXTS,
    rows=600_000,
    version=3,
)

LARGE_TRANSACTIONS = Rows(
    name="large_transactions",
    about="the columns of `orders` in seven large transactions, at full size of 100,000 rows each",
    table=TABLE,
    definition=orders.TABLE,
    row=orders.ROW,
    change=orders.CHANGE,
    texts=_ORDERS_TEXTS,
    rows=400_000,
    block_rows=100_000,
)

NARROW = Rows(
    name="narrow",
    about="two columns (id BIGINT, v INT), in transactions of 100 rows",
    table="narrow",
    definition=f"CREATE TABLE {DATABASE}.narrow (id BIGINT NOT NULL PRIMARY KEY, v INT NOT NULL)",
    row="n, CRC32(n) % 1000000000",
    change="v = v + 1",
    texts=("id", "v"),
    rows=2_000_000,
)

_WIDE_COLUMNS = 200
_KINDS = (
    # type, value of the row `n` in column {k}, compared with the target
    ("INT NOT NULL", "CRC32(n + {k}) % 2000000000", True),
    ("BIGINT NULL", "IF(n % 11 = {k} % 11, NULL, n * 1000003 + {k})", True),
    ("DOUBLE NOT NULL", "(n + {k}) / 7e0", False),
    ("DECIMAL(12,2) NOT NULL", "CRC32(n * {k}) / 100", True),
    ("VARCHAR(24) NULL", "IF(n % 7 = {k} % 7, NULL, CONCAT('value ', n % 100000, ' of {k}'))", True),
    ("DATETIME(3) NOT NULL", "TIMESTAMPADD(SECOND, n + {k}, '2024-01-01')", False),
    ("SMALLINT NOT NULL", "(n + {k}) % 30000", True),
    ("CHAR(8) CHARACTER SET ascii NOT NULL", "HEX(n % 1000000 + {k})", True),
)


def _wide() -> Rows:
    columns = [(f"c{k:03}", k, *_KINDS[k % len(_KINDS)]) for k in range(1, _WIDE_COLUMNS)]
    definitions = ", ".join(f"{name} {kind}" for name, _, kind, _, _ in columns)
    changed = [name for name, _, kind, _, _ in columns if kind.startswith("SMALLINT")]
    return Rows(
        name="wide",
        about=f"{_WIDE_COLUMNS} columns, in transactions of 100 rows",
        table="wide",
        definition=f"CREATE TABLE {DATABASE}.wide (id BIGINT NOT NULL PRIMARY KEY, {definitions})",
        row=", ".join(["n", *(value.format(k=k) for _, k, _, value, _ in columns)]),
        change=", ".join(f"{name} = {name} + 1" for name in changed),
        texts=("id", *(name for name, *_, is_compared in columns if is_compared)),
        rows=90_000,
    )


WIDE = _wide()

_LINE = (
    "JSON_OBJECT('sku', CONCAT('SKU-', CRC32(n + {i}) % 100000), 'quantity', n % 9 + {i}, "
    "'price', CRC32(n * {i}) % 100000 / 100, 'note', ELT(n % 3 + 1, 'fragile', NULL, 'gift 🎁'))"
)

JSON = Rows(
    name="json",
    about="JSON documents of 0.5 to 2 KB, in transactions of 100 rows",
    table="documents",
    definition=f"CREATE TABLE {DATABASE}.documents (id BIGINT NOT NULL PRIMARY KEY, document JSON NOT NULL)",
    row=(
        "n, JSON_OBJECT('id', n, 'version', 1, 'status', 'new', 'placed', CONCAT('2024-01-', n % 28 + 1), "
        "'customer', JSON_OBJECT('name', CONCAT('Customer ', n, ' Müller'), "
        "'vip', n % 2 = 0, 'score', n / 8), "
        f"'lines', JSON_ARRAY({', '.join(_LINE.format(i=i) for i in range(1, 5))}), "
        "'text', REPEAT('Deliver between nine and noon. ', n % 48))"
    ),
    change="document = JSON_SET(document, '$.version', 2, '$.status', 'sent', '$.customer.seen', CRC32(id))",
    texts=("id", "document"),
    rows=120_000,
)
