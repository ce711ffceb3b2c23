"""Private ZooKeeper servers, from the jars that PySpark brings."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from penstock.artifacts.maven import java
from penstock.testing.proxy import Proxy
from penstock.testing.servers.process import SHORT_LIVED_JVM, PrivateServer, free_port

_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_JARS = ("zookeeper-3", "zookeeper-jute", "slf4j-api", "netty-", "metrics-core", "snappy-java", "commons-cli")
"""Beginnings of the names of a server's jars. Without a logger of slf4j, it logs nothing."""
_JVM = (*SHORT_LIVED_JVM, "-Xms32m", "-Xmx128m")
TICK_MS = 500
"""ZooKeeper's unit of time. A session lasts for 2 to 20 of them."""


def _class_path() -> str:
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    jars = sorted((Path(spec.origin).parent / "jars").glob("*.jar"))
    return ":".join(str(jar) for jar in jars if jar.name.startswith(_JARS) and "native" not in jar.name)


class ZooKeeperServer(PrivateServer):
    """One server of a `ZooKeeperEnsemble`. `stop`, `kill9` and `start` leave its data."""

    kind = "zookeeper"

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.peer_port, self.election_port = free_port(), free_port()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def configure(
        self, peers: list[ZooKeeperServer], through: Mapping[int, int], more: Mapping[str, str]
    ) -> None:
        """`through`: for ports of peers, those at which this server reaches them."""
        data = self.folder / "data"
        data.mkdir()
        settings = {
            "tickTime": str(TICK_MS), "initLimit": "20", "syncLimit": "10", "dataDir": str(data),
            "clientPort": str(self.port), "clientPortAddress": self.host, "maxClientCnxns": "0",
            "admin.enableServer": "false", "4lw.commands.whitelist": "*", **more,
        }  # fmt: skip
        if len(peers) > 1:
            (data / "myid").write_text(f"{self.number}\n")
            for one in peers:
                peer, election = (through.get(port, port) for port in (one.peer_port, one.election_port))
                settings[f"server.{one.number}"] = f"{one.host}:{peer}:{election}"
        (self.folder / "zoo.cfg").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def command(self) -> tuple[list[str], dict[str, str]]:
        options = [*_JVM, "-Dzookeeper.jmx.log4j.disable=true", "-Dzookeeper.fsync.warningthresholdms=60000"]
        argv = [java(), *options, "-cp", _class_path(), _MAIN, str(self.folder / "zoo.cfg")]
        return argv, {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}

    def ready(self) -> bool:
        return bool(self.mode())

    def mode(self) -> str:
        """`leader`, `follower` or `standalone`; empty: it does not serve now."""
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), 5) as client:
            client.settimeout(5)
            client.sendall(b"srvr")
            answer = b""
            while part := client.recv(4096):
                answer += part
            for line in answer.decode().splitlines():
                if line.startswith("Mode: "):
                    return line.removeprefix("Mode: ")
        return ""


class ZooKeeperEnsemble:
    """`hosts`: the addresses of all servers. `proxied`: the first one, which never is the first leader,
    reaches the others through the proxies in `ways`, so that it can be cut off. `settings`: more for each
    server."""

    def __init__(
        self, servers: int = 1, *, proxied: bool = False, settings: Mapping[str, str] | None = None
    ) -> None:
        self.servers: list[ZooKeeperServer] = []
        self.ways: list[Proxy] = []
        self._open = contextlib.ExitStack()
        try:
            for number in range(1, servers + 1):
                self.servers.append(ZooKeeperServer(number))
            through: dict[int, int] = {}
            for one in self.servers[1:] if proxied else ():
                for port in (one.peer_port, one.election_port):
                    self.ways.append(self._open.enter_context(Proxy(one.host, port)))
                    through[port] = self.ways[-1].port
            for one in self.servers:
                one.configure(self.servers, through if one.number == 1 else {}, settings or {})
            with ThreadPoolExecutor(servers) as pool:  # a majority must run before any of them is ready
                list(pool.map(ZooKeeperServer.start, self.servers))
        except BaseException:
            self.close()
            raise

    @property
    def hosts(self) -> list[str]:
        return [one.address for one in self.servers]

    def leader(self) -> ZooKeeperServer | None:
        """The server that leads. None: there is none now."""
        return next((one for one in self.servers if one.mode() in ("leader", "standalone")), None)

    def close(self) -> None:
        for one in self.servers:
            one.close()
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
