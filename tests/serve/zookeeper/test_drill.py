"""Canal's drill: the active server and ZooKeeper's leader are killed in turn under load, while Canal's own
client rebuilds the tables."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from tests.serve.serving import Serving, eventually

from penstock.testing import oracle, servers, workload
from penstock.testing.canal.client import ClientError, JavaClient
from penstock.testing.canal.rebuild import Rebuilt
from penstock.testing.servers import MySqlServer, ZooKeeperEnsemble
from penstock.testing.servers.process import free_port
from penstock.testing.writer import Writer

T = TypeVar("T")
PATIENCE_S = 180.0
"""A kill takes about 5 s. Canal's client waits up to 60 s for the answer of a server that is suspended, and a
machine that does much else takes its time."""


class Reader:
    """The usual loop of a client, in a thread. What ZooKeeper has as acknowledged must not come again."""

    def __init__(self, ensemble: ZooKeeperEnsemble, rebuilt: Rebuilt) -> None:
        self.rebuilt = rebuilt
        self.batches = 0
        self.failed: BaseException | None = None
        self._hosts = ",".join(ensemble.hosts)
        self._nodes = KazooClient(self._hosts, timeout=20)
        self._nodes.start()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with JavaClient(f"zookeeper:{self._hosts}", "shop") as client:
                subscribed = False
                while not self._stopping.is_set():
                    try:
                        if not subscribed:
                            client.connect()
                            client.subscribe()
                            subscribed = True
                        self._once(client)
                    except ClientError:
                        time.sleep(0.1)  # it has tried for half a minute
        except BaseException as error:
            self.failed = error

    def _once(self, client: JavaClient) -> None:
        batch, rows = client.rows(500, 1000)
        if batch == -1:
            return
        self.rebuilt.apply(rows)
        client.acknowledge(batch)
        client.subscribe()
        data = self._nodes.retry(self._nodes.get, "/otter/canal/destinations/shop/1001/cursor")[0]
        stored = json.loads(data)["postion"]
        self.rebuilt.acknowledged_up_to((stored["journalName"], stored["position"]))
        self.batches += 1

    def check(self) -> None:
        if self.failed is not None:
            raise self.failed
        assert not self.rebuilt.after_acknowledgement

    def wait(self, condition: Callable[[], Any], what: str) -> None:
        def met() -> Any:
            self.check()
            return condition()

        eventually(met, what, PATIENCE_S)

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(60)
        self._nodes.stop()
        self._nodes.close()


def found(reader: Reader, look: Callable[[], T | None], what: str) -> T:
    """What a look has found, which may not be there any more at the next one."""
    seen: list[T] = []

    def looked() -> bool:
        one = look()
        if one is not None:
            seen.append(one)
        return one is not None

    reader.wait(looked, what)
    return seen[-1]


class Drill:
    def __init__(self, source: MySqlServer, ensemble: ZooKeeperEnsemble, folder: Path, seed: int) -> None:
        self.ensemble = ensemble
        self.random = random.Random(seed)
        self.servers = [
            Serving(
                source, folder / str(number), listen={"canal": f"127.0.0.1:{free_port()}"},
                positions={"type": "zookeeper"}, zookeeper=ensemble.hosts, zookeeper_timeout="4s",
                destinations={"shop": {"filter": r"shop\..*", "start": "earliest"}},
            )
            for number in range(2)
        ]  # fmt: skip
        self.nodes = KazooClient(",".join(ensemble.hosts), timeout=20)
        self.nodes.start()

    def active(self) -> Serving | None:
        try:
            data = self.nodes.retry(self.nodes.get, "/otter/canal/destinations/shop/running")[0]
        except NoNodeError:
            return None
        return next((one for one in self.servers if one.address in data.decode()), None)

    def strike(self, victim: str, reader: Reader) -> None:
        """One thing fails, the client goes on, and it is there again."""
        active = found(reader, self.active, "active server")
        assert active.process is not None
        before = reader.batches
        if victim == "zookeeper":
            leader = found(reader, self.ensemble.leader, "leader")
            leader.kill9()
            reader.wait(lambda: reader.batches > before + 1, "batch without the leader")
            leader.start()
            return
        if victim == "server":
            active.kill()
        else:
            os.kill(active.process.pid, signal.SIGSTOP)
        reader.wait(lambda: self.active() not in (None, active), f"other server that serves ({victim})")
        reader.wait(lambda: reader.batches > before + 1, f"batch of the other server ({victim})")
        if victim == "server":
            active.start()
        else:
            os.kill(active.process.pid, signal.SIGCONT)

    def close(self) -> None:
        self.nodes.stop()
        self.nodes.close()
        for one in self.servers:
            one.kill()


def equal(source: MySqlServer, rebuilt: Rebuilt, name: str) -> bool:
    return not oracle.compare(oracle.rows_of(source, name), rebuilt.rows_of(name))


def drill(folder: Path, seed: int, strikes: list[str]) -> None:
    with MySqlServer() as source, servers.zookeeper(3) as ensemble:
        made = Drill(source, ensemble, folder, seed)
        try:
            for one in made.servers:
                one.start()
            shop = workload.Shop.of_rows(2000)
            workload.load(source, shop)
            names = [f"shop.{table}" for table in workload.TABLES]
            reader = Reader(ensemble, Rebuilt({name: oracle.columns_of(source, name) for name in names}))
            try:
                with Writer(source, shop, seed=seed, rate=50) as writer:
                    for victim in strikes:
                        made.strike(victim, reader)
                    writer.stop()
                for name in names:  # the oracle is the source
                    reader.wait(partial(equal, source, reader.rebuilt, name), f"equal {name}")
            finally:
                reader.close()
            reader.check()
        finally:
            made.close()


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_or_acknowledged_twice_however_often_something_is_killed(
    tmp_path: Path, seed: int
) -> None:
    chosen = random.Random(seed)
    strikes = ["server", "zookeeper"] * 10 + ["suspended"] * 2
    chosen.shuffle(strikes)
    drill(tmp_path, seed, strikes)
