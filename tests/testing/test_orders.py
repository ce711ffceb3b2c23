from __future__ import annotations

from collections.abc import Callable

from penstock.testing import servers
from penstock.testing.orders import Orders, write


def test_log_and_table_hold_what_the_scale_says(mysql_factory: Callable[..., servers.MySqlServer]) -> None:
    server = mysql_factory()
    orders = Orders(scale=1 / 300)
    before = server.query("SHOW GLOBAL STATUS LIKE 'Binlog_cache_use'")[0][1]
    write(server, orders)
    transactions = int(server.query("SHOW GLOBAL STATUS LIKE 'Binlog_cache_use'")[0][1]) - int(before)
    assert server.query("SELECT COUNT(*) FROM bench.orders") == [(orders.rows,)]
    updated = "SET time_zone = '+00:00'"
    with server.connect(init_command=updated) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM bench.orders WHERE updated_at = '2024-12-31 23:59:59.999'")
        # The deletes take the first hundred of each thousand, which had been updated.
        assert cursor.fetchone()[0] == orders.updates - orders.deletes
    assert transactions >= orders.changes // 100
    assert len(server.query("SHOW COLUMNS FROM bench.orders")) == 15


def test_full_scale_is_the_published_workload() -> None:
    orders = Orders()
    assert (orders.inserts, orders.updates, orders.deletes, orders.rows) == (
        600_000,
        300_000,
        60_000,
        540_000,
    )
