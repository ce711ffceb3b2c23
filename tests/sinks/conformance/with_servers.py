"""Servers for sinks, one of each product in a run. They end with the process."""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.secret import Secret
from penstock.sinks.clickhouse.options import ClickHouseOptions
from penstock.sinks.hbase.options import HBaseOptions
from penstock.sinks.jars import jars
from penstock.sinks.kind import SinkOptions
from penstock.sinks.opensearch.options import OpenSearchOptions
from penstock.sinks.redis.options import RedisOptions
from penstock.sinks.sql.options import JdbcOptions
from penstock.testing import servers
from penstock.testing.servers.process import free_port

OTHERS: dict[str, Callable[[], Any]] = {
    "clickhouse": servers.clickhouse,
    "hbase": servers.hbase,
    "opensearch": servers.opensearch,
    "postgresql": servers.postgresql,
    "valkey": servers.valkey,
}

SETTINGS = {"mysql57": {"lower_case_table_names": "1"}}  # as on file systems that ignore case


@functools.cache
def server(product: str) -> Any:
    if product in OTHERS:
        made = OTHERS[product]()
    else:
        made = servers.FLAVORS[product]({"max_allowed_packet": "64M", **SETTINGS.get(product, {})})
    atexit.register(made.close)
    return made


@functools.cache
def modern_clickhouse() -> str:
    """The URL of a ClickHouse of today."""
    if importlib.util.find_spec("chdb") is None:
        pytest.skip("pip install chdb")
    port, place = free_port(), folder() / "clickhouse"
    place.mkdir()
    front = Path(__file__).parent.with_name("clickhouse") / "chdb_front.py"
    process = subprocess.Popen([sys.executable, str(front), str(port), str(place)])
    atexit.register(process.kill)
    deadline = time.monotonic() + 120
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
            return f"http://127.0.0.1:{port}"
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)


def options_of(made: Any) -> JdbcOptions:
    postgresql = isinstance(made, servers.PostgreSqlServer)
    url = f"jdbc:{made.url}" if postgresql else f"mysql://{made.host}:{made.port}"
    return JdbcOptions(type="jdbc", url=url, user=made.user, password=Secret(made.password))


@functools.cache
def folder() -> Path:
    """For databases that are files."""
    made = tempfile.TemporaryDirectory(prefix="penstock-files-")
    atexit.register(made.cleanup)
    return Path(made.name)


def add_jars(spark: SparkSession, options: SinkOptions) -> None:
    """Lets the session's JVM load the jars of a sink that few tests use."""
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for jar in jars([options]):
        loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())


def options(name: str) -> Any:
    """Options for `jdbc-postgresql`, `redis-json` and their like."""
    sink, _, detail = name.partition("-")
    if detail == "modern":
        return ClickHouseOptions(type="clickhouse", url=modern_clickhouse())
    if sink == "clickhouse":
        old = server("clickhouse")
        return ClickHouseOptions(type="clickhouse", url=old.url, user=old.user, password=Secret(old.password))
    if sink == "hbase":
        return HBaseOptions(type="hbase", quorum=server("hbase").quorum)
    if sink == "opensearch":
        return OpenSearchOptions(type="opensearch", url=server("opensearch").url)
    if detail == "duckdb":
        pytest.importorskip("duckdb")
        return JdbcOptions(type="jdbc", url=f"duckdb://{folder()}/targets.duckdb")
    if sink == "redis":
        made = server("valkey")
        return RedisOptions(type="redis", url=made.url, password=Secret(made.password), value=detail)
    return options_of(server(detail))
