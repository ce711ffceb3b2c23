"""What the source computes for a comparison, on a real server."""

from __future__ import annotations

from contextlib import closing

from penstock.model.buckets import RangeBuckets
from penstock.model.schema import DEFAULT_TYPES, TableId
from penstock.sources.mysql.catalog import read_table
from penstock.sources.mysql.verify.read_view import read_view
from penstock.testing.servers import Database


def test_each_row_counts_once_whatever_a_column_is_called(mysql: Database) -> None:
    mysql.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, bucket INT)",
        f"INSERT INTO t VALUES {', '.join(f'({number}, {number % 3})' for number in range(20))}",
    )
    with closing(mysql.connect()) as connection, read_view(connection) as view:
        schema = read_table(connection, TableId(mysql.name, "t"))
        assert schema is not None
        sums = view.sums(schema, RangeBuckets("id", 10), DEFAULT_TYPES)
    assert {number: found.rows for number, found in sums.items()} == {0: 10, 1: 10}
