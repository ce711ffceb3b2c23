"""Writes the log `orders.binlog` of some changes of `bench.orders`, and its schema, from a real MySQL 8.0;
`small.binlog` has transactions that change one row each.

PYTHONPATH=src .venv/bin/python core/bench/generate.py
"""

from __future__ import annotations

import shutil
from pathlib import Path

from penstock.model.schema import TableId
from penstock.sources.mysql.catalog import read_table
from penstock.testing import orders, servers


def main() -> None:
    here = Path(__file__).parent
    with servers.MySqlServer({"binlog_row_metadata": "FULL"}) as server:
        orders.create(server)
        server.execute("FLUSH BINARY LOGS")
        update = (
            "UPDATE bench.orders SET status = status % 5 + 1, amount = amount + 0.0001, "
            "priority = 255 - priority, updated_at = '2024-12-31 23:59:59.999' WHERE id BETWEEN"
        )
        server.execute(
            "SET time_zone = '+00:00'",
            *(orders.insert(100, first) for first in (100_001, 100_101, 100_201, 100_301)),
            *(f"{update} {first} AND {first + 99}" for first in (100_001, 100_201)),
            "DELETE FROM bench.orders WHERE id BETWEEN 100001 AND 100100",
        )
        server.execute("FLUSH BINARY LOGS")
        shutil.copy(server.binlog_files()[-2], here / "orders.binlog")
        server.execute(*(f"{update} {number} AND {number}" for number in range(100_201, 100_401)))
        server.execute("FLUSH BINARY LOGS")
        shutil.copy(server.binlog_files()[-2], here / "small.binlog")
        with server.connect() as connection:
            schema = read_table(connection, TableId("bench", "orders"))
        assert schema is not None
        (here / "orders.json").write_text(schema.to_json() + "\n")


if __name__ == "__main__":
    main()
