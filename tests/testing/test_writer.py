from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pymysql
import pytest
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from penstock.testing import oracle, servers, workload
from penstock.testing.writer import PLACED_MAX, SMALL, Writer, place_orders

Factory = Callable[..., servers.MySqlServer]


def logged_changes(server: servers.MySqlServer, start: tuple[str, int], database: str) -> Counter[str]:
    """Row changes in the server's log after `start`, counted by python-mysql-replication."""
    reader = BinLogStreamReader(
        connection_settings={
            "host": server.host, "port": server.port, "user": server.user, "passwd": server.password,
        },
        server_id=4711, log_file=start[0], log_pos=start[1], resume_stream=True, blocking=False,
        only_events=[DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent], only_schemas=[database],
    )  # fmt: skip
    counted: Counter[str] = Counter()
    for event in reader:
        counted[type(event).__name__] += len(event.rows)
    reader.close()
    return counted


def wait_until(condition: Callable[[], bool], timeout_s: float = 60) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def test_counts_are_what_the_log_holds(emptied_mysql: Factory) -> None:
    server = emptied_mysql(binlog_row_metadata="FULL")
    shop = workload.Shop.of_rows(5000)
    workload.load(server, shop)
    start = server.position()
    with Writer(server, shop, rate=5000, large_every_s=0.5, large_rows=1500) as writer:
        assert wait_until(lambda: writer.counts.large_transactions >= 3 and writer.counts.transactions > 300)
    counts = writer.counts
    logged = logged_changes(server, start, shop.database)
    assert logged == Counter(
        WriteRowsEvent=counts.inserts, UpdateRowsEvent=counts.updates, DeleteRowsEvent=counts.deletes
    )
    assert min(counts.inserts, counts.updates, counts.deletes, counts.key_changes, counts.rollbacks) > 0


def test_rolled_back_changes_are_not_there(emptied_mysql: Factory) -> None:
    server = emptied_mysql()
    shop = workload.Shop.of_rows(1000)
    workload.load(server, shop)
    with Writer(server, shop, rate=3000, large_every_s=0) as writer:
        assert wait_until(lambda: writer.counts.rollbacks > 5)
    # Orders and their items are committed together; a rollback leaves neither, one to a savepoint all orders.
    orphans = server.query(
        "SELECT COUNT(*) FROM shop.orders o LEFT JOIN shop.items i ON i.order_id = o.id "
        f"WHERE o.id > {shop.orders} AND i.order_id IS NULL"
    )
    assert orphans == [(0,)]


def test_a_paused_writer_changes_nothing_until_it_has_a_rate_again(emptied_mysql: Factory) -> None:
    server = emptied_mysql()
    shop = workload.Shop.of_rows(1000)
    workload.load(server, shop)
    with Writer(server, shop, rate=3000, large_every_s=0) as writer:
        assert wait_until(lambda: writer.counts.transactions > 20)
        before, place = writer.pause(), server.position()
        assert not wait_until(lambda: writer.counts != before or server.position() != place, timeout_s=0.5)
        writer.rate = 3000
        assert wait_until(lambda: writer.counts.transactions > before.transactions)


@pytest.mark.slow
def test_a_steady_writer_takes_away_what_it_added_and_keeps_the_first_rows(emptied_mysql: Factory) -> None:
    server = emptied_mysql()
    shop = workload.Shop.of_rows(1000)
    workload.load(server, shop)
    threads, spare = 2, 60
    with Writer(
        server,
        shop,
        rate=float("inf"),
        threads=threads,
        large_every_s=1,
        large_rows=9000,
        size=2,
        steady=True,
    ) as writer:
        assert wait_until(lambda: writer.counts.transactions > 3000)
    of_ours = f"SELECT COUNT(DISTINCT id DIV 1000) FROM shop.orders WHERE id > {shop.orders}"
    [(blocks,)] = server.query(of_ours)
    placed = writer.counts.transactions * SMALL[place_orders] / 100  # about so many blocks
    # How many are left depends on how long ago a large transaction deleted rows.
    assert blocks <= threads * (PLACED_MAX + spare) < placed
    assert server.query(f"SELECT COUNT(*) FROM shop.customers WHERE id > {shop.customers}")[0][0] <= threads
    assert server.query("SELECT COUNT(*) FROM shop.customers") == [(shop.customers,)]


def test_rate_is_kept(emptied_mysql: Factory) -> None:
    server = emptied_mysql()
    shop = workload.Shop.of_rows(5000)
    workload.load(server, shop)
    began = time.monotonic()
    with Writer(server, shop, rate=200, large_every_s=0) as writer:
        assert wait_until(lambda: writer.counts.changes > 600)
        rate = writer.counts.changes / (time.monotonic() - began)
    assert rate < 300


def test_a_thread_that_fails_is_told_of(emptied_mysql: Factory) -> None:
    server = emptied_mysql()
    writer = Writer(server, workload.Shop.of_rows(100, database="missing"))
    writer.start()
    assert wait_until(lambda: not writer.running)
    with pytest.raises(pymysql.err.MySQLError, match="missing"):
        writer.stop()


def test_weights_of_small_transactions_are_percent() -> None:
    assert sum(SMALL.values()) == 100


def test_key_changes_move_whole_rows(mysql: servers.Database) -> None:
    mysql.execute("CREATE TABLE t (a INT PRIMARY KEY, b FLOAT)", "INSERT INTO t VALUES (1, 0.1), (2, NULL)")
    mysql.execute("UPDATE t SET a = a + 10 ORDER BY a DESC")
    assert oracle.rows_of(mysql, f"{mysql.name}.t") == [("11", "0.10000000149011612"), ("12", None)]
