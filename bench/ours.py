"""Penstock's own figures: receiver, decode, snapshot, merge."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import yaml

from bench import measure, workload
from bench.log import BenchLog
from bench.measure import Figure, NotRun, Outcome, RunFailed
from bench.peers_log import check_counts
from bench.peers_snapshot import check_rows
from bench.peers_snapshot import task as snapshot_task
from penstock import __version__
from penstock.errors import PenstockError
from penstock.model.schema import TableId
from penstock.sources.mysql import catalog

SYSTEM = "penstock"
RECEIVE = "receive into the relay log"
RECEIVE_TLS = "receive into the relay log, TLS"
MERGE = "merge into Iceberg"
TABLE = TableId(workload.DATABASE, workload.TABLE)


def decode_task(layout: str, threads: int) -> str:
    what = {"changelog": "every row image", "latest": "last change per key"}[layout]
    return f"relay log to Arrow, {what}, {threads} thread{'' if threads == 1 else 's'}"


def tried(task: str, run: Callable[[], Figure]) -> Outcome:
    try:
        return run()
    except (RunFailed, PenstockError) as error:
        return NotRun(SYSTEM, __version__, task, str(error))


class Workplace:
    """A folder with pipeline files and relay logs for one run of the benchmark."""

    def __init__(self, log: BenchLog, folder: Path, repeat: int) -> None:
        self.log = log
        self.repeat = repeat
        self._folder = folder
        self._relay: Path | None = None
        self.schema_file = folder / "orders.json"
        with log.server.connect() as connection:
            schema = catalog.read_table(connection, TABLE)
        assert schema is not None
        self.schema_file.write_text(schema.to_json())

    def pipeline_file(self, *, tls: bool = False, relay: Path | None = None) -> Path:
        """A pipeline of its own that replays the log from its beginning."""
        home = Path(tempfile.mkdtemp(dir=self._folder))
        server = self.log.server
        document = {
            "name": "bench",
            "source": {
                "host": server.host, "port": server.port, "tls": "required" if tls else "disabled",
                "user": workload.PEER_USER, "password": workload.PEER_PASSWORD,
            },
            "tables": [str(TABLE)],
            "sink": {"type": "iceberg", "path": str(home / "warehouse")},
            "state": str(home / "state"),
            "start": "earliest",
            "relay_log": {"path": str(relay or home / "relay")},
            "snapshot": {"mode": "never"},
            "spark": {"master": "local[2]"},
        }  # fmt: skip
        path = home / "pipeline.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    def relay_log(self) -> Path:
        """The log in a relay log; received now unless a measured receiver has left one."""
        if self._relay is None:
            self._receive(tls=False)
        assert self._relay is not None
        return self._relay

    # receiver -----------------------------------------------------------------------------------------------

    def receiver_figures(self) -> Iterator[Outcome]:
        for tls, task in ((False, RECEIVE), (True, RECEIVE_TLS)):
            yield tried(task, partial(measure.median_of, self.repeat, partial(self._receive, tls=tls)))

    def _receive(self, *, tls: bool) -> Figure:
        file = self.pipeline_file(tls=tls)
        measured = measure.run(
            measure.program("bench.programs.receive", file, self.log.file, self.log.end_position)
        )
        self._relay = self._relay or file.parent / "relay"
        report = {**measured.report, "changes": self.log.counts.changes}
        return measure.figure(
            measure.replaced(measured, report), system=SYSTEM, version=__version__,
            task=RECEIVE_TLS if tls else RECEIVE, mb_per_s=round(report["bytes"] / 1e6 / report["wall_s"], 1),
        )  # fmt: skip

    # decode -------------------------------------------------------------------------------------------------

    def decode_figures(self) -> Iterator[Outcome]:
        for layout in ("changelog", "latest"):
            for threads in (1, 2):
                yield tried(decode_task(layout, threads), partial(self._decode, layout, threads))

    def _decode(self, layout: str, threads: int) -> Figure:
        passes = max(1, self.repeat)
        measured = measure.run(
            measure.program(
                "bench.programs.decode", self.relay_log(), self.schema_file, layout, threads, passes
            )
        )
        kinds = measured.report["kinds"]
        counts = self.log.counts
        if layout == "changelog":
            names = {"insert": "inserts", "update_postimage": "updates", "delete": "deletes"}
            check_counts(SYSTEM, {ours: kinds.get(name, 0) for name, ours in names.items()}, self.log)
        elif (kinds.get("False"), kinds.get("True")) != (counts.rows_left, counts.deletes):
            raise RunFailed(
                f"the last changes are {kinds}, not {counts.rows_left} rows and {counts.deletes} deletions"
            )
        measured = measure.replaced(measured, {**measured.report, "changes": counts.changes})
        return measure.figure(
            measured, system=SYSTEM, version=__version__, task=decode_task(layout, threads),
            row_images=measured.report["rows"], threads=threads, splits=measured.report["splits"],
        ).with_runs(passes)  # fmt: skip

    # snapshot -----------------------------------------------------------------------------------------------

    def snapshot_figures(self) -> Iterator[Outcome]:
        for connections in (1, 2):
            yield tried(
                snapshot_task(connections),
                partial(measure.median_of, self.repeat, partial(self._snapshot, connections)),
            )

    def _snapshot(self, connections: int) -> Figure:
        measured = measure.run(
            measure.program("bench.programs.snapshot", self.pipeline_file(), TABLE, connections)
        )
        check_rows(SYSTEM, measured.report["changes"], self.log)
        return measure.figure(
            measured, system=SYSTEM, version=__version__, task=snapshot_task(connections),
            connections=connections, chunks=measured.report["chunks"],
        )  # fmt: skip

    # merge --------------------------------------------------------------------------------------------------

    def merge_figures(self) -> Iterator[Outcome]:
        yield tried(MERGE, self._merge)

    def _merge(self) -> Figure:
        """The whole backlog, which lies in the relay log, into an empty Iceberg table, by `penstock run
        --once`.

        Timed from the first epoch's plan to the last epoch's end, from the pipeline's own history; CPU time
        is that of the whole tree (driver, JVM, Python workers, idle receiver) in that time.
        """
        file = self.pipeline_file(relay=self.relay_log())
        command = measure.program("penstock", "run", file, "--once", "--json")
        measured = measure.run(command, sample_ms=200)
        began, ended, epochs = _epochs(file)
        monotonic = time.time() - time.monotonic()
        report = {
            "changes": self.log.counts.changes,
            "began": began - monotonic,
            "ended": ended - monotonic,
        }
        self._check_target(file)
        return measure.figure(
            measure.replaced(measured, report), system=SYSTEM, version=__version__, task=MERGE,
            epochs=epochs, whole_process_s=round(measured.wall_s, 1),
        )  # fmt: skip

    def _check_target(self, file: Path) -> None:
        """Row count and an order-independent checksum, computed by MySQL and by Spark over equal text."""
        expected = [int(value) for value in self.log.server.query(SOURCE_CHECK)[0]]
        answer = subprocess.run(
            measure.program("penstock", "query", file, TARGET_CHECK, "--json"),
            env=measure.environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        if answer.returncode:
            raise RunFailed(f"the target cannot be read: {answer.stderr.strip()[-500:]}")
        found = json.loads(answer.stdout.strip().splitlines()[-1])
        if [int(found["n"]), int(found["checksum"])] != expected:
            raise RunFailed(f"the target holds {found}, the source has {expected} (rows, checksum)")


_TEXTS = (
    "id",
    "customer_id",
    "status",
    "amount",
    "quantity",
    "priority",
    "due",
    "name",
    "note",
    "attributes",
)
SOURCE_CHECK = (
    "SELECT COUNT(*), SUM(CRC32(CONCAT_WS('|', "
    + ", ".join(f"COALESCE({name}, '~')" for name in _TEXTS)
    + ", HEX(token)))) "
    + f"FROM {TABLE.quoted}"
)
TARGET_CHECK = (
    "SELECT count(*) AS n, sum(crc32(encode(concat_ws('|', "
    + ", ".join(f"coalesce(cast({name} AS string), '~')" for name in _TEXTS)
    + ", hex(token)), 'UTF-8'))) AS checksum "
    + f"FROM {TABLE.table}"
)


def _epochs(file: Path) -> tuple[float, float, int]:
    """When the first epoch was planned and the last one applied (seconds since 1970), and how many there
    were."""
    state = file.parent / "state" / "state.sqlite"
    with contextlib.closing(sqlite3.connect(f"file:{state}?mode=ro", uri=True)) as database:
        began, ended, count = database.execute(
            "SELECT min(planned_us), max(applied_us), count(*) FROM epochs WHERE applied_us IS NOT NULL"
        ).fetchone()
    if not count:
        raise RunFailed("the pipeline has applied no epoch")
    return began / 1e6, ended / 1e6, count
