"""The peers that read the log over the replication protocol, each with what it needs to be run."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata

from bench import java, measure, workload
from bench.log import BenchLog
from bench.measure import NotRun, Outcome, RunFailed
from penstock.errors import PenstockError

READ_LOG = "read log"
"""The task: the whole log over the protocol, decoded to rows."""
DEBEZIUM = "Debezium embedded"
FLINK_CDC = "Flink CDC"
_GO_MYSQL_VERSION = "1.16.0"
_TIMEOUT_S = 3600


@dataclass(frozen=True)
class Peer:
    name: str
    version: str
    command: Callable[[BenchLog], list[str]]
    """Gets the peer ready (fetch, compile) and says how to run it; raises when that can't be."""


def arguments(log: BenchLog) -> list[str]:
    """Server and account, where the changes begin, their database, and the table that ends them."""
    server = [log.server.host, str(log.server.port), workload.PEER_USER, workload.PEER_PASSWORD]
    return [*server, log.file, str(log.position), workload.DATABASE, workload.TAIL_TABLE]


def _binlog_connector(log: BenchLog) -> list[str]:
    return [*java.compiled("BinlogConnector", java.binlog_connector_jars()), *arguments(log)]


def _debezium(log: BenchLog) -> list[str]:
    return [*java.compiled("DebeziumReader", java.debezium_jars()), *arguments(log), log.gtids]


def _flink_cdc(log: BenchLog) -> list[str]:
    return [*flink_command("FlinkReader", "mysql"), *arguments(log)]


def flink_command(main: str, database: str) -> list[str]:
    """`main`: a job that counts changes."""
    options = ("-Xmx1g", *java.FLINK_OPTIONS)
    return java.compiled(main, java.flink_jars(database), options=options, beside=["FlinkChanges"])


def _canal(log: BenchLog) -> list[str]:
    options = ("-Xmx1g", f"-Dlogback.configurationFile={java.PEERS / 'java' / 'logback.xml'}")
    return [*java.compiled("CanalReader", java.canal_jars(), options=options), *arguments(log)]


def _maxwell(log: BenchLog) -> list[str]:
    beside = ["jdk/nashorn/api/scripting/ScriptObjectMirror"]
    return [*java.compiled("MaxwellReader", java.maxwell_jars(), beside=beside), *arguments(log)]


def _go_mysql(log: BenchLog) -> list[str]:
    if shutil.which("go") is None:
        raise RunFailed("no Go compiler; Debian, Ubuntu: apt-get install golang-go")
    binary = java.build_folder() / f"go-mysql-{_GO_MYSQL_VERSION}"
    java.build(["go", "build", "-o", str(binary), "."], cwd=java.PEERS / "go")
    return [str(binary), *arguments(log)]


def _python_mysql_replication(log: BenchLog) -> list[str]:
    return [sys.executable, str(java.PEERS / "python_mysql_replication.py"), *arguments(log)]


def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


PEERS = (
    Peer("mysql-binlog-connector-java", java.BINLOG_CONNECTOR_VERSION, _binlog_connector),
    Peer("go-mysql", _GO_MYSQL_VERSION, _go_mysql),
    Peer("Canal embedded", java.CANAL_VERSION, _canal),
    Peer(DEBEZIUM, java.DEBEZIUM_VERSION, _debezium),
    Peer(FLINK_CDC, java.FLINK_CDC_VERSION, _flink_cdc),
    Peer("python-mysql-replication", _installed("mysql-replication"), _python_mysql_replication),
    # The last one: it writes its own tables into the source, behind the log's end.
    Peer("Maxwell", java.MAXWELL_VERSION, _maxwell),
)


def figures(log: BenchLog, chosen: Sequence[str] = ()) -> Iterator[Outcome]:
    """Of the peers whose names have one of the words `chosen` in them; none: of all."""
    for peer in PEERS:
        if not chosen or any(word.lower() in peer.name.lower() for word in chosen):
            yield _figure(peer, log)


def _figure(peer: Peer, log: BenchLog) -> Outcome:
    try:
        measured = measure.run(peer.command(log), timeout_s=_TIMEOUT_S)
        check_counts(peer.name, measured.report["counts"], log)
    except (RunFailed, PenstockError) as error:
        return NotRun(peer.name, peer.version, READ_LOG, str(error))
    return measure.figure(measured, system=peer.name, version=peer.version, task=READ_LOG)


def check_counts(system: str, counts: dict[str, int], log: BenchLog) -> None:
    """Everybody must have read the same changes, otherwise the times mean nothing."""
    if counts != vars(log.counts):
        raise RunFailed(f"{system} read {counts}, the log holds {vars(log.counts)}")
