"""System-versioned tables of MariaDB: their rows in the log are not those that a SELECT shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.sources.mysql.receiving import receiving
from tests.sources.mysql.test_merge_tables import parked
from tests.sources.mysql.test_statements import MADE, SERVER, Pipeline, T

from penstock._core import DecodeError, RangeDecoder
from penstock.config import TablesConfig
from penstock.model.offset import LogRange
from penstock.model.schema import TableId
from penstock.sources.mysql.catalog import read_tables
from penstock.sources.mysql.options import MySqlOptions
from penstock.sources.mysql.session import SourceSession
from penstock.testing import servers

MARIADB = replace(SERVER, version=(10, 11, 5), mariadb=True)
V = TableId("shop", "v")


def test_a_table_that_is_made_system_versioned_is_parked() -> None:
    pipeline = Pipeline(server=MARIADB)
    columns = "id INT PRIMARY KEY, a INT"
    bounds = "s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, e TIMESTAMP(6) GENERATED ALWAYS AS ROW END"
    for body in (
        f"({columns}) WITH SYSTEM VERSIONING",
        f"({columns} WITH SYSTEM VERSIONING)",
        f"({columns}, {bounds}, PERIOD FOR SYSTEM_TIME (s, e)) WITH SYSTEM VERSIONING",
    ):
        found = parked(pipeline.run(f"CREATE TABLE v {body}"))
        assert "is system-versioned" in found[V], body
        pipeline.run("DROP TABLE v")
    assert not parked(pipeline.run(f"CREATE TABLE v ({columns} WITHOUT SYSTEM VERSIONING)"))


def test_a_table_that_becomes_system_versioned_is_parked() -> None:
    pipeline = Pipeline(server=MARIADB)
    pipeline.run(MADE)
    assert "is system-versioned" in parked(pipeline.run("ALTER TABLE t ADD SYSTEM VERSIONING"))[T]


def test_a_system_versioned_table_that_takes_a_captured_name_is_parked() -> None:
    pipeline = Pipeline("shop.t", server=MARIADB)
    pipeline.run("CREATE TABLE t_next (id INT PRIMARY KEY) WITH SYSTEM VERSIONING")
    assert "is system-versioned" in parked(pipeline.run("RENAME TABLE t_next TO t"))[T]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mariadb1011", "mariadb118"])
def test_the_catalog_tells_system_versioned_tables_and_their_rows_are_not_decoded(
    name: str, tmp_path: Path
) -> None:
    with servers.FLAVORS[name]() as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.plain (id INT PRIMARY KEY, v BLOB UNIQUE)")
        server.execute("CREATE TABLE d.v (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING")
        server.execute("INSERT INTO d.plain VALUES (1, 'x')", "INSERT INTO d.v VALUES (1, 1), (2, 2)")
        server.execute("UPDATE d.v SET v = 9 WHERE id = 1", "DELETE FROM d.v WHERE id = 2")
        options = MySqlOptions(host="127.0.0.1", port=server.port, user=server.user, password=server.password)
        session = SourceSession(options, tmp_path)
        tables = {TableId("d", "plain"), TableId("d", "v")}
        found = session.unfollowable(tables, cascades=True, reads=True)
        session.close()
        assert set(found) == {TableId("d", "v")} and "DROP SYSTEM VERSIONING" in found[TableId("d", "v")][1]
        with server.connect() as connection:
            schemas = read_tables(connection, TablesConfig(include=["d.*"]))
        with receiving(server, tmp_path) as receiver:
            receiver.wait_until_level()
            log = receiver.log
            decoded = {}
            for table, schema in schemas.items():
                [split] = log.splits(LogRange(log.start, log.end), table, bytes_aim=1 << 30)
                decoder = RangeDecoder(
                    schema.to_json(), split.path, split.base, split.start, split.end, preamble=split.preamble
                )
                try:
                    decoded[table.table] = sum(batch.num_rows for batch in decoder)
                except DecodeError as error:
                    decoded[table.table] = error.reason
        assert decoded["plain"] == 1, "the column behind a UNIQUE of a BLOB is no column of versioning"
        assert "system versioning" in str(decoded["v"])
