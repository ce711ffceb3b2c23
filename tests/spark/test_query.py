"""Which statements `penstock query` takes, as Spark's own parsers with Iceberg and Delta see them."""

from __future__ import annotations

import pytest
from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from penstock.errors import ConfigError
from penstock.spark.query import refuse_changes


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "(SELECT 1) UNION ALL SELECT 2;",
        "/* why */ WITH a AS (SELECT 1 AS x) SELECT x FROM a ORDER BY x LIMIT 3 -- so",
        "FROM orders SELECT id",
        "FROM orders |> WHERE id > 1",
        "VALUES (1), (2)",
        "TABLE orders",
        "SELECT * FROM lake.shop.orders VERSION AS OF 3",
        "show tables",
        "DESCRIBE orders",
        "EXPLAIN SELECT 1",
    ],
)
def test_what_only_reads_is_taken(spark: SparkSession, sql: str) -> None:
    refuse_changes(spark, sql)


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE lake.shop.orders",
        "  -- a comment\n drop table orders",
        "INSERT INTO orders SELECT * FROM orders",
        "WITH a AS (SELECT 1 AS id) INSERT INTO orders SELECT * FROM a",
        "FROM orders INSERT INTO a SELECT * INSERT INTO b SELECT *",
        "FROM orders INSERT INTO a SELECT *",
        "DELETE FROM orders",
        "UPDATE orders SET id = 1",
        "MERGE INTO orders USING a ON orders.id = a.id WHEN MATCHED THEN DELETE",
        "CREATE TABLE x AS SELECT 1 AS id",
        "ALTER TABLE lake.shop.orders CREATE BRANCH b",
        "CALL lake.system.expire_snapshots('shop.orders')",
        "OPTIMIZE delta.`/x`",
        "EXECUTE IMMEDIATE 'DROP TABLE orders'",
        "BEGIN DROP TABLE orders; END",
        "SET spark.sql.ansi.enabled = false",
    ],
)
def test_what_changes_something_is_refused(spark: SparkSession, sql: str) -> None:
    with pytest.raises(ConfigError, match="only reads"):
        refuse_changes(spark, sql)


def test_what_is_no_sql_is_told_by_spark(spark: SparkSession) -> None:
    with pytest.raises(ParseException):
        refuse_changes(spark, "SELECT 1; DROP TABLE orders")
