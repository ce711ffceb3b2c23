"""canal-python as it is on PyPI, with the Protobuf library of its time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.serve.conftest import Shop

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


def test_its_loop_gets_each_change_once(shop: Shop, packages: Path) -> None:
    shop.execute(
        "INSERT INTO orders VALUES (1, 'a')",
        "UPDATE orders SET note = 'b'",
        "DELETE FROM orders WHERE id = 1",
    )
    host, _, port = shop.address.rpartition(":")
    environment = {
        **os.environ, "PYTHONPATH": str(packages), "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"
    }  # fmt: skip
    command = [sys.executable, "-c", PROGRAM, host, port, shop.destination]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [
        [1, {"id": "1", "note": "a"}], [2, {"id": "1", "note": "b"}], [3, {"id": "1", "note": "b"}],
    ]  # fmt: skip
