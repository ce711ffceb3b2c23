"""What a server says of a definition that it refuses, and which advice comes with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pymysql
import pytest
from pyspark.sql import SparkSession
from tests.sinks.conformance import with_servers
from tests.sinks.conformance.case import Case, column

from penstock.errors import TableError
from penstock.sinks.sql.registration import JDBC

pytestmark = pytest.mark.slow


def case(spark: SparkSession, folder: Path, product: str) -> Case:
    from dataclasses import replace

    return Case(spark, replace(JDBC, example=lambda _: with_servers.options(f"jdbc-{product}")), folder)


def refused(it: Case, *, dropped: bool = False) -> TableError:
    columns = [column("id", pa.int64(), "id")]
    if not dropped:
        columns.append(column("name", pa.int32(), "name"))
    with pytest.raises(TableError) as caught:
        it.evolve(2, *columns, narrowing="rewrite")
    assert "penstock unpark" in caught.value.hint and "secret" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("dropped", [False, True])
def test_postgresql_says_which_view_hinders_a_change(
    spark: SparkSession, tmp_path: Path, dropped: bool
) -> None:
    it = case(spark, tmp_path, "postgresql").create()
    it.append(1, (1, "secret", False, 10))
    made = with_servers.server("postgresql")
    place = f'"{it.table.database}"."orders"'
    with psycopg.connect(made.url, user=made.user, password=made.password, autocommit=True) as session:
        session.execute(f'CREATE VIEW "{it.table.database}".shown AS SELECT name FROM {place}')
        error = refused(it, dropped=dropped)
        assert "shown" in error.message and "view" in error.hint, error
        session.execute(f'DROP VIEW "{it.table.database}".shown')
    columns = [column("id", pa.int64(), "id")]
    assert it.evolve(2, *columns, narrowing="rewrite"), "the cure works"


def test_mysql_says_that_it_wants_a_primary_key(spark: SparkSession, tmp_path: Path) -> None:
    made: Any = with_servers.server("mysql80")
    session = pymysql.connect(
        host=made.host, port=made.port, user=made.user, password=made.password, autocommit=True
    )
    with session, session.cursor() as cursor:
        cursor.execute("SET GLOBAL sql_require_primary_key = ON")
        try:
            # Its sessions begin with this setting. A table without a key has no primary key either.
            it = case(spark, tmp_path, "mysql80").again(key=())
            with pytest.raises(TableError, match="3750") as caught:
                it.create()
            assert "primary key" in caught.value.message and "sql_require_primary_key" in caught.value.hint
        finally:
            cursor.execute("SET GLOBAL sql_require_primary_key = OFF")
    it.create()
    assert it.append(1, (1, "a", False, 10)) and it.state().columns == ("id", "name")


def test_duckdb_says_what_depends_on_a_column(spark: SparkSession, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    it = case(spark, tmp_path, "duckdb").create()
    it.append(1, (1, "secret", False, 10))
    with duckdb.connect(it.kind.example(tmp_path).address.database) as session:
        session.execute(f'CREATE INDEX own ON "{it.table.database}"."orders" (name)')
    error = refused(it, dropped=True)
    assert "depend" in error.message and "index" in error.hint, error
