from __future__ import annotations

from penstock.testing import oracle, servers, workload


def test_shop_has_the_rows_it_says(mysql_server: servers.MySqlClient) -> None:
    shop = workload.Shop.of_rows(3000, database="shop_rows")
    workload.load(mysql_server, shop, batch_rows=400)
    try:
        found = {
            table: mysql_server.query(f"SELECT COUNT(*) FROM shop_rows.{table}")[0][0]
            for table in workload.TABLES
        }
        assert found == {
            "customers": shop.customers, "items": shop.items, "orders": shop.orders, "products": shop.products
        }  # fmt: skip
        assert sum(found.values()) == shop.rows >= 3000
    finally:
        mysql_server.execute("DROP DATABASE shop_rows")


def test_equal_arguments_give_equal_tables(mysql_server: servers.MySqlClient) -> None:
    names = ["shop_a", "shop_b"]
    try:
        for name, batch_rows in zip(names, (100, 1000), strict=True):
            workload.load(mysql_server, workload.Shop.of_rows(1000, database=name), batch_rows=batch_rows)
        for table in workload.TABLES:
            first, second = (oracle.rows_of(mysql_server, f"{name}.{table}") for name in names)
            oracle.assert_same_rows(first, second)
    finally:
        mysql_server.execute(*(f"DROP DATABASE IF EXISTS {name}" for name in names))


def test_numbers_are_in_order_for_any_count(mysql_server: servers.MySqlClient) -> None:
    for count in (1, 9, 10, 11, 100, 1234):
        rows = mysql_server.query(f"SELECT n FROM {workload.numbers(count, 7)}")
        assert sorted(row[0] for row in rows) == list(range(7, 7 + count))
