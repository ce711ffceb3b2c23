"""What a client of ZooKeeper may believe of its session."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from penstock.errors import TransientError
from penstock.serve.zookeeper.connection import ZooKeeper
from penstock.testing.proxy import Proxy
from penstock.testing.scenario import wait_for
from penstock.testing.servers import ZooKeeperEnsemble
from penstock.testing.servers.zookeeper import ZooKeeperServer

SESSION_S = 2.0


@contextmanager
def renewed(host: str, session_s: float) -> Iterator[ZooKeeper]:
    """A session with the node `/ours`, which is renewed all the time."""
    zookeeper = ZooKeeper([host], session_s)
    zookeeper.start(20)
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(zookeeper.renew_s):
            with suppress(KazooException, TransientError):
                zookeeper.renew()

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        zookeeper.client.create("/ours", ephemeral=True)
        wait_for(lambda: zookeeper.alive, "a session that is alive")
        yield zookeeper
    finally:
        ended.set()
        thread.join()
        zookeeper.close()


@contextmanager
def reader(*members: ZooKeeperServer) -> Iterator[KazooClient]:
    client = KazooClient(",".join(one.address for one in members))
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


@pytest.mark.slow
def test_a_session_at_a_member_that_is_cut_off_is_not_taken_for_alive_when_it_has_ended() -> None:
    with ZooKeeperEnsemble(3, proxied=True) as ensemble:
        apart, *others = ensemble.servers
        assert apart.mode() == "follower"
        with reader(apart) as beside, reader(*others) as seen, renewed(apart.address, SESSION_S) as zookeeper:
            for way in ensemble.ways:
                way.stall()
            wait_for(lambda: seen.exists("/ours") is None, "the end of the session")
            alive = zookeeper.alive
            # The input: its member still answers reads, and has the node.
            assert beside.exists("/ours") is not None and apart.mode() == "follower"
            assert not alive


@pytest.mark.slow
def test_a_session_that_ends_earlier_than_was_asked_for_is_not_taken_for_alive_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with ZooKeeperEnsemble(settings={"maxSessionTimeout": "2000"}) as ensemble:
        [server] = ensemble.servers
        with (
            Proxy(server.host, server.port) as proxy,
            reader(server) as seen,
            renewed(f"127.0.0.1:{proxy.port}", 20.0) as zookeeper,
        ):
            assert "ZooKeeper ends sessions after 2 s, and not after 20 s" in caplog.text
            proxy.stall()
            wait_for(lambda: seen.exists("/ours") is None, "the end of the session")
            assert not zookeeper.alive
            proxy.pass_on()
