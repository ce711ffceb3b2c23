"""The log of PostgreSQL: received, decoded, and read by others, each by a slot of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from bench import java, measure, ours, peers_log
from bench.measure import Figure, Measured, Outcome, RunFailed
from bench.postgres.place import PUBLICATION, TABLE, TAIL, TAIL_TEXT, Place
from bench.postgres.server_cpu import ServerCpu
from penstock import __version__
from penstock import config as configuration
from penstock.artifacts.maven import cache_directory
from penstock.model.schema import TableId
from penstock.relaylog.segment_format import lsn_position
from penstock.sources.postgresql.options import options_of
from penstock.sources.postgresql.session import PostgreSqlSession

RECEIVE = "PostgreSQL: receive into the relay log"
READ = "PostgreSQL: read the log"
DECODE = "PostgreSQL: relay log to Arrow, 1 thread"
LIBPQ, SOCKET = "libpq, bytes into a file", "raw socket, bytes into a file"
"""What any receiver needs at least: with libpq, which gives one message at a time, and without it."""
PSYCOPG2 = "psycopg2, parsed in Python"
PSYCOPG2_VERSION = "2.9.11"
_TIMEOUT_S = 900


class Log:
    """`repeat`: runs of what is quick."""

    def __init__(self, place: Place, repeat: int) -> None:
        self.place, self.repeat = place, repeat
        self._relay: Path | None = None

    def figures(self, chosen: Sequence[str]) -> Iterator[Outcome]:
        """`chosen`: words in the names of peers; none: all of them."""
        yield from ours.in_turns(
            self.repeat,
            [
                (RECEIVE, self._receive, ours.SYSTEM, __version__),
                *((RECEIVE, partial(self._bytes, name, how), name, "") for name, how in _BARE.items()),
            ],
        )
        yield ours.tried(DECODE, partial(measure.median_of, self.repeat, self._decode))
        for name, version, run in (
            (PSYCOPG2, PSYCOPG2_VERSION, self._psycopg2),
            (peers_log.DEBEZIUM, java.DEBEZIUM_VERSION, self._debezium),
            (peers_log.FLINK_CDC, java.FLINK_CDC_VERSION, self._flink_cdc),
        ):
            if not chosen or any(word.lower() in name.lower() for word in chosen):
                yield ours.tried(READ, run, name, version)

    def _receive(self) -> Figure:
        place = self.place
        with place.slot() as slot, ServerCpu(place.server) as cpu:
            file = place.pipeline_file(slot)
            command = measure.program("bench.programs.receive", file, lsn_position(place.end), _TIMEOUT_S)
            run = measure.run(command, timeout_s=_TIMEOUT_S + 60)
            if self._relay is not None:
                shutil.rmtree(self._relay.parent)
            self._relay = file.parent / "relay"
            return self._figure(run, cpu, ours.SYSTEM, __version__, RECEIVE)

    def _bytes(self, name: str, how: str) -> Figure:
        with self.place.slot() as slot, ServerCpu(self.place.server) as cpu:
            file = self.place.pipeline_file(slot)
            out = file.parent / "bytes"
            run = measure.run(measure.program("bench.programs.pg_packets", file, how, TAIL_TEXT, out))
            out.unlink()
            return self._figure(run, cpu, name, "", RECEIVE)

    def _psycopg2(self) -> Figure:
        script = [sys.executable, str(java.PEERS / "psycopg2_reader.py"), str(_psycopg2_folder())]
        with self.place.slot() as slot, ServerCpu(self.place.server) as cpu:
            run = measure.run([*script, *_server(self.place), slot, PUBLICATION, TAIL], timeout_s=_TIMEOUT_S)
            self._check(PSYCOPG2, run)
            return self._figure(run, cpu, PSYCOPG2, PSYCOPG2_VERSION, READ)

    def _debezium(self) -> Figure:
        return self._java(debezium_command("log"), peers_log.DEBEZIUM, java.DEBEZIUM_VERSION)

    def _flink_cdc(self) -> Figure:
        command = peers_log.flink_command("FlinkPostgres", "postgres")
        return self._java(command, peers_log.FLINK_CDC, java.FLINK_CDC_VERSION)

    def _java(self, command: Sequence[str], name: str, version: str) -> Figure:
        with self.place.slot() as slot, ServerCpu(self.place.server) as cpu:
            tables = f"public.{TABLE},public.{TAIL}"
            arguments = [*_server(self.place), tables, slot, PUBLICATION, TAIL]
            run = measure.run([*command, *arguments], timeout_s=_TIMEOUT_S)
            self._check(name, run)
            return self._figure(run, cpu, name, version, READ)

    def _decode(self) -> Figure:
        if self._relay is None:
            self._receive()
        assert self._relay is not None
        schemas = self.place.folder / "schemas.json"
        config = configuration.load(self._relay.parent / "pipeline.yaml")
        with closing(PostgreSqlSession(options_of(config), PUBLICATION)) as session:
            schema = session.read_table(TableId("public", TABLE))
        assert schema is not None
        schemas.write_text(f"{schema.to_json()}\n")
        run = measure.run(
            measure.program(
                "bench.programs.decode", self._relay, schemas, "changelog", 1, ours.DECODE_PASSES
            ),
            sample_ms=ours.DECODE_SAMPLE_MS,
        )
        kinds, names = (
            run.report["kinds"],
            {"insert": "inserts", "update_postimage": "updates", "delete": "deletes"},
        )
        self._check(ours.SYSTEM, run, {name: kinds.get(kind, 0) for kind, name in names.items()})
        report = {**run.report, "changes": self.place.counts.changes}
        return measure.figure(
            measure.replaced(run, report), system=ours.SYSTEM, version=__version__, task=DECODE,
            row_images=run.report["rows"],
        )  # fmt: skip

    def _check(self, system: str, run: Measured, counts: dict[str, int] | None = None) -> None:
        found = run.report["counts"] if counts is None else counts
        if found != vars(self.place.counts):
            raise RunFailed(f"{system} read {found}, the log holds {vars(self.place.counts)}")

    def _figure(self, run: Measured, cpu: ServerCpu, system: str, version: str, task: str) -> Figure:
        report = {**run.report, "changes": self.place.counts.changes}
        return with_server(measure.replaced(run, report), cpu, system, version, task)


_BARE = {LIBPQ: "libpq", SOCKET: "socket"}


def with_server(run: Measured, cpu: ServerCpu, system: str, version: str, task: str) -> Figure:
    """The figure of a program that says when it began and ended, with what the server used meanwhile."""
    began, ended = run.report["began"], run.report["ended"]
    busy = 100 * cpu.walsenders_busy_s(began, ended) / (ended - began)
    return measure.figure(
        run, system=system, version=version, task=task,
        server_s=round(cpu.all_s(began, ended), 2), walsender_busy_percent=round(busy, 1),
    )  # fmt: skip


def debezium_command(what: str) -> list[str]:
    beside = ("DebeziumReader", "DebeziumMessages", "DebeziumSnapshot", "DebeziumLatency")
    return [*java.compiled("DebeziumPostgres", java.debezium_jars("postgres"), beside=beside), what]


def _server(place: Place) -> list[str]:
    server = place.server
    return [server.host, str(server.port), server.user, server.password, server.database]


def _psycopg2_folder() -> Path:
    """psycopg2 in a folder of its own: it is no dependency of ours."""
    target = cache_directory() / "bench" / f"psycopg2-{PSYCOPG2_VERSION}-py{sys.version_info.minor}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(dir=target.parent))
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(staging)]
        done = subprocess.run(
            [*command, f"psycopg2-binary=={PSYCOPG2_VERSION}"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            shutil.rmtree(staging)
            raise RunFailed(f"pip install psycopg2-binary failed: {done.stderr.strip()[-300:]}")
        staging.rename(target)
    return target
