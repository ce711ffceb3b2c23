"""Private Kafka brokers (KRaft, without ZooKeeper), each also a controller of its cluster."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from penstock.artifacts.maven import fetch, java
from penstock.testing.servers.process import SHORT_LIVED_JVM, PrivateServer, free_port

_JARS = "org.apache.kafka:kafka_2.13:4.1.0"
_PINS: dict[str, str] = json.loads(Path(__file__).with_name("kafka_jars.json").read_text("utf-8"))
_CLUSTER_ID = "cGVuc3RvY2stdGVzdHMtMQ"
"""16 bytes in Base64, as Kafka wants it."""
_JVM = (*SHORT_LIVED_JVM, "-Xms64m", "-Xmx256m")
"""For brokers that live for minutes: Java's first compiler starts them in half the time."""

API_VERSIONS = 18
"""The request that every broker answers, whoever asks."""


class KafkaBroker(PrivateServer):
    """One broker of a `KafkaCluster`. `stop`, `kill9` and `start` leave its topics."""

    kind = "kafka"

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.controller_port = free_port()
        self.internal_port = free_port()
        self._jars = fetch(_JARS, transitive=True, pins=_PINS)
        self._jvm: tuple[str, ...] = _JVM
        self.ip_port = f"{self.host}:{self.port}"

    def configure(
        self, voters: str, brokers: int, options: Mapping[str, str], jvm: tuple[str, ...], clients_port: int
    ) -> None:
        """Writes the files that `kafka-storage format` would write, which takes a JVM of its own."""
        self._jvm = jvm or _JVM
        data = self.folder / "data"
        data.mkdir()
        copies = str(min(3, brokers))
        internal = f"INTERNAL://{self.host}:{self.internal_port}"
        settings = {
            "node.id": str(self.number),
            "process.roles": "broker,controller",
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "INTERNAL",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "listeners": f"PLAINTEXT://{self.ip_port},{internal},"
            f"CONTROLLER://{self.host}:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.host}:{clients_port or self.port},{internal}",
            "log.dirs": str(data),
            "auto.create.topics.enable": "false",
            "default.replication.factor": copies,
            "min.insync.replicas": str(min(2, brokers)),
            "offsets.topic.replication.factor": copies,
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": str(min(2, brokers)),
            "transaction.state.log.num.partitions": "4",
            "group.initial.rebalance.delay.ms": "0",
            "message.max.bytes": str(64 * 1024**2),
            "replica.fetch.max.bytes": str(64 * 1024**2),
            **options,
        }
        properties = "".join(f"{name}={value}\n" for name, value in settings.items())
        (self.folder / "server.properties").write_text(properties)
        meta = {"version": "1", "cluster.id": _CLUSTER_ID, "node.id": str(self.number)}
        (data / "meta.properties").write_text("".join(f"{name}={value}\n" for name, value in meta.items()))

    def command(self) -> tuple[list[str], dict[str, str]]:
        program = [java(), *self._jvm, "-cp", ":".join(map(str, self._jars)), "kafka.Kafka"]
        return [*program, str(self.folder / "server.properties")], {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}

    def ready(self) -> bool:
        """A broker answers only once its cluster has accepted it."""
        request = struct.pack(">hhih", API_VERSIONS, 0, 7, -1)
        with (
            contextlib.suppress(OSError, struct.error),
            socket.create_connection((self.host, self.port), 1) as client,
        ):
            client.settimeout(5)
            client.sendall(struct.pack(">i", len(request)) + request)
            _, correlation, error = struct.unpack(">iih", client.recv(10, socket.MSG_WAITALL))
            return bool(correlation == 7 and error == 0)
        return False


class KafkaCluster:
    """`bootstrap`: the addresses of all brokers. `clients_port`: where a single broker tells clients to find
    it, if something is in front of it."""

    def __init__(
        self,
        brokers: int = 1,
        options: Mapping[str, str] | None = None,
        *,
        jvm: tuple[str, ...] = (),
        clients_port: int = 0,
    ) -> None:
        self.brokers: list[KafkaBroker] = []
        try:
            for number in range(1, brokers + 1):
                self.brokers.append(KafkaBroker(number))
            voters = ",".join(f"{one.number}@{one.host}:{one.controller_port}" for one in self.brokers)
            for one in self.brokers:
                one.configure(voters, brokers, options or {}, jvm, clients_port)
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def bootstrap(self) -> str:
        return ",".join(one.ip_port for one in self.brokers)

    def start(self) -> None:
        """Starts all brokers together: a majority must run before any of them is ready."""
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            list(pool.map(KafkaBroker.start, self.brokers))

    def close(self) -> None:
        """Kills the brokers and removes their topics."""
        for one in self.brokers:
            one.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
