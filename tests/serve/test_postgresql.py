"""A subscription server over PostgreSQL's log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.serve.serving import Serving, eventually, serving
from tests.sources.postgresql.pg_log import connected

from penstock.client import connect
from penstock.testing.servers.postgresql import PostgreSqlServer


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSqlServer]:
    with PostgreSqlServer(settings={"wal_level": "logical"}) as server:
        with connected(server) as connection:
            connection.execute("CREATE PUBLICATION served FOR ALL TABLES")
            connection.execute("CREATE TABLE public.orders (id int PRIMARY KEY, a numeric(9,2), b text)")
        yield server


@pytest.fixture
def connection(server: PostgreSqlServer) -> Iterator[psycopg.Connection[Any]]:
    with connected(server) as connection:
        connection.execute("TRUNCATE public.orders")
        yield connection


def options(server: PostgreSqlServer, name: str, positions: Path, **more: Any) -> dict[str, Any]:
    source = {
        "type": "postgresql", "host": server.host, "port": server.port, "database": server.database,
        "user": server.user, "password": server.password, "slot": name, "publication": "served",
    }  # fmt: skip
    return {
        "listen": {"grpc": "127.0.0.1:0"},
        "source": source,
        "destinations": {"shop": {"filter": r"public\..*", "start": "earliest"}},
        "positions": {"type": "file", "path": str(positions)},
        **more,
    }


def wait_for_slot(connection: psycopg.Connection[Any], name: str) -> None:
    query = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND active"
    eventually(lambda: connection.execute(query, (name,)).fetchone(), "receiver")


def ids_of(changes: list[dict[str, Any]]) -> list[int]:
    return [one["after"]["id"] for one in changes if one.get("after")]


def read(serving: Serving, count: int, client: str = "billing") -> list[int]:
    """The ids of so many changes, which are acknowledged."""
    found: list[int] = []
    with (
        connect(serving.listening["grpc"]) as server,
        server.subscribe("shop", client, filter=r"public\.orders", size=2) as batches,
    ):
        while len(found) < count:
            batch = next(batches)
            found += ids_of(batch.changes)
            batch.acknowledge()
    return found


def test_clients_read_changes_and_typed_rows_and_go_on_after_a_restart(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    with serving(server, tmp_path, **options(server, "one", tmp_path / "positions")) as made:
        wait_for_slot(connection, "one")
        connection.execute("INSERT INTO public.orders VALUES (1, 1.50, 'a'), (2, 2.25, NULL)")
        assert read(made, 2) == [1, 2]
        with (
            connect(made.listening["grpc"]) as client,
            client.subscribe_table("shop", "typed", "public.orders") as stream,
        ):
            rows = next(stream).rows
            assert rows.column("id").to_pylist() == [1, 2]
            connection.execute("DELETE FROM public.orders WHERE id = 2")
            rows = next(stream).rows
            assert [rows.column(name).to_pylist() for name in ("id", "b")] == [[2], [None]]
        made.kill()
        made.start()
        connection.execute("INSERT INTO public.orders VALUES (3, 3, 'c')")
        assert read(made, 1) == [3], "the deletion has no row behind it"


def test_a_subscription_begins_at_a_position_of_the_server(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    with serving(server, tmp_path, **options(server, "placed", tmp_path / "positions")) as made:
        wait_for_slot(connection, "placed")
        connection.execute("INSERT INTO public.orders VALUES (1, 1, ''), (2, 2, '')")
        (place,) = connection.execute("SELECT pg_current_wal_lsn()::text").fetchone() or ("",)
        connection.execute("INSERT INTO public.orders VALUES (3, 3, '')")
        assert read(made, 3) == [1, 2, 3]
        with connect(made.listening["grpc"]) as client, client.read("shop", start={"lsn": place}) as stream:
            assert ids_of(next(stream).changes) == [3]
