"""`penstock.changes.follow` on the log of PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import psycopg
from tests.sources.postgresql.receiving import Receiving

from penstock.changes import ChangeBatch, follow
from penstock.testing.servers.postgresql import PostgreSqlServer


def test_a_deletion_has_the_key_of_its_row(
    server: PostgreSqlServer, connection: psycopg.Connection[object], tmp_path: Path
) -> None:
    receiving = Receiving(server, tmp_path, "deleted")
    connection.execute("CREATE TABLE public.deleted (id int PRIMARY KEY, v text NOT NULL)")
    connection.execute("CREATE PUBLICATION penstock_deleted FOR TABLE public.deleted")
    with receiving.started():
        receiving.wait_until_streaming()
        connection.execute("INSERT INTO public.deleted VALUES (1, 'one')")
        connection.execute("DELETE FROM public.deleted")
        receiving.wait_until_received(connection)
    found: list[tuple[object, ...]] = []
    with follow(receiving.file, ["public.deleted"], start="earliest", until=receiving.log().end) as changes:
        for item in changes:
            if isinstance(item, ChangeBatch):
                columns = [item.batch.column(name).to_pylist() for name in ("_change_type", "id", "v")]
                found += zip(*columns, strict=True)
    assert found == [("insert", 1, "one"), ("delete", 1, None)]
