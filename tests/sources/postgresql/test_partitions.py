"""Rows of partitions are those of the partitioned table, whichever way the publication sends them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.sources.postgresql.receiving import Receiving, changes_of

from penstock.model.schema import TableId
from penstock.testing.scenario import wait_for
from penstock.testing.servers.postgresql import PostgreSqlServer

PARTITIONS = 1000
TREE = """
CREATE TABLE parted.root (id int, body text, n int DEFAULT 1, PRIMARY KEY (id)) PARTITION BY RANGE (id);
CREATE TABLE parted.plain PARTITION OF parted.root FOR VALUES FROM (0) TO (100);
CREATE TABLE parted.turned (n int, dropped int, body text, id int NOT NULL);
ALTER TABLE parted.turned DROP dropped;
ALTER TABLE parted.root ATTACH PARTITION parted.turned FOR VALUES FROM (100) TO (200);
CREATE TABLE parted.sub PARTITION OF parted.root FOR VALUES FROM (200) TO (300) PARTITION BY RANGE (id);
CREATE TABLE parted.sub_leaf PARTITION OF parted.sub FOR VALUES FROM (200) TO (250);
CREATE TABLE parted.sub_rest PARTITION OF parted.sub DEFAULT;
CREATE TABLE parted.rest PARTITION OF parted.root DEFAULT;
ALTER TABLE parted.root REPLICA IDENTITY FULL;
ALTER TABLE parted.plain REPLICA IDENTITY FULL;
ALTER TABLE parted.turned REPLICA IDENTITY FULL;
ALTER TABLE parted.sub_leaf REPLICA IDENTITY FULL;
ALTER TABLE parted.sub_rest REPLICA IDENTITY FULL;
ALTER TABLE parted.rest REPLICA IDENTITY FULL;
INSERT INTO parted.root SELECT id, 'before' FROM generate_series(1, 399, 3) id;
CREATE TABLE parted.last (id int PRIMARY KEY)
"""
PUBLISHED = {
    "root": "FOR TABLE parted.root, parted.last",
    "all": "FOR ALL TABLES",
    "as_root": "FOR TABLE parted.root, parted.last WITH (publish_via_partition_root = true)",
}
ROOT = TableId("parted", "root")


@pytest.fixture(params=PUBLISHED)
def publication(
    request: pytest.FixtureRequest, server: PostgreSqlServer, connection: psycopg.Connection[Any]
) -> Iterator[str]:
    """Its kind. The tables are new."""
    connection.execute("CREATE SCHEMA parted")
    for statement in TREE.split(";"):
        connection.execute(statement.encode())
    connection.execute(f"CREATE PUBLICATION penstock_parted {PUBLISHED[request.param]}".encode())
    yield request.param
    connection.execute("DROP PUBLICATION penstock_parted")
    connection.execute("DROP SCHEMA parted CASCADE")
    wait_for(
        lambda: connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            "WHERE NOT active AND slot_name = 'penstock_parted'"
        ).fetchall(),
        "the end of the slot",
    )


def _rows(connection: psycopg.Connection[Any]) -> dict[int, tuple[Any, ...]]:
    return {row[0]: row for row in connection.execute("SELECT id, body, n FROM parted.root")}


def _applied(rows: dict[int, tuple[Any, ...]], changes: list[dict[str, Any]]) -> dict[int, tuple[Any, ...]]:
    """What the changes make of the rows."""
    rows = dict(rows)
    for change in changes:
        row = (change["id"], change["body"], change["n"])
        if change["_change_type"] in ("delete", "update_preimage"):
            assert rows.pop(row[0], None) is not None, f"{change} has no row before it"
        else:
            assert row[0] not in rows, f"{change} has a row before it"
            rows[row[0]] = row
    return rows


def _await_look(receiving: Receiving, connection: psycopg.Connection[Any], name: str) -> None:
    """Waits until the log says what the catalog has now."""
    connection.execute(f"ALTER TABLE parted.last ADD {name} int".encode())

    def looked() -> bool:
        said = receiving.statements_of("parted", "last")
        return bool(said) and said[-1]["altered"]["columns"][-1]["name"] == name

    receiving.wait(looked, "a look at the catalog")


def test_rows_of_partitions_are_rows_of_the_table(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], publication: str, tmp_path: Path
) -> None:
    receiving, before = Receiving(server, tmp_path, "parted"), _rows(connection)
    with receiving.started():
        receiving.wait_until_streaming()
        with connection.transaction():
            connection.execute("INSERT INTO parted.root SELECT id, 'new' FROM generate_series(2, 399, 3) id")
            connection.execute("UPDATE parted.root SET body = 'changed ' || id, n = id WHERE id % 7 = 0")
            connection.execute("DELETE FROM parted.root WHERE id % 11 = 0")
        connection.execute("UPDATE parted.root SET id = id + 1000 WHERE id % 13 = 0")  # to other partitions
        receiving.wait_until_received(connection)
        assert _applied(before, changes_of(receiving, connection, ROOT)) == _rows(connection)


ATTACH = "ALTER TABLE {r} ATTACH PARTITION {r}_x FOR VALUES FROM (900) TO (1000)"
CASES = {
    "created": ("CREATE TABLE {r}_x PARTITION OF {r} FOR VALUES FROM (900) TO (1000)",
                "INSERT INTO {r} VALUES (901)"),
    "tree_created": ("CREATE TABLE {r}_t PARTITION OF {r} DEFAULT PARTITION BY RANGE (id)",
                     "CREATE TABLE {r}_x PARTITION OF {r}_t DEFAULT", "INSERT INTO {r} VALUES (901)"),
    "attached": ("CREATE TABLE {r}_x (body text, id int NOT NULL)", "INSERT INTO {r}_x VALUES ('x', 901)",
                 ATTACH),
    "tree_attached": ("CREATE TABLE {r}_x (id int NOT NULL, body text) PARTITION BY RANGE (id)",
                      "CREATE TABLE {r}_y PARTITION OF {r}_x DEFAULT", "INSERT INTO {r}_x VALUES (901)",
                      ATTACH),
    "attached_again": ("ALTER TABLE {r} DETACH PARTITION {r}_b", "INSERT INTO {r}_b VALUES (150)",
                       "ALTER TABLE {r} ATTACH PARTITION {r}_b FOR VALUES FROM (100) TO (200)"),
    "detached": ("ALTER TABLE {r} DETACH PARTITION {r}_b",),
    "dropped": ("DROP TABLE {r}_b",),
    "truncated": ("TRUNCATE {r}_b",),
    "emptied": ("TRUNCATE {r}",),
    "copied": ("VACUUM FULL {r}_b",),
}  # fmt: skip
GONE, ATTACHED = "a partition is gone", "a partition was attached"
SAID = {
    "created": [], "tree_created": [], "attached": [ATTACHED], "tree_attached": [ATTACHED],
    "attached_again": [ATTACHED], "detached": [GONE], "dropped": [GONE],
    "truncated": ["a partition was emptied"],
    "emptied": ["emptied"], "copied": [],
}  # fmt: skip
"""Why the table is read again, or that it is emptied."""


def _table(name: str) -> TableId:
    return TableId("parted", name)


def _said(receiving: Receiving, name: str) -> list[str | None]:
    found = receiving.statements_of("parted", name)
    return ["emptied" if "emptied" in one else one.get("reread") for one in found]


@pytest.mark.slow
def test_what_happens_to_partitions_is_said_of_the_table(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], publication: str, tmp_path: Path
) -> None:
    receiving = Receiving(server, tmp_path, "parted")
    listed = ", ".join(f"parted.{name}" for name in CASES)
    for name in CASES:
        for statement in (
            "CREATE TABLE {r} (id int PRIMARY KEY, body text) PARTITION BY RANGE (id)",
            "CREATE TABLE {r}_a PARTITION OF {r} FOR VALUES FROM (0) TO (100)",
            "CREATE TABLE {r}_b PARTITION OF {r} FOR VALUES FROM (100) TO (200)",
            "INSERT INTO {r} VALUES (1), (101)",
        ):
            connection.execute(statement.format(r=f"parted.{name}").encode())
    if publication != "all":
        connection.execute(f"ALTER PUBLICATION penstock_parted ADD TABLE {listed}".encode())
    with receiving.started():
        receiving.wait_until_streaming()
        for name, statements in CASES.items():
            connection.execute(f"INSERT INTO parted.{name} VALUES (2), (102)".encode())
            if name == "copied":
                connection.execute(statements[0].format(r="parted.copied").encode())
                continue
            with connection.transaction():
                for statement in statements:
                    connection.execute(statement.format(r=f"parted.{name}").encode())
        _await_look(receiving, connection, "first")
        connection.execute("INSERT INTO parted.attached VALUES (902, 'in the attached one')")
        connection.execute("INSERT INTO parted.detached_b VALUES (103, 'not in it any more')")
        receiving.wait_until_received(connection)
        said = {name: _said(receiving, name) for name in CASES}
        rows = {
            name: [(row["id"], row["body"]) for row in changes_of(receiving, connection, _table(name))]
            for name in ("attached", "detached", "created", "tree_created")
        }  # fmt: skip
    wanted = dict(SAID)
    if publication == "as_root":
        written = "a partition was emptied or written again"
        wanted |= {"truncated": [written], "copied": [written], "emptied": [written, "emptied"]}
    assert said == wanted
    assert rows["attached"][-1] == (902, "in the attached one")
    assert (103, "not in it any more") not in rows["detached"]
    assert rows["created"][-1] == rows["tree_created"][-1] == (901, None)


@pytest.mark.slow
def test_many_partitions(
    server: PostgreSqlServer, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    receiving = Receiving(server, tmp_path, "many")
    connection.execute("CREATE SCHEMA parted")
    try:
        connection.execute(
            "CREATE TABLE parted.root (id int PRIMARY KEY, body text, n int) PARTITION BY RANGE (id)"
        )
        with connection.transaction():
            for number in range(PARTITIONS):
                connection.execute(
                    f"CREATE TABLE parted.p{number} PARTITION OF parted.root "
                    f"FOR VALUES FROM ({number * 10}) TO ({number * 10 + 10})".encode()
                )
            connection.execute(
                "CREATE TABLE parted.rest PARTITION OF parted.root FOR VALUES FROM (20000) TO (30000)"
            )
        connection.execute("CREATE PUBLICATION penstock_many FOR TABLE parted.root")
        with receiving.started():
            receiving.wait_until_streaming()
            rows = f"generate_series(0, {PARTITIONS * 10 - 1}) id"
            connection.execute(f"INSERT INTO parted.root SELECT id, 'x', 1 FROM {rows}".encode())
            connection.execute(
                "INSERT INTO parted.root SELECT id, 'y', 2 FROM generate_series(20000, 20009) id"
            )
            connection.execute(
                "CREATE TABLE parted.one PARTITION OF parted.root FOR VALUES FROM (30000) TO (30010)"
            )
            connection.execute("INSERT INTO parted.root VALUES (30000, 'z', 3)")
            receiving.wait_until_received(connection)
            assert _applied({}, changes_of(receiving, connection, ROOT)) == _rows(connection)
            assert receiving.statements_of("parted", "root") == []
    finally:
        connection.execute("DROP PUBLICATION IF EXISTS penstock_many")
        connection.execute("DROP SCHEMA parted CASCADE")
