"""Stored generated columns that a publication has (version 18): they are in the log, in what is read of the
table, and the table is read again when their expression changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.sources.postgresql.receiving import Receiving

from penstock._core import RangeDecoder
from penstock.model.chunk import Chunk
from penstock.model.offset import LogRange
from penstock.model.schema import DEFAULT_TYPES, TableId
from penstock.relaylog.segment_bytes import opened
from penstock.sources.postgresql.catalog import PgTable, read_tables
from penstock.sources.postgresql.reading import Received, copy
from penstock.testing.servers.postgresql import PostgreSqlServer

TABLE = TableId("public", "computed")


@pytest.fixture
def publication(server: PostgreSqlServer, connection: psycopg.Connection[Any]) -> Iterator[str]:
    if server.version < 18:
        pytest.skip("generated columns are never published")
    connection.execute(
        "CREATE TABLE public.computed (id int PRIMARY KEY, a int, g int GENERATED ALWAYS AS (a * 2) STORED, "
        "v int GENERATED ALWAYS AS (a + 1) VIRTUAL, z text)"
    )
    name = "penstock_computed"
    published = "FOR TABLE public.computed WITH (publish_generated_columns = stored)"
    connection.execute(f"CREATE PUBLICATION {name} {published}".encode())
    yield name
    connection.execute(f"DROP PUBLICATION {name}".encode())
    connection.execute("DROP TABLE public.computed")


def _logged(receiving: Receiving, table: PgTable) -> list[dict[str, Any]]:
    log, found = receiving.log(), list[dict[str, Any]]()
    for split in log.splits(LogRange(log.start, log.end), table.table, bytes_aim=1 << 24):
        part = opened(split)
        decoder = RangeDecoder(
            table.schema.to_json(), *part.place, preamble=part.preamble, layout="changelog"
        )
        found += [row for batch in decoder for row in batch.to_pylist()]
    return [{name: row[name] for name in ("id", "a", "g", "z")} for row in found]


def test_a_stored_generated_column_is_in_the_log_and_in_the_table(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], publication: str, tmp_path: Path
) -> None:
    receiving = Receiving(server, tmp_path, "computed")
    [table] = read_tables(connection, publication, names=[TABLE])
    assert [one.name for one in table.columns] == ["id", "a", "g", "z"]
    select = "SELECT id, a, g, z FROM public.computed ORDER BY id"
    with receiving.started():
        receiving.wait_until_streaming()
        connection.execute("INSERT INTO public.computed VALUES (1, 10, DEFAULT, DEFAULT, 'x')")
        connection.execute("INSERT INTO public.computed (id, z) VALUES (2, NULL)")
        receiving.wait_until_received(connection)
        wanted = [dict(zip(("id", "a", "g", "z"), row, strict=True)) for row in connection.execute(select)]
        assert wanted[0]["g"] == 20
        assert _logged(receiving, table) == wanted
        with connection.transaction():
            whole = Chunk(TABLE, 0, None, None)
            batches = list(copy(connection, table, whole, DEFAULT_TYPES, Received()))
        assert [row for batch in batches for row in batch.to_pylist()] == wanted
        connection.execute("ALTER TABLE public.computed ALTER g SET EXPRESSION AS (a * 3)")
        receiving.wait(receiving.statements, "a look at the catalog")
        [(_, said)] = receiving.statements()
        assert "column g may have been converted" in said["reread"]
        connection.execute(f"ALTER PUBLICATION {publication} SET (publish_generated_columns = none)".encode())
        receiving.wait(lambda: len(receiving.statements()) > 1, "a look at the catalog")
        _, (_, said) = receiving.statements()
        assert [column["name"] for column in said["altered"]["columns"]] == ["id", "a", "z"]
