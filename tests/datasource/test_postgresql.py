"""`spark.readStream.format("penstock")` over PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.datasource.test_stream import Following
from tests.sources.postgresql.pg_log import connected

from penstock.datasource.options import parse
from penstock.errors import ConfigError
from penstock.testing.servers.postgresql import PostgreSqlServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSqlServer]:
    with PostgreSqlServer(settings={"wal_level": "logical"}) as server:
        yield server


def options_of(server: PostgreSqlServer) -> dict[str, Any]:
    return {
        "type": "postgresql", "host": server.host, "port": server.port, "database": server.database,
        "user": server.user, "password": server.password, "publication": "of_spark", "slot": "of_spark",
    }  # fmt: skip


@pytest.mark.slow
def test_a_stream_has_the_rows_and_then_each_change(
    spark: SparkSession, server: PostgreSqlServer, tmp_path: Path
) -> None:
    with connected(server) as connection:
        connection.execute(
            "CREATE TABLE public.orders (id int PRIMARY KEY, total numeric(9,2) NOT NULL, tags int[])"
        )
        connection.execute("CREATE PUBLICATION of_spark FOR TABLE public.orders")
        connection.execute("INSERT INTO public.orders SELECT n, n, ARRAY[n] FROM generate_series(1, 10) n")
        following = Following(spark, tmp_path, "public.orders", format="penstock", **options_of(server))
        following.start(processingTime="1 second")
        try:
            following.wait(10)
            connection.execute("UPDATE public.orders SET total = 100 WHERE id = 3")
            connection.execute("DELETE FROM public.orders WHERE id = 4")
            following.wait(13)
        finally:
            following.stop()
        rows = following.rows("id", "total", "_change_type")
    assert sorted(row[0] for row in rows if row[2] == "read") == list(range(1, 11))
    assert [(row[0], row[2]) for row in rows if row[2] != "read"][-1] == (4, "delete")
    assert [str(row[1]) for row in rows if row[2] == "update_postimage"] == ["100.00"]
    before = [row[1] for row in rows if row[2] in ("update_preimage", "delete")]
    assert before == [None, None], "the log has only the keys of rows before their changes"


def test_what_would_be_named_after_a_pipeline_has_to_be_given(tmp_path: Path) -> None:
    options = {"type": "postgresql", "host": "h", "database": "d", "user": "u", "table": "public.t"}
    with pytest.raises(ConfigError, match="`publication`"):
        parse({**options, "state": str(tmp_path)}).pipeline()
    with pytest.raises(ConfigError, match="debezium"):
        parse({"type": "debezium", "table": "a.b", "state": str(tmp_path)})
