"""The peers that read the large table, each with 1, 2 and 4 connections. All must have counted all rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyspark

from bench import java, measure, peers_snapshot, workload
from bench.load import tasks
from bench.load.ours import TIMEOUT_S, check_rows
from bench.load.table import LoadTable
from bench.measure import Figure, NotRun, Outcome, RunFailed
from penstock.errors import PenstockError

_HEAP = "-Xmx3g"


@dataclass(frozen=True)
class Peer:
    name: str
    version: str
    command: Callable[[LoadTable, int], Sequence[str]]
    """Gets the peer ready and says how to run it with so many connections; raises when that can't be."""
    repeated: bool = False
    """Quick enough to be run several times."""


def figures(load: LoadTable, repeat: int) -> Iterator[Outcome]:
    for peer in PEERS:
        for connections in tasks.CONNECTIONS:
            once = partial(_figure, peer, load, connections)
            try:
                yield measure.median_of(repeat if peer.repeated else 1, once)
            except (RunFailed, PenstockError) as error:
                yield NotRun(peer.name, peer.version, tasks.load(connections), str(error))


def _figure(peer: Peer, load: LoadTable, connections: int) -> Figure:
    measured = measure.run(peer.command(load, connections), timeout_s=TIMEOUT_S)
    check_rows(peer.name, measured.report["changes"], load.rows)
    return measure.figure(
        measured, system=peer.name, version=peer.version, task=tasks.load(connections),
        connections=connections,
    )  # fmt: skip


def _connectorx(load: LoadTable, connections: int) -> list[str]:
    return peers_snapshot.connectorx_command(load.server, connections, "drop")


def _spark_jdbc(load: LoadTable, connections: int) -> list[str]:
    return peers_snapshot.spark_jdbc_command(load.server, load.rows, connections, peers_snapshot.ROW_BY_ROW)


def _place(load: LoadTable, connections: int) -> list[str]:
    server, account = load.server, (workload.PEER_USER, workload.PEER_PASSWORD)
    return [server.host, str(server.port), *account, workload.DATABASE, workload.TABLE, str(connections)]


def _debezium(load: LoadTable, connections: int) -> list[str]:
    program = java.compiled("DebeziumSnapshot", java.debezium_jars(), options=(_HEAP,))
    return [*program, *_place(load, connections)]


def _flink_cdc(load: LoadTable, connections: int) -> list[str]:
    program = java.compiled("FlinkSnapshot", java.flink_jars(), options=(_HEAP, *java.FLINK_OPTIONS))
    return [*program, *_place(load, connections)]


PEERS = (
    Peer(tasks.CONNECTORX, peers_snapshot.CONNECTORX_VERSION, _connectorx, repeated=True),
    Peer(tasks.SPARK_JDBC, pyspark.__version__, _spark_jdbc),
    Peer(tasks.DEBEZIUM, java.DEBEZIUM_VERSION, _debezium),
    Peer(tasks.FLINK_CDC, java.FLINK_CDC_VERSION, _flink_cdc),
)
