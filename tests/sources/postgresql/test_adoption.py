"""A pipeline goes on at the server that an upgrade has made of the one that it follows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.sources.postgresql.pg_log import connected
from tests.sources.postgresql.receiving import Receiving, changes_of, receive
from tests.sources.postgresql.upgraded import upgrade

from penstock.model.schema import TableId
from penstock.sources.postgresql.adoption import FILE
from penstock.testing.servers.postgresql import PostgreSqlServer

pytestmark = pytest.mark.slow

SLOT = "penstock_up"
TABLES = (
    "CREATE TYPE mood AS ENUM ('ok')",
    "CREATE TABLE t (id int PRIMARY KEY, v text, m mood[], d date DEFAULT now())",
    "CREATE TABLE parted (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE part PARTITION OF parted FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE altered (id int PRIMARY KEY, v text)",
    "ALTER TABLE t ADD COLUMN later int DEFAULT 7",
    "ALTER TABLE t REPLICA IDENTITY FULL",
    "INSERT INTO altered VALUES (1, 'x')",
    "CREATE PUBLICATION penstock_up FOR ALL TABLES",
)


@pytest.fixture
def server() -> Iterator[PostgreSqlServer]:
    with PostgreSqlServer(settings={"wal_level": "logical"}) as server:
        with connected(server) as connection:
            for statement in TABLES:
                connection.execute(statement.encode())
        yield server


@pytest.fixture
def receiving(server: PostgreSqlServer, tmp_path: Path) -> Receiving:
    """Has received some transactions, and is stopped."""
    receiving = Receiving(server, tmp_path, "up")
    with receiving.started(), connected(server) as connection:
        receiving.wait_until_streaming()
        connection.execute("INSERT INTO t SELECT i, 'before' FROM generate_series(1, 5) i")
        receiving.wait_until_received(connection)
    return receiving


def adopt(receiving: Receiving, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", "adopt-server", str(receiving.file), *arguments],
        capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def refused(done: subprocess.CompletedProcess[str], why: str) -> None:
    assert done.returncode != 0 and why in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_the_log_goes_on_and_no_table_is_read_again_that_is_the_same(
    server: PostgreSqlServer, receiving: Receiving
) -> None:
    upgrade(server, SLOT)
    with connected(server) as connection:
        # Nothing of it is in the log: the catalog tells.
        connection.execute("ALTER TABLE altered ALTER v TYPE text USING upper(v)")
        connection.execute("INSERT INTO t VALUES (6, 'after')")
    stopped = receive(receiving)
    assert stopped.returncode != 0 and "penstock adopt-server" in stopped.stderr, stopped.stderr
    refused(adopt(receiving), "--yes")
    refused(adopt(receiving, "--json"), "--yes")
    (receiving.config.relay_log_path / FILE).write_text("[1]")
    refused(receive(receiving), "is damaged")
    done = adopt(receiving, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["same"], found["changed"]) == (2, 1)
    with receiving.started(), connected(server) as connection:
        receiving.wait_until_streaming()
        connection.execute("UPDATE t SET v = 'changed' WHERE id = 3")
        receiving.wait_until_received(connection)
        receiving.wait(lambda: receiving.statements(), "the altered table")
        rows = [(row["id"], row["v"]) for row in changes_of(receiving, connection, TableId("public", "t"))]
        said: list[tuple[str, dict[str, Any]]] = receiving.statements()
    assert rows[:6] == [(number, "before" if number < 6 else "after") for number in range(1, 7)]
    assert rows[-1] == (3, "changed")
    assert {one["table"] for _, one in said} == {"altered"}
    refused(adopt(receiving, "--yes"), "is the server that the relay log follows")


def test_a_server_that_does_not_go_on_is_refused(
    server: PostgreSqlServer, receiving: Receiving, tmp_path: Path
) -> None:
    refused(adopt(receiving, "--yes"), "is the server that the relay log follows")
    with PostgreSqlServer(settings={"wal_level": "logical"}) as other:
        document = yaml.safe_load(receiving.file.read_text())
        document["source"]["port"] = other.port
        receiving.file.write_text(yaml.safe_dump(document))
        upgrade(other, SLOT)  # the tests' servers are copies of one
        with connected(other) as connection:
            connection.execute("CREATE PUBLICATION penstock_up FOR ALL TABLES")
            refused(adopt(receiving, "--yes"), f"no replication slot {SLOT}")
            connection.execute(f"SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput')".encode())
            refused(adopt(receiving, "--yes"), "its slot begins at")
            connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
            connection.execute("CREATE TABLE much AS SELECT repeat('x', 900) FROM generate_series(1, 40000)")
            connection.execute(
                f"SELECT pg_replication_slot_advance('{SLOT}', pg_current_wal_flush_lsn())".encode()
            )
            refused(adopt(receiving, "--yes"), "none of the tables")
