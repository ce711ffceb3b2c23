"""Our server and Canal's own, on one source: entry by entry, as Canal's classes read them."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest
from tests.core.test_encode_canal import assert_same_entries, sorted_lines
from tests.core.test_encode_peers import CHANGES, TABLE
from tests.serve.raw_client import RawClient
from tests.serve.serving import serving

from bench import java, workload
from penstock.testing.servers import MySqlServer

pytestmark = pytest.mark.slow

# No rows between them: Canal reads those with the definitions of now, and waits forever for a table that is
# gone.
STATEMENTS = (
    "CREATE TABLE shop.ddl (id INT PRIMARY KEY)", "ALTER TABLE shop.ddl ADD name VARCHAR(9)",
    "RENAME TABLE shop.ddl TO shop.ddl2", "TRUNCATE TABLE shop.ddl2", "CREATE INDEX i ON shop.ddl2 (name)",
    "DROP INDEX i ON shop.ddl2", "ALTER TABLE shop.ddl2 RENAME TO shop.ddl3",
    "ALTER TABLE shop.ddl3 ADD INDEX i (name)", "ALTER TABLE shop.ddl3 DROP INDEX i",
    "ALTER TABLE shop.ddl3 ADD CONSTRAINT c UNIQUE (name)", "ALTER TABLE shop.ddl3 DROP KEY c",
    "ALTER TABLE shop.ddl3 DROP PRIMARY KEY", "ALTER TABLE shop.ddl3 ADD PRIMARY KEY (id)",
    "ALTER TABLE shop.ddl3 ADD q INT, RENAME TO shop.ddl4", "DROP TABLE shop.ddl4",
)  # fmt: skip


def read(address: str) -> list[bytes]:
    found: list[bytes] = []
    with RawClient(address) as client:
        client.subscribe()
        while (batch := client.get(7, 1000))[0] != -1:
            found += batch[1]
            client.acknowledge(batch[0])
    return found


def test_entries_are_those_of_canals_server(tmp_path: Path) -> None:
    # Canal logs in with this plugin only.
    with MySqlServer({"default_authentication_plugin": "mysql_native_password"}) as server:
        server.execute(
            *workload.PEER_ACCOUNT, "CREATE DATABASE shop", TABLE,
            "CREATE TABLE shop.keyless (a INT, b VARCHAR(10))", "CREATE TABLE shop.tail (id INT PRIMARY KEY)",
            "FLUSH BINARY LOGS",
        )  # fmt: skip
        path = server.binlog_files()[-1]
        server.execute("SET time_zone = '+00:00'", *CHANGES)
        server.execute(*STATEMENTS, "INSERT INTO shop.tail VALUES (1)")
        account = {
            "host": server.host, "port": server.port, "user": server.user, "password": server.password,
            "start": {"file": path.name, "position": 4},
        }  # fmt: skip
        destination = {"filter": r"shop\..*", "start": "earliest", "faithful": True}
        with serving(server, tmp_path, source=account, destinations={"example": destination}) as ours:
            mine = read(ours.address)
        command = java.compiled("CanalEntries", java.canal_jars())
        place = (server.host, str(server.port), workload.PEER_USER, workload.PEER_PASSWORD, path.name)
        peer = subprocess.run(
            [*command, *place, "4", "shop", "tail"], capture_output=True, text=True, timeout=300, check=True
        )
    lines = b"\n".join(map(base64.b64encode, mine))
    done = subprocess.run(command, input=lines, capture_output=True, timeout=60, check=True)
    # Both end with the transaction of the tail, whose row ends the program that reads from Canal.
    found = sorted_lines(done.stdout.decode())["entry"][:-3]
    theirs = sorted_lines(peer.stdout)["entry"][:-1]
    assert [one["type"] for one in found] == [one["type"] for one in theirs]
    assert_same_entries(found, theirs)
