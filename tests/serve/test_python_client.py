"""canal-python as it is on PyPI, with the Protobuf library of its time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.serve.conftest import Shop
from tests.serve.serving import serving
from tests.serve.test_postgresql import options, wait_for_slot
from tests.sources.postgresql.pg_log import connected

from penstock.testing.servers.postgresql import PostgreSqlServer

pytestmark = pytest.mark.slow

PACKAGES = ("canal-python==0.4", "protobuf==3.20.3")
PROGRAM = r"""
import json, sys
from canal.client import Client
from canal.protocol import EntryProtocol_pb2
host, port, destination = sys.argv[1:]
client = Client()
client.connect(host=host, port=int(port))
client.check_valid(username="", password=b"")
client.subscribe(client_id="7", destination=destination, filter=".*\\..*")
rows = []
while len(rows) < 3:
    message = client.get(100)
    for entry in message["entries"]:
        if entry.entryType == EntryProtocol_pb2.EntryType.ROWDATA:
            change = EntryProtocol_pb2.RowChange()
            change.MergeFromString(entry.storeValue)
            for row in change.rowDatas:
                columns = row.afterColumns or row.beforeColumns
                rows.append([change.eventType, {one.name: one.value for one in columns}])
client.disconnect()
print(json.dumps(rows))
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("canal-python")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
    done = subprocess.run([*command, *PACKAGES], capture_output=True, text=True, timeout=300)
    if done.returncode:
        pytest.skip(f"PyPI cannot be reached: {done.stderr[-200:]}")
    return folder


def read(packages: Path, address: str, destination: str) -> list[Any]:
    """Kind and values of three changes: the values after, or before a deletion."""
    host, _, port = address.rpartition(":")
    environment = {
        **os.environ, "PYTHONPATH": str(packages), "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"
    }  # fmt: skip
    command = [sys.executable, "-c", PROGRAM, host, port, destination]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_its_loop_gets_each_change_once(shop: Shop, packages: Path) -> None:
    shop.execute(
        "INSERT INTO orders VALUES (1, 'a')",
        "UPDATE orders SET note = 'b'",
        "DELETE FROM orders WHERE id = 1",
    )
    assert read(packages, shop.address, shop.destination) == [
        [1, {"id": "1", "note": "a"}], [2, {"id": "1", "note": "b"}], [3, {"id": "1", "note": "b"}],
    ]  # fmt: skip


def test_its_loop_gets_the_changes_of_postgresql(packages: Path, tmp_path: Path) -> None:
    with PostgreSqlServer(settings={"wal_level": "logical"}) as server, connected(server) as connection:
        connection.execute(
            "CREATE TABLE orders (id int PRIMARY KEY, note text, price numeric(9,2), tag uuid)"
        )
        connection.execute("CREATE PUBLICATION served FOR ALL TABLES")
        ports = {"canal": "127.0.0.1:0", "grpc": "127.0.0.1:0"}
        settings = options(server, "canal", tmp_path / "positions", listen=ports)
        with serving(server, tmp_path, **settings) as made:
            wait_for_slot(connection, "canal")
            connection.execute(
                "INSERT INTO orders VALUES (1, 'a', 1.5, 'a97da629-b098-b75c-294d-ffdc3e463904')"
            )
            connection.execute("UPDATE orders SET note = NULL")
            connection.execute("DELETE FROM orders WHERE id = 1")
            row = {"id": "1", "note": "a", "price": "1.50", "tag": "a97da629-b098-b75c-294d-ffdc3e463904"}
            found = read(packages, made.listening["canal"], "shop")
        assert found[:2] == [[1, row], [2, {**row, "note": ""}]]
        assert found[2][0] == 3 and found[2][1]["id"] == "1"  # the log has only the key of what is deleted
