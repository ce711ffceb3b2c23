"""A list of hosts: the receiver goes on at a promoted replica, where it left off."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.config import SourceConfig
from penstock.sources.mysql import hosts
from penstock.testing import servers
from penstock.testing.servers import DatabaseServer, MariaDbServer

sys.path.insert(0, str(Path(__file__).parent))
from receiving import Receiving
from test_receiver_flavors import SCHEMA, rows_of, write


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def replicate(primary: DatabaseServer, replica: DatabaseServer) -> None:
    place = f"MASTER_HOST = '127.0.0.1', MASTER_PORT = {primary.port}"
    place += f", MASTER_USER = 'root', MASTER_PASSWORD = '{primary.password}'"
    how = "MASTER_AUTO_POSITION = 1, GET_MASTER_PUBLIC_KEY = 1"
    if isinstance(primary, MariaDbServer):
        how = "MASTER_USE_GTID = slave_pos"
    replica.execute(f"CHANGE MASTER TO {place}, {how}", "START SLAVE")


def start(name: str, number: int) -> DatabaseServer:
    options: dict[str, Any] = {"server_id": number, "log_slave_updates": "ON"}
    return servers.FLAVORS[name](options)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mysql80", "mariadb1011"])
def test_the_receiver_goes_on_at_the_promoted_replica_without_loss_or_repetition(
    name: str, tmp_path: Path
) -> None:
    with start(name, 1) as primary, start(name, 2) as replica:
        primary.execute(*SCHEMA)
        replicate(primary, replica)
        address = [f"127.0.0.1:{primary.port}", f"127.0.0.1:{replica.port}"]
        receiver = Receiving(primary, tmp_path, source={"host": address})
        receiver.start()
        write(primary, 40)
        receiver.wait_until_level()
        wait_until(lambda: replica.gtid_executed() == primary.gtid_executed())
        primary.kill9()
        replica.execute("STOP SLAVE", "RESET SLAVE ALL")
        write(replica, 40)
        receiver.server = replica
        receiver.wait_for(lambda: receiver.status()["source"].get("port") == replica.port, "switch")
        receiver.wait_until_level()
        receiver.stop()
        receiver.start()  # a new process goes on where the last one was
        write(replica, 5)
        receiver.wait_until_level()
        assert receiver.stop() == 0
        rows = dict(replica.query("SELECT id, pad FROM d.t"))
        assert rows_of(receiver, replica) == rows and len(rows) == 85


def test_hosts_are_a_list_or_one(tmp_path: Path) -> None:
    config = SourceConfig.model_validate({"host": ["a", "b:3307"], "port": 3310, "user": "u"})
    assert [(one.host, one.port) for one in hosts.candidates(config)] == [("a", 3310), ("b", 3307)]
    assert hosts.followed(config, tmp_path).host == "a"
    (tmp_path / "receiver.json").write_text('{"source": {"host": "b", "port": 3307}}')
    assert hosts.followed(config, tmp_path).host == "b"
