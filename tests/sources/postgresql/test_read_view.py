"""A view for `verify`: what it sums up are the rows of one moment, or it says that it cannot know them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.sources.postgresql.pg_log import connected
from tests.sources.postgresql.receiving import Receiving

from penstock.errors import TableError
from penstock.model.buckets import RangeBuckets
from penstock.model.schema import DEFAULT_TYPES, TableId
from penstock.sources.postgresql.catalog import read_tables
from penstock.sources.postgresql.options import options_of
from penstock.sources.postgresql.read_view import PostgreSqlReadView, read_view
from penstock.testing.servers.postgresql import PostgreSqlServer

BUCKETS = RangeBuckets("id", 1000)
Sums = Callable[[PostgreSqlReadView], int]


@pytest.fixture
def options(server: PostgreSqlServer, tmp_path: Path) -> Any:
    return options_of(Receiving(server, tmp_path, "viewed").config)


def rows_in(view: PostgreSqlReadView, connection: psycopg.Connection[Any], name: str) -> int:
    (table,) = read_tables(connection, "all", names=[TableId("public", name)])
    sums = view.sums(table.schema, BUCKETS, DEFAULT_TYPES)
    return sum(one.rows for one in sums.values())


def test_a_view_shows_what_was_there_when_it_was_opened(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], options: Any
) -> None:
    connection.execute("CREATE TABLE public.viewed AS SELECT id FROM generate_series(1, 2500) id")
    connection.execute("ALTER TABLE public.viewed ADD PRIMARY KEY (id)")
    with read_view(options, "all") as view:
        connection.execute("DELETE FROM public.viewed WHERE id > 10")
        assert rows_in(view, connection, "viewed") == 2500
    with read_view(options, "all") as view:
        assert rows_in(view, connection, "viewed") == 10


@pytest.mark.parametrize(
    "statement", ["TRUNCATE public.{0}", "ALTER TABLE public.{0} ALTER note TYPE int USING 1"]
)
@pytest.mark.parametrize("partitioned", [False, True])
def test_rows_that_a_view_cannot_show_any_more_are_not_taken_for_missing(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], options: Any, statement: str,
    partitioned: bool,
) -> None:  # fmt: skip
    name = f"gone_{partitioned}_{statement[:5]}".lower()
    by = " PARTITION BY RANGE (id)" if partitioned else ""
    connection.execute(f"CREATE TABLE public.{name} (id int PRIMARY KEY, note text){by}".encode())
    if partitioned:
        connection.execute(f"CREATE TABLE public.{name}_1 PARTITION OF public.{name} DEFAULT".encode())
    connection.execute(f"INSERT INTO public.{name} SELECT generate_series(1, 100)".encode())
    with read_view(options, "all") as view:
        with connected(server) as other:
            other.execute(statement.format(name).encode())
        row = view.connection.execute(f"SELECT count(*) FROM public.{name}".encode()).fetchone()
        assert row == (0,), "the server shows all rows to a view that is older"
        with pytest.raises(TableError, match=r"Run it again|another definition"):
            rows_in(view, connection, name)
