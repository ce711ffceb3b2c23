"""A pipeline that follows a script. Everything but Spark is the real thing.

The real writer writes the relay log. The real planner plans epochs into a real state store. Chunks are staged
and placed by the real rule, and the core decodes rows. `Target` executes the steps of plans in memory, by the
contract of sinks. Everything happens in one thread, in the order of the script.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.scripted.script import ABORT, EOF, PAUSE, Chunk, Definition, Item, Marker, Transaction
from tests.scripted.server import Server
from tests.scripted.source import ScriptedSource, WholeRowImages
from tests.snapshot.history_target import Target

from penstock.config import PipelineConfig
from penstock.config import parse as parse_config
from penstock.epochs.record import record
from penstock.errors import ChunkOutdated, TransientError
from penstock.model.offset import Offset
from penstock.model.schema import TableId, TableSchema
from penstock.model.table import TableState, is_reading, is_resnapshot_pending, is_splitting
from penstock.planning.discovery import discover
from penstock.planning.planner import Planner, PlannerLimits
from penstock.planning.policy import Policies
from penstock.planning.resnapshots import Resnapshots
from penstock.relaylog.files import LogPlace
from penstock.relaylog.reader import RelayLog
from penstock.snapshot.chunk_log import ChunkLog
from penstock.snapshot.placement import PlacementLimits
from penstock.snapshot.staging import Stager, Staging
from penstock.sources.table_filter import TableFilter
from penstock.state import StateStore
from penstock.store.opening import open_store

CHUNK_ROWS = 2
TURNS_MAX = 1000


class Run:
    """One run of the pipeline: everything that is in memory only, and lost when it is killed."""

    def __init__(self, config: PipelineConfig, source: ScriptedSource, target: Target) -> None:
        self._config, self._source, self._target = config, source, target
        self.receiver = source.receiver(config.state / "pipeline.yaml")
        self.receiver.start()
        self.state = StateStore(config.state)
        self.log = RelayLog.open(config.relay_log_path)
        self._chunk_log = ChunkLog(LogPlace.of(config))
        self._captured = TableFilter(config.tables, fold_case=source.catalog.fold_case)
        self._hosts = source.snapshot_hosts(self._captured, self._chunk_log.bytes_outside)
        for staged in target.staging.staged():
            self.state.chunk_staged(staged)  # what an earlier run staged counts
        discover(
            self.state, self.log, source, self._captured, config, append_only=target.append_only,
            wait=self._wait,
        )  # fmt: skip
        self._resnapshots = Resnapshots(
            self.state, self.log, source, config, target.open, wait=self._wait,
            renew=self.receiver.renew,
        )  # fmt: skip
        self._planner = Planner(
            self.state,
            self.log,
            source.statements(self._captured, self.log, types=config.types, parks_cascades=True),
            windows=source.windows,
            policies=Policies(config.evolution, append_only=target.append_only, reads=True),
            discard=target.staging.discard,
            limits=PlannerLimits(
                config.epoch.bytes_max,
                target.limits,
                task_bytes=config.epoch.task_bytes,
                snapshot_rows_max=config.epoch.snapshot_rows_max,
            ),
        )

    def kill(self) -> None:
        """Ends the run. What is not durable is lost."""
        self.receiver.stop()
        self.state.close()

    def plan(self) -> bool:
        """Plans an epoch, and says whether there was one to plan."""
        self.receiver.check()
        self._resnapshots.work()
        return self._planner.plan_next() is not None

    def turn(self) -> bool:
        """One turn of the pipeline's loop. Says whether there was anything to do."""
        plans = self.state.pending()
        for plan in plans:
            outcomes = self._target.apply(plan, kill=None)
            merges, discard = not self._target.append_only, self._target.staging.discard
            record(self.state, plan, outcomes, discard=discard, rereads_max=3, merges=merges)
            for staged in [one for outcome in outcomes for one in outcome.placed]:
                discard(staged)
        before = self.state.position
        return bool(plans) or self.plan() or self.state.position != before

    def catch_up(self) -> None:
        """Returns when all of the log is applied."""
        for _ in range(TURNS_MAX):
            if not self.turn():
                return
        raise AssertionError(f"there is no end to it: {self.state.tables()}")

    def read_chunk(self, meanwhile: Sequence[Transaction | Definition] = ()) -> bool:
        """Reads the next planned chunk, and says whether there was one."""
        self.receiver.check()
        for table in self.state.tables_that(is_splitting):
            self._split(table)
        for table in self.state.tables_that(is_reading):
            chunk = self.state.next_planned(table.table, set())
            if chunk is None:
                continue
            host = replace(self._hosts.followed(), meanwhile=tuple(meanwhile))
            with Stager(host, self._target.staging) as stager:
                folder = str(table.start)
                executed = self._chunk_log.executed_at(self._since(table))
                self.state.chunk_staged(stager.stage(table.schema, chunk, folder, executed=executed))
            return True
        return False

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to read."""
        waits = (is_resnapshot_pending, is_splitting, is_reading)
        tables = self.state.tables().values()
        return not any(is_waiting(one) for one in tables for is_waiting in waits)

    def _split(self, table: TableState) -> None:
        executed = self._chunk_log.executed_at(self._since(table))
        known = self.state.last_chunk(table.table)
        for chunk in self._source.chunks.find(
            table.schema, CHUNK_ROWS, executed, sized=lambda rows: None, after=known
        ):
            self.state.add_chunks(table, [chunk])

    def _since(self, table: TableState) -> Offset:
        return Offset(max(table.start, self.state.changed_at(table.table)))

    def _wait(self, condition: Any, what: str, *, seconds: float = 30.0) -> None:
        self.receiver.wait_for(condition, what, threading.Event(), seconds=seconds)


class Play:
    """Plays scripts, one after the other, for one pipeline and one target."""

    def __init__(
        self,
        folder: Path,
        *tables: TableSchema,
        append_only: bool = False,
        limits: PlacementLimits = PlacementLimits(1 << 40, 1 << 40),  # noqa: B008 (frozen)
        **options: Any,
    ) -> None:
        """`options`: more sections of the pipeline file."""
        self.server = Server({one.table: one for one in tables})
        self.config = parse_config(
            {
                "name": "play",
                "source": {"type": "script", "server": self.server.address},
                "tables": ["shop.*"],
                "sink": {"type": "parquet" if append_only else "iceberg", "path": str(folder / "lake")},
                "state": str(folder / "state"),
                **options,
            }
        )
        staging = Staging(open_store((folder / "state" / "staging").absolute().as_uri()))
        self.target = Target(
            staging, append_only=append_only, limits=limits, omitted=WholeRowImages().omitted
        )
        self.source = ScriptedSource(self.config, self.server)
        self._run: Run | None = None

    @property
    def run(self) -> Run:
        """The pipeline's process. It starts when it is first needed."""
        if self._run is None:
            self._run = Run(self.config, self.source, self.target)
        return self._run

    def play(self, *script: Item) -> None:
        """Plays items. Those before the first item of the pipeline (`Chunk` or a marker) happen before the
        pipeline starts."""
        for item in script:
            if isinstance(item, Transaction):
                self._transaction(item)
            elif isinstance(item, Chunk):
                self._read(item)
            elif item is PAUSE:
                self.run.catch_up()
            elif item is ABORT:
                self._abort()
            elif item is EOF:
                self._end()
            else:
                assert not isinstance(item, Marker)
                self.server.run(item)

    def close(self) -> None:
        if self._run is not None:
            self._run.kill()
        self.source.close()

    def rows(self, table: TableId) -> list[tuple[Any, ...]]:
        """The rows of the target, ordered by key."""
        return [row for _, row in sorted(self.target.now(table).items())]

    def state(self, table: TableId) -> TableState:
        found = self.run.state.table(table)
        assert found is not None
        return found

    def judge(self) -> None:
        """Asserts that the target has the rows of the source."""
        for table, rows in self.server.rows.items():
            assert self.rows(table) == [rows[key] for key in sorted(rows)], str(table)

    def _transaction(self, item: Transaction) -> None:
        if ABORT not in item.changes:
            self.server.run(item)
            return
        receiver = self.run.receiver  # it has come as far as the script
        self.server.run(item)
        receiver.receive_half()
        self._kill()

    def _read(self, item: Chunk) -> None:
        assert self.run.read_chunk(item.meanwhile), "no chunk is planned"

    def _abort(self) -> None:
        state = self.run.state
        before = None
        while not state.has_pending() and state.position != before:
            before = state.position
            self.run.plan()
        self._kill()

    def _kill(self) -> None:
        self.run.kill()
        self._run = None

    def _end(self) -> None:
        for _ in range(TURNS_MAX):
            self.run.catch_up()
            if self.run.is_done:
                self.judge()
                return
            try:
                self.run.read_chunk()
            except (ChunkOutdated, TransientError):
                continue  # the log says why
        raise AssertionError(f"it does not end: {self.run.state.tables()}")
