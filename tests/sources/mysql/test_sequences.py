"""Sequences of MariaDB: their rows are in the log, but pipelines do not copy them."""

from __future__ import annotations

from tests.sources.mysql.test_statements import Pipeline

from penstock.model.schema import TableId
from penstock.sources.mysql.ddl.server import Server

SERVER = Server((10, 11, 5), mariadb=True, sql_mode=None)


def test_pipelines_do_not_capture_a_sequence_under_any_name() -> None:
    shop = Pipeline(server=SERVER)
    assert shop.run("CREATE SEQUENCE s START WITH 5") == []
    assert shop.run("RENAME TABLE s TO u") == []
    assert shop.run("CREATE OR REPLACE SEQUENCE u") == [] and shop.asked == []
    shop.run("CREATE TABLE t (id INT PRIMARY KEY)")
    [effect] = shop.run("CREATE OR REPLACE SEQUENCE t")
    assert effect.dropped


def test_readers_of_all_tables_know_the_columns_of_a_sequence() -> None:
    shop = Pipeline(server=SERVER)
    shop._captured.sequences = True
    [effect] = shop.run("CREATE SEQUENCE s")
    assert effect.created is not None
    columns = [(column.name, column.column_type) for column in effect.created.columns]
    assert columns[0] == ("next_not_cached_value", "bigint(21)")
    assert columns[5:7] == [("cache_size", "bigint(21) unsigned"), ("cycle_option", "tinyint(1) unsigned")]
    assert len(columns) == 8


def test_a_partition_that_becomes_a_table_has_the_columns_that_it_had() -> None:
    shop = Pipeline(server=SERVER)
    [made] = shop.run("CREATE TABLE t (id INT PRIMARY KEY, a INT) PARTITION BY HASH (id)")
    effects = {one.table.table: one for one in shop.run("ALTER TABLE t CONVERT PARTITION p0 TO TABLE u")}
    assert made.created is not None and effects["t"].rereads
    created = effects["u"].created
    assert created is not None and created.columns == made.created.columns and effects["u"].fills
    effects = {one.table.table: one for one in shop.run("ALTER TABLE t CONVERT TABLE u TO PARTITION p0")}
    assert effects["u"].dropped and effects["t"].rereads and shop.live.keys() == {TableId("shop", "t")}
