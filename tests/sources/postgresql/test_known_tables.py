"""Tables that are looked up by number, name and partition; and how often the catalog is read for many."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.sources.postgresql.pg_log import PgLog

from penstock._core import PgTranslator
from penstock.model.schema import TableId
from penstock.sources.postgresql import followed_tables
from penstock.sources.postgresql.catalog import PgLeaf, PgTable, read_tables
from penstock.sources.postgresql.followed_tables import FollowedTables
from penstock.sources.postgresql.known_tables import KnownTables
from penstock.testing.servers.postgresql import PostgreSqlServer

TABLES = 200


def table(number: int, name: str, *leaves: int) -> PgTable:
    parts = tuple(PgLeaf(leaf, None) for leaf in leaves)
    return PgTable(number, TableId("s", name), "p", "p", "d", None, True, "", None, 1, (), (), parts)


def test_a_table_is_found_by_what_it_is_now() -> None:
    known = KnownTables([table(1, "a", 10, 11), table(2, "b")])
    a, b = TableId("s", "a"), TableId("s", "b")
    assert (known.named([a, b]), known.named([TableId("s", "c")])) == ({1, 2}, set())
    known.set(1, replace(known[1], table=b, leaves=(PgLeaf(11, None), PgLeaf(12, None))))
    assert (known.named([a]), known.named([b]), known.roots) == (set(), {1, 2}, {11: 1, 12: 1})
    known.set(2, table(2, "a", 12))  # the partition is its own before the first table says so
    known.set(1, None)
    assert (known.named([b]), known.roots, 1 in known, set(known.numbers)) == (set(), {12: 2}, False, {2})
    known.set(3, None)
    assert [one.number for one in known] == [2]


def test_tables_that_are_described_together_are_read_together(
    server: PostgreSqlServer,
    connection: psycopg.Connection[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection.execute("DROP SCHEMA IF EXISTS many CASCADE; CREATE SCHEMA many")
    names = [f"many.t{number}" for number in range(TABLES)]
    connection.execute(";".join(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in names).encode())
    log = PgLog(server, connection, "many")
    try:
        tables = FollowedTables(tmp_path, "all")
        tables.begin(connection)
        connection.execute(";".join(f"INSERT INTO {name} VALUES (1)" for name in names).encode())
        log.replication.start("many", "all", log.start, binary=True)
        translator, described = PgTranslator(log.start, 0), dict[str, str]()
        reads = list[Collection[int] | None]()

        def counted(*arguments: Any, numbers: Collection[int] | None = None) -> list[PgTable]:
            reads.append(numbers)
            return read_tables(*arguments, numbers=numbers)

        monkeypatch.setattr(followed_tables, "read_tables", counted)
        batches = 0
        while len(described) < TABLES:
            if unknown := translator.unknown(log.replication.take(60.0, 1 << 20)):
                batches += 1
                with tables.read_ahead(connection, unknown):
                    for one in unknown:
                        [(message, found)] = tables.described(connection, [one])
                        translator.describe(message, found.definition, root=found.root)
                        described[f"{one[1]}.{one[2]}"] = found.definition
        assert sorted(described) == sorted(names)
        assert len(reads) <= batches < TABLES
    finally:
        log.close()
        connection.execute("DROP SCHEMA many CASCADE")
