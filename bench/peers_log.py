"""The peers that read the log over the replication protocol, each with what it needs to be run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from bench import measure, workload
from bench.log import BenchLog
from bench.measure import NotRun, Outcome, RunFailed
from penstock.artifacts import cache_directory, fetch, java
from penstock.errors import PenstockError

READ_LOG = "read log"
"""The task: the whole log over the protocol, decoded to rows."""
DEBEZIUM = "Debezium embedded"

_FOLDER = Path(__file__).with_name("peers")
_BINLOG_CONNECTOR = "com.zendesk:mysql-binlog-connector-java:0.30.1"
DEBEZIUM_VERSION = "3.6.1.Final"
_GO_MYSQL_VERSION = "1.16.0"


@dataclass(frozen=True)
class Peer:
    name: str
    version: str
    command: Callable[[BenchLog], list[str]]
    """Gets the peer ready (fetch, compile) and says how to run it; raises when that can't be."""


def build_folder() -> Path:
    folder = cache_directory() / "bench" / "built"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _server(log: BenchLog) -> list[str]:
    return [log.server.host, str(log.server.port), workload.PEER_USER, workload.PEER_PASSWORD]


def _javac() -> str:
    beside = Path(java()).resolve().with_name("javac")
    found = str(beside) if beside.exists() else shutil.which("javac")
    if found is None:
        raise RunFailed("no javac; Debian, Ubuntu: apt-get install openjdk-17-jdk-headless")
    return found


def compiled(main: str, jars: list[Path], *, options: Sequence[str] = ("-Xmx1g",)) -> list[str]:
    """Compiles one of our Java mains against the peer's jars; the command up to its arguments."""
    classes = build_folder() / main
    classes.mkdir(exist_ok=True)
    # One file name in both closures is one artifact.
    classpath = os.pathsep.join({jar.name: str(jar) for jar in jars}.values())
    sources = [str(_FOLDER / "java" / f"{name}.java") for name in ("Window", main)]
    _build([_javac(), "-nowarn", "-d", str(classes), "-cp", classpath, *sources])
    return [java(), *options, "-cp", f"{classes}{os.pathsep}{classpath}", main]


def _build(command: list[str], cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunFailed(f"{Path(command[0]).name} failed: {(done.stderr or done.stdout).strip()[-400:]}")


def _binlog_connector(log: BenchLog) -> list[str]:
    program = compiled("BinlogConnector", fetch(_BINLOG_CONNECTOR, transitive=True))
    place = [log.file, str(log.position), workload.TABLE, workload.TAIL_TABLE, str(workload.JSON_COLUMN)]
    return [*program, *_server(log), *place]


def debezium_jars() -> list[Path]:
    jars = fetch(f"io.debezium:debezium-connector-mysql:{DEBEZIUM_VERSION}", transitive=True)
    return jars + fetch(f"io.debezium:debezium-embedded:{DEBEZIUM_VERSION}", transitive=True)


def _debezium(log: BenchLog) -> list[str]:
    place = [log.file, str(log.position), log.gtids, workload.DATABASE, workload.TABLE, workload.TAIL_TABLE]
    return [*compiled("DebeziumReader", debezium_jars()), *_server(log), *place]


def _go_mysql(log: BenchLog) -> list[str]:
    if shutil.which("go") is None:
        raise RunFailed("no Go compiler; Debian, Ubuntu: apt-get install golang-go")
    binary = build_folder() / f"go-mysql-{_GO_MYSQL_VERSION}"
    _build(["go", "build", "-o", str(binary), "."], cwd=_FOLDER / "go")
    return [str(binary), *_server(log), log.file, str(log.position), workload.TABLE, workload.TAIL_TABLE]


def _python_mysql_replication(log: BenchLog) -> list[str]:
    script = str(_FOLDER / "python_mysql_replication.py")
    place = [log.file, str(log.position), workload.TABLE, workload.TAIL_TABLE]
    return [sys.executable, script, *_server(log), *place]


def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


PEERS = (
    Peer("mysql-binlog-connector-java", _BINLOG_CONNECTOR.rsplit(":", 1)[1], _binlog_connector),
    Peer("go-mysql", _GO_MYSQL_VERSION, _go_mysql),
    Peer(DEBEZIUM, DEBEZIUM_VERSION, _debezium),
    Peer("python-mysql-replication", _installed("mysql-replication"), _python_mysql_replication),
)

# Systems of which we know figures but which need a whole cluster of their own to be run.
NOT_TRIED = (
    NotRun("Flink CDC", "3.5.0", READ_LOG, "not part of this benchmark: it needs a Flink cluster of its own"),
    NotRun(
        "Maxwell", "1.22.6", READ_LOG, "not part of this benchmark: it writes its position into the source"
    ),
)


def figures(log: BenchLog) -> Iterator[Outcome]:
    for peer in PEERS:
        yield _figure(peer, log)
    yield from NOT_TRIED


def _figure(peer: Peer, log: BenchLog) -> Outcome:
    try:
        measured = measure.run(peer.command(log))
        check_counts(peer.name, measured.report["counts"], log)
    except (RunFailed, PenstockError) as error:
        return NotRun(peer.name, peer.version, READ_LOG, str(error))
    return measure.figure(measured, system=peer.name, version=peer.version, task=READ_LOG)


def check_counts(system: str, counts: dict[str, int], log: BenchLog) -> None:
    """Everybody must have read the same changes, otherwise the times mean nothing."""
    if counts != vars(log.counts):
        raise RunFailed(f"{system} read {counts}, the log holds {vars(log.counts)}")
