"""A table of PostgreSQL, read by one, two and four sessions: in chunks, by bare COPY, and by others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyspark

from bench import java, measure, ours, peers_log
from bench.measure import Figure, Outcome, RunFailed
from bench.postgres.log import debezium_command, with_server
from bench.postgres.place import PUBLICATION, TABLE, Place
from bench.postgres.server_cpu import ServerCpu
from penstock import __version__

SESSIONS = (1, 2, 4)
COPY = "COPY, bytes only"
SPARK_JDBC = "Spark JDBC"
JDBC_DRIVER = "org.postgresql:postgresql:42.7.7"
_TIMEOUT_S = 600


def task(sessions: int) -> str:
    return f"PostgreSQL: snapshot, {sessions} session{'' if sessions == 1 else 's'}"


def figures(place: Place, repeat: int, chosen: Sequence[str]) -> Iterator[Outcome]:
    """`chosen`: words in the names of peers; none: all of them."""
    for sessions in SESSIONS:
        pair = [
            (task(sessions), partial(_chunks, place, sessions), ours.SYSTEM, __version__),
            (task(sessions), partial(_copy, place, sessions), COPY, ""),
        ]
        yield from ours.in_turns(repeat, pair)
    peers: list[tuple[str, str, Callable[[Place], Figure]]] = [
        (peers_log.DEBEZIUM, java.DEBEZIUM_VERSION, _debezium),
        (SPARK_JDBC, pyspark.__version__, _spark_jdbc),
    ]
    for name, version, run in peers:
        if not chosen or any(word.lower() in name.lower() for word in chosen):
            yield ours.tried(task(2), partial(run, place), name, version)


def _chunks(place: Place, sessions: int) -> Figure:
    command = measure.program(
        "bench.programs.snapshot", place.pipeline_file(None), f"public.{TABLE}", sessions
    )
    return _measured(place, command, ours.SYSTEM, __version__, sessions)


def _copy(place: Place, sessions: int) -> Figure:
    command = measure.program(
        "bench.programs.pg_copy", place.pipeline_file(None), f"public.{TABLE}", sessions
    )
    return _measured(place, command, COPY, "", sessions)


def _debezium(place: Place) -> Figure:
    server = place.server
    with place.slot() as slot:
        arguments = [server.host, str(server.port), server.user, server.password, server.database]
        command = [*debezium_command("snapshot"), *arguments, f"public.{TABLE}", slot, PUBLICATION, "2"]
        return _measured(place, command, peers_log.DEBEZIUM, java.DEBEZIUM_VERSION, 2)


def _spark_jdbc(place: Place) -> Figure:
    server = place.server
    command = [
        sys.executable, str(java.PEERS / "spark_jdbc.py"), str(java.fetch(JDBC_DRIVER)[0]),
        "org.postgresql.Driver", f"jdbc:postgresql://{server.host}:{server.port}/{server.database}",
        server.user, server.password, TABLE, "id", str(place.counts.inserts), "2", "10000",
    ]  # fmt: skip
    return _measured(place, command, SPARK_JDBC, pyspark.__version__, 2)


def _measured(place: Place, command: list[str], system: str, version: str, sessions: int) -> Figure:
    with ServerCpu(place.server) as cpu:
        run = measure.run(command, timeout_s=_TIMEOUT_S)
    if run.report["changes"] != place.counts.rows_left:
        raise RunFailed(f"{system} read {run.report['changes']} rows, the table has {place.counts.rows_left}")
    return with_server(run, cpu, system, version, task(sessions))
