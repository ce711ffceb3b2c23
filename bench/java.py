"""The peers that run on Java: their artifacts from Maven Central, and our small mains compiled against
them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.measure import RunFailed
from penstock.artifacts.maven import cache_directory, java
from penstock.artifacts.maven import fetch as fetch_pinned

PEERS = Path(__file__).with_name("peers")

BINLOG_CONNECTOR_VERSION = "0.30.1"
DEBEZIUM_VERSION = "3.6.1.Final"
FLINK_CDC_VERSION = "3.5.0"
JDBC_SINK_VERSION = "3.5.0.Final"  # the newest on Maven Central
FLINK_VERSION = "1.20.3"
MAXWELL_VERSION = "1.22.6"
CANAL_VERSION = "1.1.7"
JDBC_DRIVER = "com.mysql:mysql-connector-j:9.3.0"
"""GPL with an exception for its use like this; fetched for the benchmark alone and part of nothing we
ship."""

FLINK_OPTIONS = tuple(
    f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.util", "java.lang", "java.time")
)


def fetch(coordinates: str, *, transitive: bool = False) -> list[Path]:
    """Jars of peers, pinned in `peers/pinned.json`."""
    pins = json.loads((PEERS / "pinned.json").read_text())
    return fetch_pinned(coordinates, transitive=transitive, pins=pins)


def build_folder() -> Path:
    folder = cache_directory() / "bench" / "built"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def compiled(
    main: str, jars: Iterable[Path], *, options: Sequence[str] = ("-Xmx1g",), beside: Sequence[str] = ()
) -> list[str]:
    """Compiles one of our mains (and what it needs `beside` it) against the peer's jars; the command up to
    its arguments."""
    classes = build_folder() / main
    classes.mkdir(exist_ok=True)
    # One file name in both closures is one artifact.
    classpath = os.pathsep.join({jar.name: str(jar) for jar in jars}.values())
    sources = [str(PEERS / "java" / f"{name}.java") for name in ("Window", *beside, main)]
    build([_javac(), "-nowarn", "-d", str(classes), "-cp", classpath, *sources])
    return [java(), *options, "-cp", f"{classes}{os.pathsep}{classpath}", main]


def build(command: list[str], cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunFailed(f"{Path(command[0]).name} failed: {(done.stderr or done.stdout).strip()[-400:]}")


def _javac() -> str:
    beside = Path(java()).resolve().with_name("javac")
    found = str(beside) if beside.exists() else shutil.which("javac")
    if found is None:
        raise RunFailed("no javac; Debian, Ubuntu: apt-get install openjdk-17-jdk-headless")
    return found


def binlog_connector_jars() -> list[Path]:
    return fetch(f"com.zendesk:mysql-binlog-connector-java:{BINLOG_CONNECTOR_VERSION}", transitive=True)


def debezium_jars(connector: str = "mysql") -> list[Path]:
    jars = fetch(f"io.debezium:debezium-connector-{connector}:{DEBEZIUM_VERSION}", transitive=True)
    return jars + fetch(f"io.debezium:debezium-embedded:{DEBEZIUM_VERSION}", transitive=True)


def flink_jars(database: str = "mysql") -> list[Path]:
    """The connector that brings its dependencies along (the thin one is not on Maven Central), the MySQL
    driver, which it leaves to its user, and what a cluster in one process needs."""
    jars = fetch(f"org.apache.flink:flink-sql-connector-{database}-cdc:{FLINK_CDC_VERSION}")
    if database == "mysql":
        jars += fetch(JDBC_DRIVER)
    for name in ("flink-clients", "flink-connector-base", "flink-table-common"):
        jars += fetch(f"org.apache.flink:{name}:{FLINK_VERSION}", transitive=True)
    return jars


def flink_format_jars() -> list[Path]:
    """Flink's formats, which need no cluster."""
    jars = fetch(f"org.apache.flink:flink-json:{FLINK_VERSION}")
    jars += fetch(f"org.apache.flink:flink-table-runtime:{FLINK_VERSION}")
    for name in ("flink-table-common", "flink-core"):
        jars += fetch(f"org.apache.flink:{name}:{FLINK_VERSION}", transitive=True)
    return jars


def jdbc_sink_jars() -> list[Path]:
    """Debezium's JDBC sink, and what Kafka Connect brings: its converter to JSON with what that needs."""
    connect = ("connect-", "kafka-clients-", "jackson-")
    runtime = fetch(f"io.debezium:debezium-embedded:{DEBEZIUM_VERSION}", transitive=True)
    jars = [jar for jar in runtime if jar.name.startswith(connect)]
    names = {jar.name.rpartition("-")[0] for jar in jars}
    sink = fetch(f"io.debezium:debezium-connector-jdbc:{JDBC_SINK_VERSION}", transitive=True)
    return jars + [jar for jar in sink if jar.name.rpartition("-")[0] not in names]


def maxwell_jars() -> list[Path]:
    """One of them is missing from what it names."""
    jars = fetch(f"com.zendesk:maxwell:{MAXWELL_VERSION}", transitive=True)
    return jars + fetch("org.apache.logging.log4j:log4j-api:2.8.2")


def canal_jars() -> list[Path]:
    jars = fetch(f"com.alibaba.otter:canal.instance.manager:{CANAL_VERSION}", transitive=True)
    return jars + fetch(f"com.alibaba.otter:canal.server:{CANAL_VERSION}", transitive=True)


def canal_kafka_jars() -> list[Path]:
    """Canal's server and its plugin that writes to Kafka. The plugin has its own dependencies."""
    jars = canal_jars()
    names = {jar.name.rpartition("-")[0] for jar in jars}
    producer = fetch(f"com.alibaba.otter:connector.kafka:{CANAL_VERSION}", transitive=True)
    return jars + [jar for jar in producer if jar.name.rpartition("-")[0] not in names]
