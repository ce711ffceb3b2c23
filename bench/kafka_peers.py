"""Other tools with their own producers for Kafka, from the server's log to messages that a broker has
acknowledged. Each has the log from its beginning, a broker of its own kind of the same version, acknowledged
by all replicas, and the settings that its documentation gives for throughput: compression (lz4, as ours),
large batches, several requests on their way where the tool allows it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from bench import java, measure
from bench.goals import Goal
from bench.log import BenchLog
from bench.measure import Figure, Outcome, RunFailed
from bench.ours import RECEIVE, SYSTEM, tried
from bench.peers_log import arguments
from penstock import __version__
from penstock.testing import servers, topics

TOPIC = "bench"
_TIMEOUT_S = 1800
THROUGHPUT_MIN, CPU_MIN = 5.0, 10.0
"""The goals: how many times as many changes as a peer, per second and per CPU second."""


@dataclass(frozen=True)
class Peer:
    """`format`: ours that has the same messages. `rows`: of a message."""

    name: str
    version: str
    format: str
    command: Callable[[BenchLog, str], list[str]]
    rows: Callable[[bytes], int] = lambda value: 1


def _maxwell(log: BenchLog, bootstrap: str) -> list[str]:
    beside = ["TopicEnd", "jdk/nashorn/api/scripting/ScriptObjectMirror"]
    command = java.compiled("MaxwellKafka", java.maxwell_jars(), beside=beside)
    return [*command, *arguments(log), bootstrap, TOPIC]


def _debezium(log: BenchLog, bootstrap: str) -> list[str]:
    command = java.compiled("DebeziumKafka", java.debezium_jars(), beside=["DebeziumReader"])
    return [*command, *arguments(log), log.gtids, bootstrap, TOPIC]


def _canal(log: BenchLog, bootstrap: str) -> list[str]:
    options = ("-Xmx1g", f"-Dlogback.configurationFile={java.PEERS / 'java' / 'logback.xml'}")
    command = java.compiled("CanalKafka", java.canal_kafka_jars(), options=options, beside=["CanalReader"])
    return [*command, *arguments(log), bootstrap, TOPIC]


def rows_of_canal(value: bytes) -> int:
    message = json.loads(value)
    return 0 if message["isDdl"] else len(message["data"] or ())


PEERS = (
    Peer("Canal, MQ mode", java.CANAL_VERSION, "canal", _canal, rows_of_canal),
    Peer("Debezium embedded, producer", java.DEBEZIUM_VERSION, "debezium", _debezium),
    # The last one: it writes its own tables into the source, behind the log's end.
    Peer("Maxwell, Kafka producer", java.MAXWELL_VERSION, "maxwell", _maxwell),
)


def task(format: str) -> str:
    return f"server's log to Kafka, acknowledged, {format}"


def measured(log: BenchLog, jvm: Sequence[str], chosen: Sequence[str] = ()) -> Iterator[Outcome]:
    """`jvm`: options of the broker's."""
    for peer in PEERS:
        if not chosen or any(word.lower() in peer.name.lower() for word in chosen):
            yield tried(task(peer.format), partial(_run, peer, log, jvm), peer.name, peer.version)


def _run(peer: Peer, log: BenchLog, jvm: Sequence[str]) -> Figure:
    with servers.kafka(jvm=tuple(jvm)) as brokers:
        topics.create(brokers.bootstrap, TOPIC)
        run = measure.run(peer.command(log, brokers.bootstrap), timeout_s=_TIMEOUT_S)
        found = sum(peer.rows(one.value or b"") for one in topics.records(brokers.bootstrap, [TOPIC]))
    if found != log.counts.changes:
        raise RunFailed(f"{found} of {log.counts.changes} changes are in the topic")
    run = measure.replaced(run, {**run.report, "changes": found})
    return measure.figure(run, system=peer.name, version=peer.version, task=task(peer.format))


def ours(receive: Figure, write: Figure, format: str) -> Figure:
    """What we need for what the peers do: the sum of two figures, as if writing began when everything is
    received."""
    return Figure(
        system=SYSTEM, version=__version__, task=task(format), changes=write.changes,
        wall_s=receive.wall_s + write.wall_s, cpu_s=receive.cpu_s + write.cpu_s,
        rss_mb=receive.rss_mb + write.rss_mb, cpu_process_s=receive.cpu_process_s + write.cpu_process_s,
        details={"sum_of": [RECEIVE, write.task]},
    )  # fmt: skip


def check(outcomes: Sequence[Outcome]) -> Iterator[Goal]:
    figures = {(one.task, one.system): one for one in outcomes if isinstance(one, Figure)}
    for peer in PEERS:
        mine, other = figures.get((task(peer.format), SYSTEM)), figures.get((task(peer.format), peer.name))
        if mine is None or other is None:
            continue
        for what, ratio, least in (
            ("changes per second", mine.per_second / other.per_second, THROUGHPUT_MIN),
            ("changes per CPU second", other.cpu_s_per_million / mine.cpu_s_per_million, CPU_MIN),
        ):
            yield Goal(f"{what} ≥ {least:g} times {peer.name}", f"{ratio:.1f}", ratio >= least)
