"""How long a change of PostgreSQL takes, from its commit: as the part `latency` does it for MySQL. The server
makes its log durable at each commit (`fsync`)."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench import java, measure, peers_log, warm
from bench.latency import run as of_mysql
from bench.latency.changes import CHANGES_PER_S, DEFINITION, ROWS_BEFORE, TABLE
from bench.latency.run import INTERVAL_MS, PIPELINE, READER, WARM_S
from bench.measure import Figure, Outcome, RunFailed
from bench.ours import tried
from bench.postgres.log import debezium_command
from bench.postgres.place import PUBLICATION, SETTINGS, pipeline_file
from penstock import __version__
from penstock.testing.postgresql_shop import connected
from penstock.testing.servers.postgresql import PostgreSqlServer

TASK = f"PostgreSQL: latency at {CHANGES_PER_S:,} changes/s"
_SLOT = "bench_latency"


def figures(folder: Path, seconds: int, chosen: Sequence[str]) -> Iterator[Outcome]:
    """Each system alone, on a server of its own."""
    yield tried(TASK, partial(_reader, folder, seconds), READER)
    yield tried(TASK, partial(_pipeline, folder, seconds), PIPELINE)
    if not chosen or any(word.lower() in peers_log.DEBEZIUM.lower() for word in chosen):
        yield tried(TASK, partial(_debezium, seconds), peers_log.DEBEZIUM, java.DEBEZIUM_VERSION)


def _reader(folder: Path, seconds: int) -> Figure:
    with _server() as server:
        file = pipeline_file(server, Path(tempfile.mkdtemp(dir=folder)) / "reader", [TABLE])
        run = _run("bench.programs.latency_reader", file, seconds)
    return of_mysql.figure(run, READER, __version__, task=TASK)


def _pipeline(folder: Path, seconds: int) -> Figure:
    sections = {"epoch": {"interval": INTERVAL_MS}, "spark": {"master": "local[2]"}}
    warm.prepare_spark()
    with _server() as server:
        file = pipeline_file(
            server, Path(tempfile.mkdtemp(dir=folder)) / "pipeline", [TABLE], sections=sections
        )
        run = _run("bench.programs.latency", file, seconds)
        _check_target(server, file)
    return of_mysql.figure(
        run, PIPELINE, __version__, task=TASK, epochs=run.report["epochs"], interval_ms=INTERVAL_MS
    )


def _debezium(seconds: int) -> Figure:
    command = debezium_command("latency")
    with _server() as server:
        with connected(server) as sql:
            sql.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (_SLOT,))
        place = [server.host, str(server.port), server.user, server.password, server.database]
        arguments = [*command, *place, TABLE, _SLOT, PUBLICATION]
        run = _run("bench.programs.latency_debezium", json.dumps(_source(server)), seconds, *arguments)
    return of_mysql.figure(run, peers_log.DEBEZIUM, java.DEBEZIUM_VERSION, task=TASK)


def _run(program: str, source: object, seconds: int, *arguments: object) -> measure.Measured:
    command = measure.program(program, source, WARM_S, seconds, *arguments)
    return measure.run(command, timeout_s=seconds + 600, sample_ms=200)


def _check_target(server: PostgreSqlServer, file: Path) -> None:
    """The target has as many rows as its source, with the same ids and numbers of changes."""
    columns = "count(*) AS n, sum(id) AS ids, sum(v) AS changes"
    target = f"SELECT {columns} FROM {TABLE.partition('.')[2]}"
    command = measure.program("penstock", "query", file, target, "--json")
    done = subprocess.run(command, env=measure.environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunFailed(f"the target cannot be read: {done.stderr.strip()[-400:]}")
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    with connected(server) as sql:
        wanted = sql.execute(f"SELECT {columns} FROM {TABLE}".encode()).fetchone()
    assert wanted is not None
    if [int(one) for one in found.values()] != [int(one) for one in wanted]:
        raise RunFailed(f"the target has {found}, the source {wanted}")


@contextmanager
def _server() -> Iterator[PostgreSqlServer]:
    with PostgreSqlServer(settings={**SETTINGS, "fsync": "on"}) as server:
        with connected(server) as sql:
            sql.execute(f"CREATE SCHEMA {TABLE.partition('.')[0]}".encode())
            sql.execute(DEFINITION.encode())
            rows = f"SELECT n, 0, 0, 'row ' || n FROM generate_series(0, {ROWS_BEFORE - 1}) n"
            sql.execute(f"INSERT INTO {TABLE} {rows}".encode())
            sql.execute(f"CREATE PUBLICATION {PUBLICATION} FOR ALL TABLES".encode())
        yield server


def _source(server: PostgreSqlServer) -> dict[str, Any]:
    return {
        "type": "postgresql", "host": server.host, "port": server.port, "database": server.database,
        "user": server.user, "password": server.password, "tls": "disable",
    }  # fmt: skip
