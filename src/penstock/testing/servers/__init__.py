"""Private database servers for tests, the demo and benchmarks: real servers, without root or Docker.

    with servers.mysql(options={"binlog_row_image": "MINIMAL"}) as server:
        server.execute("CREATE DATABASE shop")
        rows = server.query("SELECT 1")

Each server has its own folder, process and free loopback port, so any number can run at once. A guardian
process (`guardian.py`) stops the server and removes its folder however the caller ends, also by `kill -9`. A
release is downloaded into the cache the first time it is used.

With `PENSTOCK_MYSQL=user:password@host:port` in the environment, `mysql()` uses that server, unless it is
called with options or `private=True`. Such a server cannot be stopped or killed from here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.testing.servers.base import DatabaseServer
from penstock.testing.servers.clickhouse import ClickHouseServer
from penstock.testing.servers.client import Database, ExternalMySqlServer, MySqlClient
from penstock.testing.servers.hbase import HBaseCluster
from penstock.testing.servers.kafka import KafkaBroker, KafkaCluster
from penstock.testing.servers.mariadb import MariaDb118Server, MariaDb1011Server, MariaDbServer
from penstock.testing.servers.mysql import MySql57Server, MySql97Server, MySqlServer
from penstock.testing.servers.nats import Nats29Server, NatsServer
from penstock.testing.servers.opensearch import OpenSearchServer
from penstock.testing.servers.postgresql import PostgreSqlServer
from penstock.testing.servers.process import PrivateServer, ServerFailed
from penstock.testing.servers.rabbitmq import RabbitMq310Server, RabbitMqServer
from penstock.testing.servers.valkey import ValkeyServer
from penstock.testing.servers.zookeeper import ZooKeeperEnsemble, ZooKeeperServer

__all__ = [
    "FLAVORS",
    "ClickHouseServer",
    "Database",
    "DatabaseServer",
    "ExternalMySqlServer",
    "HBaseCluster",
    "KafkaBroker",
    "KafkaCluster",
    "MariaDb118Server",
    "MariaDb1011Server",
    "MariaDbServer",
    "MySql57Server",
    "MySql97Server",
    "MySqlClient",
    "MySqlServer",
    "Nats29Server",
    "NatsServer",
    "OpenSearchServer",
    "PostgreSqlServer",
    "PrivateServer",
    "RabbitMq310Server",
    "RabbitMqServer",
    "ServerFailed",
    "ValkeyServer",
    "ZooKeeperEnsemble",
    "ZooKeeperServer",
    "clickhouse",
    "hbase",
    "kafka",
    "mariadb118",
    "mariadb1011",
    "mysql",
    "mysql57",
    "mysql97",
    "nats",
    "opensearch",
    "postgresql",
    "rabbitmq",
    "valkey",
    "zookeeper",
]

FLAVORS: dict[str, type[DatabaseServer]] = {
    "mysql57": MySql57Server,
    "mysql80": MySqlServer,
    "mysql97": MySql97Server,
    "mariadb1011": MariaDb1011Server,
    "mariadb118": MariaDb118Server,
}
"""The releases that tests run against. Each name has the class that starts it."""


def mysql(
    options: Mapping[str, Any] | None = None, *, private: bool = False, folder: Path | None = None
) -> MySqlServer | ExternalMySqlServer:
    """Returns a running MySQL 8.0. Without options and `private`, this is the server that `PENSTOCK_MYSQL`
    names, if it names one. Otherwise it is a new private server."""
    address = os.environ.get("PENSTOCK_MYSQL")
    if address and not options and not private:
        return ExternalMySqlServer(address)
    return MySqlServer(options, folder=folder)


def mysql57(options: Mapping[str, Any] | None = None, *, folder: Path | None = None) -> MySql57Server:
    return MySql57Server(options, folder=folder)


def mysql97(options: Mapping[str, Any] | None = None, *, folder: Path | None = None) -> MySql97Server:
    return MySql97Server(options, folder=folder)


def mariadb1011(options: Mapping[str, Any] | None = None, *, folder: Path | None = None) -> MariaDb1011Server:
    return MariaDb1011Server(options, folder=folder)


def mariadb118(options: Mapping[str, Any] | None = None, *, folder: Path | None = None) -> MariaDb118Server:
    return MariaDb118Server(options, folder=folder)


def kafka(
    brokers: int = 1, options: Mapping[str, str] | None = None, *, jvm: tuple[str, ...] = ()
) -> KafkaCluster:
    """Returns a running cluster of private Kafka brokers. `options`: of `server.properties`. `jvm`: options
    of Java instead of those for a short life."""
    return KafkaCluster(brokers, options, jvm=jvm)


def rabbitmq(configuration: str = "", *, folder: Path | None = None) -> RabbitMqServer:
    """`configuration`: further lines of `rabbitmq.conf`."""
    return RabbitMqServer(configuration, folder=folder)


def nats(configuration: str = "", *, folder: Path | None = None) -> NatsServer:
    """`configuration`: further lines of the server's file."""
    return NatsServer(configuration, folder=folder)


def postgresql(settings: Mapping[str, str] | None = None, *, folder: Path | None = None) -> PostgreSqlServer:
    return PostgreSqlServer(folder=folder, settings=settings)


def clickhouse(*, folder: Path | None = None) -> ClickHouseServer:
    return ClickHouseServer(folder=folder)


def hbase() -> HBaseCluster:
    return HBaseCluster()


def opensearch(options: Mapping[str, str] | None = None, *, folder: Path | None = None) -> OpenSearchServer:
    return OpenSearchServer(options, folder=folder)


def valkey(options: Mapping[str, str] | None = None, *, folder: Path | None = None) -> ValkeyServer:
    return ValkeyServer(options, folder=folder)


def zookeeper(servers: int = 1) -> ZooKeeperEnsemble:
    """Returns a running ensemble. With 3 servers it survives the loss of one."""
    return ZooKeeperEnsemble(servers)
