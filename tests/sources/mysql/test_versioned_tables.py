"""System-versioned tables of MariaDB: their rows in the log are not those that a SELECT shows."""

from __future__ import annotations

from dataclasses import replace

from tests.sources.mysql.test_merge_tables import parked
from tests.sources.mysql.test_statements import MADE, SERVER, Pipeline, T

from penstock.model.schema import TableId

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
