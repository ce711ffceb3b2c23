"""The parts of a pipeline that are the same whoever gets its rows: a sink (`run.py`), or a query of Spark
(`datasource/server.py`).

They are made in three steps, because each needs the one before: the receiver runs (`Started`), its log is
there (`Followed`), the next epoch can be planned (`Planners`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from penstock.cascades.keys import refers_to_itself
from penstock.config import PipelineConfig
from penstock.epochs.incomplete_images import IncompleteImages
from penstock.model.chunk import Chunk
from penstock.model.offset import Offset, SourcePosition
from penstock.model.partial_snapshot import PartialSnapshot
from penstock.model.schema import TableId
from penstock.model.table import TableState
from penstock.planning.discovery import Wait, discover
from penstock.planning.resnapshots import Resnapshots
from penstock.relaylog.consumers import Consumer
from penstock.relaylog.files import LogPlace
from penstock.relaylog.reader import RelayLog
from penstock.runtime.log_needs import register
from penstock.runtime.lost_log import note_log
from penstock.runtime.planning_loop import Planning, Renewal, make_planner
from penstock.signals import settings
from penstock.sinks.base import Ours, Sink, TargetState
from penstock.snapshot.chunk_jobs import ChunkJobs, ChunkSource
from penstock.snapshot.chunk_log import ChunkLog
from penstock.snapshot.gate import Gate
from penstock.snapshot.reader import SnapshotReader
from penstock.snapshot.single_view import single_view_of
from penstock.snapshot.staging import Staging
from penstock.sources.base import Source
from penstock.sources.chunks import ALL_ROWS
from penstock.sources.preflight import Finding
from penstock.sources.receiver import Receiver
from penstock.sources.table_filter import TableFilter
from penstock.state import StateStore

WAIT_SECONDS = 120.0
"""How long the receiver may take to begin the relay log."""


@dataclass(frozen=True)
class Started:
    """The source of a pipeline whose receiver runs. `lacks_columns`: its row images lack some columns.
    `stopping` ends every wait."""

    config: PipelineConfig
    state: StateStore
    source: Source
    receiver: Receiver
    consumer: Consumer
    stopping: threading.Event
    lacks_columns: bool

    @classmethod
    def start(
        cls,
        config: PipelineConfig,
        state: StateStore,
        source: Source,
        file: Path,
        findings: list[Finding],
        *,
        stopping: threading.Event,
        until: contextlib.ExitStack,
    ) -> Started:
        """Starts the receiver of the pipeline file `file`, which runs `until` that ends. `findings`: those of
        the preflight."""
        consumer = until.enter_context(contextlib.closing(register(config, state)))
        receiver = source.receiver(file)
        until.callback(receiver.stop)
        receiver.start()
        partial_rows = any(finding.partial_rows for finding in findings)
        return cls(config, state, source, receiver, consumer, stopping, partial_rows)

    def wait(self, condition: Callable[[], Any], what: str, *, seconds: float = WAIT_SECONDS) -> None:
        self.receiver.wait_for(condition, what, self.stopping, seconds=seconds)

    def follow(self) -> Followed:
        """Opens the relay log once the receiver has created it, and has recovered it up to the planned
        position."""
        config, state = self.config, self.state
        folder = config.relay_log_path  # the receiver fills it, also from the archive
        self.wait(lambda: RelayLog.exists(folder), "the receiver to begin the relay log")
        log = RelayLog.open(LogPlace.of(config))
        note_log(log, state, config)
        planned = state.position or Offset(min(state.began_after, 1))  # it does not begin at 0 then
        self.wait(lambda: log.refresh() >= planned, "the receiver to recover the relay log")
        captured = TableFilter(config.tables, fold_case=self.source.catalog.fold_case)
        settings.apply_patterns(captured, config.tables, state)
        return Followed(**vars(self), log=log, captured=captured, chunk_log=ChunkLog(log.place))


@dataclass(frozen=True)
class Followed(Started):
    """A source whose log arrives here. `captured`: the tables of the pipeline."""

    log: RelayLog
    captured: TableFilter
    chunk_log: ChunkLog

    @property
    def applies_cascades(self) -> bool:
        """Whether Penstock computes what foreign keys do."""
        return self.config.cascades == "apply" and not self.source.catalog.logs_cascades

    def discover(self, *, wait: Wait | None = None, reads: bool = True) -> None:
        """Adds the tables that the pipeline does not know yet. `reads`: with their rows."""
        discover(
            self.state, self.log, self.source, self.captured, self.config,
            append_only=not self.config.sink_kind.keeps_tables, wait=wait or self.wait, reads=reads,
        )  # fmt: skip

    def images(self) -> IncompleteImages:
        return IncompleteImages(
            self.source.row_images, self.config.types, everywhere=self.lacks_columns,
            executed_at=self.chunk_log.executed_at,
        )  # fmt: skip

    def snapshot_reader(
        self,
        jobs: ChunkJobs,
        staging: Staging,
        *,
        allowed: Callable[[], bool],
        kept_folders: Callable[[], set[str]] = lambda: set(),
    ) -> SnapshotReader:
        """The reader of chunks. `allowed`: whether it may read now. `kept_folders`: see `StagedFolders`."""
        config = self.config
        hosts = self.source.snapshot_hosts(self.captured, self.chunk_log.bytes_outside)
        chunks = ChunkSource(
            find=self._find_chunks,
            executed_at=self.chunk_log.executed_at,
            types=config.types,
            paused=partial(settings.is_paused, self.state),
            view=partial(single_view_of, self.state.tables, self.log.place),
            found_all=self.source.chunks.close_idle,
        )
        return SnapshotReader(
            jobs, self.state, staging, chunks, Gate(config.snapshot, hosts, allowed=allowed),
            parallel=config.snapshot.parallel, retries=config.retries, kept_folders=kept_folders,
        )  # fmt: skip

    def _find_chunks(
        self,
        table: TableState,
        partial: PartialSnapshot | None,
        after: Chunk | None,
        sized: Callable[[int], None],
    ) -> Iterator[Chunk]:
        """Yields the chunks of a table; a table that is read in one piece has a single one."""
        if refers_to_itself(table.schema):
            return iter([Chunk(table.table, 0, None, None)])
        return self.source.chunks.find(
            table.schema,
            self.config.snapshot.chunk_rows,
            self.chunk_log.executed_at(table.start if partial is None else max(table.start, partial.since)),
            sized=sized,
            part=partial.part if partial else ALL_ROWS,
            after=after,
        )

    def planners(self, sink: Sink | None, staging: Staging) -> Planners:
        """`sink` None: the changes are rows of a query."""
        planner = make_planner(
            self.state, self.log, self.source, self.config, self.captured, sink, staging,
            applies_cascades=self.applies_cascades,
        )  # fmt: skip
        renewal = Renewal(self.log, self.receiver.renew)
        resnapshots = Resnapshots(
            self.state, self.log, self.source, self.config, _no_target if sink is None else sink.open,
            wait=self.wait, renew=renewal.ask,
        )  # fmt: skip
        return Planners(Planning(self.state, self.log, planner), renewal, resnapshots)

    def has_planned(self, goal: SourcePosition) -> bool:
        """Whether the log has a position of the source, and everything up to there is planned."""
        reached, position = self.log.offset_reaching(goal), self.state.position
        return reached is not None and position is not None and position >= reached


@dataclass(frozen=True)
class Planners:
    """What decides about the next epoch, between two epochs."""

    planning: Planning
    renewal: Renewal
    resnapshots: Resnapshots


def _no_target(table: TableId) -> TargetState:
    """Stands for the target of rows that go to a query. It counts as having rows, so a `truncate` comes
    before the table is read again."""
    return Ours(None, (), empty=False)
