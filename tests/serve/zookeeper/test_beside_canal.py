"""Canal's own server and ours, one after the other, on one source and one ZooKeeper."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.serve.zookeeper.conftest import Group, group_of
from tests.serve.zookeeper.test_failover import read

from bench import java, workload
from penstock.testing.servers import MySqlServer, ZooKeeperEnsemble

pytestmark = pytest.mark.slow


@pytest.fixture
def group(zookeeper: ZooKeeperEnsemble, tmp_path: Path) -> Iterator[Group]:
    # Canal logs in with this plugin only.
    with MySqlServer({"default_authentication_plugin": "mysql_native_password"}) as source:
        source.execute(*workload.PEER_ACCOUNT)
        yield from group_of(source, zookeeper, tmp_path)


def canal(group: Group) -> list[int]:
    """The rows that Canal's server gives to its client, which acknowledges them all."""
    source = group.source
    place = (source.host, str(source.port), workload.PEER_USER, workload.PEER_PASSWORD, group.file, "4")
    command = java.compiled("CanalOnZooKeeper", java.canal_jars())
    done = subprocess.run(
        [*command, *place, group.database.name, group.destination, group.ensemble.hosts[0]],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    return [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("row ")]


def test_each_goes_on_where_the_other_has_stopped(group: Group) -> None:
    group.insert(1, 2)
    assert canal(group) == [1, 2]
    theirs = json.loads(group.nodes.get("1001/cursor"))
    group.insert(3)
    server = group.server(1)
    server.start()
    client = group.connect(server)
    assert read(client, 1) == [3]
    ours = json.loads(group.nodes.get("1001/cursor"))
    assert server.stop() == 0
    for one in (theirs, ours):
        one.pop("penstock", None)
        one["identity"]["sourceAddress"].pop("address")  # Canal looks for the name of 127.0.0.1
        for field in ("position", "timestamp", "gtid"):
            one["postion"].pop(field, None)
    assert ours == theirs
    group.insert(4)
    assert canal(group) == [4]
