"""Penstock's own figures of one workload: receiver, decode, snapshot, merge."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from bench import measure, target, workload
from bench.log import BenchLog
from bench.measure import Figure, NotRun, Outcome, RunFailed
from bench.peers_log import check_counts
from bench.peers_snapshot import check_rows
from bench.peers_snapshot import task as snapshot_task
from penstock import __version__
from penstock.config import TablesConfig
from penstock.errors import PenstockError
from penstock.model.schema import TableId
from penstock.sources.mysql import catalog

SYSTEM = "penstock"
ORDERS = "orders"
"""The workload that the goals are about; the others are about logs."""
RECEIVE = "receive into the relay log"
RECEIVE_TLS = "receive into the relay log, TLS"
PACKETS = "raw socket, bytes only"
"""The system beside the receiver: what it would be if it did nothing with what it receives."""
PACKETS_KEPT = "raw socket, into a durable file"
"""... if it did only what any receiver must that promises to keep it."""
MERGE = "merge into Iceberg"
MERGE_ONE_CORE = "merge into Iceberg, on one core"
MERGE_EPOCHS = "merge into Iceberg, epochs of 48 MiB"
"""The first one finds an empty table, as the only one of `MERGE` does; the others what came before them."""
MERGE_DELTA = "merge into Delta"
TABLE = TableId(workload.DATABASE, workload.TABLE)
"""What a snapshot reads."""
ENCODED = ("debezium", "maxwell", "avro", "protobuf")
"""Formats whose messages are written: one for each change."""
DECODE_PASSES = 3
"""In each run."""
DECODE_SAMPLE_MS = 1000
"""The program is one process and tells itself what it used. A sample every 50 ms would be a third runner on
two cores that two threads want for themselves: they took 6 % more CPU time with it."""
_RECEIVE_TIMEOUT_S = 300
_MERGE_TIMEOUT_S = 3600


def decode_task(layout: str, threads: int) -> str:
    what = {"changelog": "every row image", "latest": "last change per key"}[layout]
    return f"relay log to Arrow, {what}, {threads} thread{'' if threads == 1 else 's'}"


def encode_task(format: str) -> str:
    return f"relay log to messages of {format}, 1 thread"


def tried(task: str, run: Callable[[], Figure], system: str = SYSTEM, version: str = __version__) -> Outcome:
    try:
        return run()
    except (RunFailed, PenstockError) as error:
        return NotRun(system, version, task, str(error))


Entry = tuple[str, Callable[[], Figure], str, str]
"""What `tried` takes."""


def in_turns(times: int, entries: Sequence[Entry]) -> Iterator[Outcome]:
    """Each of them, and all again, so many times, where they are held against each other: what else the
    machine does then meets all alike. Of each the run with the median wall time, or why there is none."""
    figures: list[list[Figure]] = [[] for _ in entries]
    failed: dict[int, NotRun] = {}
    for _ in range(times):
        for at, entry in enumerate(entries):
            if at not in failed:
                outcome = tried(*entry)
                if isinstance(outcome, NotRun):
                    failed[at] = outcome
                else:
                    figures[at].append(outcome)
    for at, found in enumerate(figures):
        yield failed[at] if at in failed else measure.middle(found)


class Workplace:
    """A folder with pipeline files and relay logs for one run of the benchmark."""

    def __init__(self, log: BenchLog, folder: Path, repeat: int) -> None:
        self.log = log
        self.repeat = repeat
        self.folder = folder
        self._relay: Path | None = None
        self.schemas_file = folder / f"{log.workload.name}.json"
        """The definition of each table of the workload, one a line."""
        tables = TablesConfig(include=[str(table) for table in log.tables])
        with log.server.connect() as connection:
            schemas = catalog.read_tables(connection, tables)
        assert len(schemas) == len(log.tables)
        self.schemas_file.write_text("".join(f"{schema.to_json()}\n" for schema in schemas.values()))

    def pipeline_file(
        self,
        *,
        tls: bool = False,
        relay: Path | None = None,
        sink: str = "iceberg",
        cores: int = 2,
        epoch_bytes: str = "512MiB",
        sections: Mapping[str, Any] | None = None,
    ) -> Path:
        """A pipeline of its own that replays the log from its beginning. `sections` of its file are added, or
        replace those that it would have."""
        home = Path(tempfile.mkdtemp(dir=self.folder))
        server = self.log.server
        document = {
            "name": "bench",
            "source": {
                "host": server.host, "port": server.port, "tls": "required" if tls else "disabled",
                "user": workload.PEER_USER, "password": workload.PEER_PASSWORD,
                "start": "earliest",
            },
            "tables": {
                "include": [f"{workload.DATABASE}.*"],
                "exclude": [f"{workload.DATABASE}.{workload.TAIL_TABLE}"],
            },
            "sink": {"type": sink, "path": str(home / "warehouse")},
            "state": str(home / "state"),
            "relay_log": {"path": str(relay or home / "relay")},
            "snapshot": {"mode": "never"},
            "epoch": {"bytes_max": epoch_bytes},
            "spark": {"master": f"local[{cores}]"},
            **(sections or {}),
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
        raw = [(RECEIVE, partial(self._packets, system), system, "") for system in (PACKETS, PACKETS_KEPT)]
        ours = (RECEIVE, partial(self._receive, tls=False), SYSTEM, __version__)
        with_tls = (RECEIVE_TLS, partial(self._receive, tls=True), SYSTEM, __version__)
        yield from in_turns(self.repeat, [ours, *raw, with_tls])

    def _packets(self, system: str) -> Figure:
        file = self.pipeline_file()
        kept = [file.parent / "bytes"] if system == PACKETS_KEPT else []
        place = [self.log.file, self.log.position, *kept]
        measured = measure.run(measure.program("bench.programs.packets", file, *place))
        report = measured.report
        if report["bytes"] < self.log.log_bytes:
            raise RunFailed(f"{report['bytes']:,} bytes were read, the log has {self.log.log_bytes:,}")
        return measure.figure(
            measure.replaced(measured, {**report, "changes": self.log.counts.changes}),
            system=system, version="", task=RECEIVE,
            mb_per_s=round(report["bytes"] / 1e6 / report["wall_s"], 1),
        )  # fmt: skip

    def receive(self, file: Path) -> measure.Measured:
        """Fills the relay log of a pipeline."""
        return measure.run(
            measure.program(
                "bench.programs.receive",
                file,
                f"{self.log.end_file}:{self.log.end_position}",
                _RECEIVE_TIMEOUT_S,
            )
        )

    def receive_figure(self) -> Figure:
        return self._receive(tls=False)

    def _receive(self, *, tls: bool) -> Figure:
        file = self.pipeline_file(tls=tls)
        measured = self.receive(file)
        self._relay = self._relay or file.parent / "relay"
        report = {**measured.report, "changes": self.log.counts.changes}
        return measure.figure(
            measure.replaced(measured, report), system=SYSTEM, version=__version__,
            task=RECEIVE_TLS if tls else RECEIVE, mb_per_s=round(report["bytes"] / 1e6 / report["wall_s"], 1),
        )  # fmt: skip

    # decode -------------------------------------------------------------------------------------------------

    def decode_figures(self) -> Iterator[Outcome]:
        for layout in ("changelog", "latest"):
            runs = [
                (decode_task(layout, threads), partial(self._decode, layout, threads), SYSTEM, __version__)
                for threads in (1, 2)
            ]
            yield from in_turns(self.repeat, runs)

        for format in ENCODED:
            yield tried(
                encode_task(format), partial(measure.median_of, self.repeat, partial(self._encode, format))
            )

    def _encode(self, format: str) -> Figure:
        measured = measure.run(
            measure.program(
                "bench.programs.encode", self.relay_log(), self.schemas_file, format, DECODE_PASSES
            ),
            sample_ms=DECODE_SAMPLE_MS,
        )
        changes, messages = self.log.counts.changes, measured.report["messages"]
        if messages != changes:
            raise RunFailed(f"{messages} messages of {changes} changes")
        measured = measure.replaced(measured, {**measured.report, "changes": changes})
        return measure.figure(
            measured, system=SYSTEM, version=__version__, task=encode_task(format), passes=DECODE_PASSES
        )

    def _decode(self, layout: str, threads: int) -> Figure:
        measured = measure.run(
            measure.program(
                "bench.programs.decode", self.relay_log(), self.schemas_file, layout, threads, DECODE_PASSES
            ),
            sample_ms=DECODE_SAMPLE_MS,
        )
        kinds = measured.report["kinds"]
        counts = self.log.counts
        if layout == "changelog":
            names = {"insert": "inserts", "update_postimage": "updates", "delete": "deletes"}
            check_counts(SYSTEM, {ours: kinds.get(name, 0) for name, ours in names.items()}, self.log)
        elif (kinds.get("False", 0), kinds.get("True", 0)) != (counts.rows_left, counts.deletes):
            raise RunFailed(
                f"the last changes are {kinds}, not {counts.rows_left} rows and {counts.deletes} deletions"
            )
        measured = measure.replaced(measured, {**measured.report, "changes": counts.changes})
        return measure.figure(
            measured, system=SYSTEM, version=__version__, task=decode_task(layout, threads),
            row_images=measured.report["rows"], threads=threads, splits=measured.report["splits"],
            passes=DECODE_PASSES, times=measured.report["times"],
        )  # fmt: skip

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
        yield tried(MERGE, partial(self.merge, MERGE))
        if self.log.workload.name == ORDERS:
            yield tried(MERGE_EPOCHS, partial(self.merge, MERGE_EPOCHS, epoch_bytes="48MiB"))
            yield tried(MERGE_ONE_CORE, partial(self.merge, MERGE_ONE_CORE, cores=1))
            yield tried(MERGE_DELTA, partial(self.merge, MERGE_DELTA, sink="delta"))

    def merge(
        self, task: str, *, sink: str = "iceberg", cores: int = 2, epoch_bytes: str = "512MiB"
    ) -> Figure:
        """The whole backlog, which lies in the relay log, into empty tables, by `penstock run --once`.

        Timed from the first epoch's plan to the last epoch's end, from the pipeline's own history; CPU time
        is that of the whole tree (driver, JVM, Python workers, idle receiver) in that time.
        """
        file = self.pipeline_file(relay=self.relay_log(), sink=sink, cores=cores, epoch_bytes=epoch_bytes)
        return self.merged(task, file, cores=cores)

    def merged(
        self,
        task: str,
        file: Path,
        *,
        cores: int = 2,
        beside: Callable[[float, float], float] | None = None,
        equal: bool = True,
    ) -> Figure:
        """`merge` by a pipeline file. `beside`: the CPU seconds of processes elsewhere between two monotonic
        times, which count, too. `equal`: whether the target must be equal to its source."""
        command = measure.program("penstock", "run", file, "--once", "--json")
        if cores == 1:
            command = ["taskset", "--cpu-list", "0", *command]
        measured = measure.run(command, sample_ms=200, timeout_s=_MERGE_TIMEOUT_S)
        began, ended, epochs = _epochs(file)
        monotonic = time.time() - time.monotonic()
        report = {
            "changes": self.log.counts.changes,
            "began": began - monotonic,
            "ended": ended - monotonic,
        }
        elsewhere = 0.0 if beside is None else beside(report["began"], report["ended"])
        if equal:
            target.check(self.log, file)
        found = measure.figure(
            measure.replaced(measured, report), system=SYSTEM, version=__version__, task=task,
            tables=len(self.log.tables), epochs=epochs, whole_process_s=round(measured.wall_s, 1),
        )  # fmt: skip
        return replace(found, cpu_s=found.cpu_s + elsewhere)


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
