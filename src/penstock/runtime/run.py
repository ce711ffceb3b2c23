"""One run of a pipeline: opens its parts and connects them, then runs its loop.

One loop in the driver's main thread checks the receiver and the stream, plans the next epoch once the last
one is applied, answers requests and reports. Spark applies epochs and reads chunks in other threads. The
state store alone determines what may happen next, so a killed pipeline continues where it stopped.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.backoff import Backoff, Schedule
from penstock.cascades.keys import refers_to_itself
from penstock.cascades.waiting import is_unfinished
from penstock.config import PipelineConfig, executor_variables
from penstock.errors import TableError, TargetRefused, TransientError
from penstock.failures.messages import one_sentence
from penstock.model.chunk import Chunk
from penstock.model.offset import Offset
from penstock.model.partial_snapshot import PartialSnapshot
from penstock.model.plan import EpochPlan
from penstock.model.table import TableState
from penstock.planning.discovery import Wait, discover
from penstock.planning.drift import Drift
from penstock.planning.resnapshots import Resnapshots
from penstock.planning.source_end import SourceEnd
from penstock.relaylog.archive import Archive
from penstock.relaylog.consumers import Consumer
from penstock.relaylog.files import LogPlace
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.split_sources import SplitSources
from penstock.runtime import shape_changes, targets
from penstock.runtime.driver_lease import DriverLease, identity
from penstock.runtime.log_needs import needed
from penstock.runtime.lost_log import note_log
from penstock.runtime.message_schemas import schema_ids
from penstock.runtime.planning_loop import LoopPace, Planning, Renewal, has_planned, make_planner
from penstock.runtime.progress import Progress
from penstock.runtime.query_watch import QueryWatch
from penstock.runtime.shutdown import Ending
from penstock.runtime.staging_place import SCRATCH, folder_url, lease_place, open_staging, sweep
from penstock.runtime.unpark import unpark
from penstock.signals import settings
from penstock.signals.comparisons import Comparisons
from penstock.signals.opening import open_channels
from penstock.signals.work import Signals
from penstock.sinks.base import readable
from penstock.snapshot.chunk_log import ChunkLog
from penstock.snapshot.gate import Gate
from penstock.snapshot.retries import Retries
from penstock.snapshot.single_view import single_view_of
from penstock.snapshot.staging import Staging
from penstock.sources.base import Source
from penstock.sources.chunks import ALL_ROWS
from penstock.sources.preflight import Finding
from penstock.sources.receiver import Receiver
from penstock.sources.table_filter import TableFilter
from penstock.state import StateStore
from penstock.store.folder import StoreFolder

if TYPE_CHECKING:
    from penstock.spark.views import Views

log = logging.getLogger(__name__)

PLANNING_RETRY = Schedule.steady(2.0)
"""Pause before planning again when the source did not answer. Its connections have limits of their own."""


class Run:
    """One run of a pipeline, with everything that is open while it lasts."""

    def __init__(
        self,
        config: PipelineConfig,
        state: StateStore,
        source: Source,
        receiver: Receiver,
        ending: Ending,
        stopping: threading.Event,
        consumer: Consumer,
        http: str | None,
        *,
        once: bool,
        on_progress: Callable[[Progress], None] | None,
        spark: Any = None,
    ) -> None:
        """`spark`: a session of the caller, in whose context the run works. None: it starts its own."""
        self.config = config
        self.state = state
        self.source = source
        self.receiver = receiver
        self.ending = ending
        self.stopping = stopping
        self.http = http
        self.once = once
        self.on_progress = on_progress
        self.borrowed = spark
        self.closing = contextlib.ExitStack()
        self.log_place = LogPlace.of(config)
        self.chunk_log = ChunkLog(self.log_place)
        self.consumer = consumer
        self.store = open_staging(config, state)
        self.lease: DriverLease | None = None
        self.staging = Staging(self.store)
        self.last_plan = 0.0
        self.planning_retries = Retries()
        self.planning_backoff = Backoff(PLANNING_RETRY)

    def close(self) -> None:
        """Stops everything, in the reverse order of its start."""
        self.receiver.ask_to_stop()
        self.closing.close()

    # before the loop ----------------------------------------------------------------------------------------

    def prepare(self, findings: list[Finding]) -> None:
        """Opens everything, in the order in which one part needs another. Slow steps that need nothing else
        run in parallel: the JVM starts while the receiver starts, and the stream and the workers start
        while tables are looked up."""
        config = self.config
        with ThreadPoolExecutor(1, thread_name_prefix="start") as aside:
            spark = aside.submit(self._open_spark)
            self.log = self._open_log()
            self.closing.callback(self.source.close)
            self.captured = TableFilter(config.tables, fold_case=self.source.catalog.fold_case)
            settings.apply_patterns(self.captured, config.tables, self.state)
            self.goal = SourceEnd(self.source, self.log) if self.once else None
            spark.result()
            if self._applies_cascades:
                readable(self.sink)  # its rows are needed to compute what a foreign key changes
            self._make_workers(any(finding.partial_rows for finding in findings))
            self._start_notifier()
            self._start_history()  # first, so that it is stopped last: the other parts still record changes
            self._start_completeness()
            self.closing.callback(lambda: self.chunks.stop(self.ending.left(0.8)))
            self.query = self._watch_query()
            self.closing.callback(self._stop_query)
            query = aside.submit(self.query.start)
            self._discover(partial(self._wait_for, seconds=config.relay_log.catch_up_timeout / 1000))
            shape_changes.check_new(self.sink, self.state, types=config.types)
            adopted = targets.check_new(self.sink, self.state, self.captured, types=config.types)
            self.progress = Progress(config, self.state, self.log, self.receiver, http=self.http,
                                     gate=self.chunks.gate.to_json, retrying=self._retrying)  # fmt: skip
            self.ending.report, self.ending.beat = self.progress.ending, self.progress.beat
            planner = make_planner(
                self.state, self.log, self.source, config, self.captured, self.sink, self.staging,
                applies_cascades=self._applies_cascades,
            )  # fmt: skip
            self.planning = Planning(self.state, self.log, planner)
            self.drift = Drift(self.state, self.log, self.source, config.rereads_max)
            self.renewal = Renewal(self.log, self.receiver.renew)
            if adopted:  # rows are placed only after the start of their tables
                self.renewal.ask()
            self.resnapshots = Resnapshots(
                self.state, self.log, self.source, config, self.sink,
                wait=self._wait_for, renew=self.renewal.ask,
            )  # fmt: skip
            self.parked = targets.parked_reasons(self.sink, self.state, self.source, self.captured, config)
            self.comparisons = Comparisons(self.state, self.log, self.sink)
            self.signals = self._make_signals()
            query.result()
        self.runner.begin()
        self.chunks.start()

    def _open_spark(self) -> None:
        from penstock.spark.check_staging import check_staging
        from penstock.spark.opened_sink import open_sink
        from penstock.spark.session import warm_up

        config = self.config
        self._take_lease()
        sweep(self.store)
        self._get_session()
        if not config.spark.is_local:
            check_staging(self.spark, StoreFolder(self.store, f"{SCRATCH}/check"))
        warm_up(self.spark)
        scratch = StoreFolder(self.store, f"{SCRATCH}/transforms")
        self.sink = open_sink(config, self.spark, self.state.uuid, scratch)
        self.closing.callback(self.sink.close)
        self.sink.check()
        targets.fence(self.sink, self.state, self.lease, config.history_table)
        # Before the stream starts, because it continues with pending plans.
        if config.sink_kind.durable:
            wanted = settings.to_resnapshot(config, self.state)
            shape_changes.check(self.sink, config, self.state, **wanted, types=config.types)
            targets.check(self.sink, config, self.state, **wanted)

    def _get_session(self) -> None:
        """Starts Spark, or takes the caller's, whose jobs and lifetime are not this run's."""
        from penstock.spark.borrowed import borrow
        from penstock.spark.lock import lock_state, release_state
        from penstock.spark.session import build_session

        config = self.config
        if self.borrowed is not None:
            self.spark = borrow(self.borrowed, config.spark, config.sink, config.state)
            self.closing.callback(release_state, self.spark, config.state)
        else:
            variables = executor_variables(config)
            self.spark = build_session(config.spark, config.sink, config.state, variables=variables)
            self.closing.callback(self.spark.stop)
            self.ending.cancel_jobs = self.spark.sparkContext.cancelAllJobs
        lock_state(self.spark, config.state)

    def _take_lease(self) -> None:
        """Waits until no driver on another machine can be running."""
        place = lease_place(self.config, self.state)
        if place is not None:
            lease = DriverLease(place, identity(self.config.state), self.state.generation)
            lease.take(self.stopping.is_set)
            self.closing.callback(lease.release)  # called after Spark has stopped
            self.state.begin_generation(lease.generation)
            self.lease = lease

    def _discover(self, wait: Wait, *, reads: bool = True) -> None:
        discover(
            self.state, self.log, self.source, self.captured, self.config,
            append_only=not self.config.sink_kind.keeps_tables,
            wait=wait, reads=reads,
        )  # fmt: skip

    def _find_more(self, reads: bool) -> None:
        """Adds tables that a signal has named."""
        known = self.state.tables()
        self._discover(self.resnapshots.wait_shortly, reads=reads)
        new = self.state.tables().keys() - known.keys()
        if targets.park_taken(self.sink, self.state, new, types=self.config.types):
            self.renewal.ask()

    def _make_signals(self) -> Signals:
        config = self.config
        kept = self.sink if config.sink_kind.durable else None
        return Signals(
            self.state,
            config,
            self.captured,
            open_channels(config, self.state, self.log, self.source.catalog.read_table),
            discover=self._find_more,
            catalog=self.source.catalog,
            unpark=partial(unpark, self.state, self.log, kept, protect_log=self.consumer.protect),
            limit=lambda limits: self.chunks.limits(**limits),
            advance_log=self.renewal.ask,
        )

    def _make_workers(self, lacks_columns: bool) -> None:
        """Creates the parts that apply epochs and read chunks. `lacks_columns`: the source writes row
        images without some columns."""
        from penstock.epochs.incomplete_images import IncompleteImages
        from penstock.snapshot.reader import SnapshotReader
        from penstock.spark.epochs import EpochRunner, EpochSettings
        from penstock.spark.stage_chunk import SparkJobs

        config = self.config
        images = IncompleteImages(self.source.row_images, config.types, everywhere=lacks_columns)
        self.runner = EpochRunner(
            self.spark, self.sink, self.state, self.store, images, self.source.comparisons,
            EpochSettings.of(config), self._split_sources(), self._applied,
            may_write=lambda: None if self.lease is None else self.lease.check(),
            log_place=self.log_place, schema_ids=schema_ids(self.sink),
            views=self._open_views(),
        )  # fmt: skip
        self.chunks = SnapshotReader(
            SparkJobs(self.spark),
            self.state,
            self.staging,
            gate=self._make_gate(),
            parallel=config.snapshot.parallel,
            retries=config.retries,
            types=config.types,
            find_chunks=self._find_chunks,
            executed_at=self.chunk_log.executed_at,
            failed=self._snapshot_failed,
            paused=partial(settings.is_paused, self.state),
            view=partial(single_view_of, self.state.tables, self.log_place),
            views_travel=config.spark.is_local,
            found_all=self.source.chunks.close_idle,
        )
        self.chunks.limits(**settings.limits_by_signal(self.state))

    def _open_views(self) -> Views | None:
        from penstock.spark.opened_sink import open_views

        views = open_views(self.config, self.spark, self.sink, self.state)
        if views is not None:
            self.closing.callback(views.close)
        return views

    def _split_sources(self) -> SplitSources:
        """Where tasks find the log. On one machine that is the relay log itself."""
        config, archive = self.config, self.log_place.archive
        place = None
        if not config.spark.is_local:
            place = config.store.open(f"{folder_url(config, self.state)}/relay-log")
        sources = SplitSources(config.relay_log_path, None if archive is None else Archive(archive), place)
        sources.sweep()
        return sources

    def _make_gate(self) -> Gate:
        snapshot = self.config.snapshot
        hosts = self.source.snapshot_hosts(self.captured, self.chunk_log.bytes_outside)
        return Gate(snapshot, hosts, allowed=self._may_read)

    def _start_history(self) -> None:
        from penstock.spark.history import HistoryTable

        table = self.config.history_table
        if table is not None:
            history = HistoryTable(self.spark, self.sink, self.state, table)
            history.check()
            self.closing.callback(lambda: history.stop(self.ending.left(0.9)))
            history.start()

    def _start_notifier(self) -> None:
        from penstock.notifications.notifier import Notifier

        if self.config.notifications is not None:
            notifier = Notifier(self.config, self.config.notifications, self.state)
            self.closing.callback(notifier.stop)
            notifier.start()

    def _start_completeness(self) -> None:
        from penstock.sinks.base import table_sink
        from penstock.spark.complete_table import CompleteTable

        config, table = self.config, self.config.complete_table
        if table is not None:
            seconds = config.completeness.interval / 1000
            written = CompleteTable(
                self.spark, table_sink(self.sink), self.state, self.source, self.log_place, table,
                seconds=seconds,
            )  # fmt: skip
            written.check()
            self.closing.callback(lambda: written.stop(self.ending.left(0.9)))
            written.start()

    @property
    def _applies_cascades(self) -> bool:
        """Whether Penstock computes what foreign keys do."""
        return self.config.cascades == "apply" and not self.source.catalog.logs_cascades

    def _open_log(self) -> RelayLog:
        """Opens the relay log once the receiver has created it, and has recovered it up to the planned
        position."""
        folder = self.config.relay_log_path  # the receiver fills it, also from the archive
        self._wait_for(lambda: RelayLog.exists(folder), "the receiver to begin the relay log")
        log = RelayLog.open(self.log_place)
        note_log(log, self.state, self.config)
        planned = self.state.position or Offset(min(self.state.began_after, 1))  # it does not begin at 0 then
        self._wait_for(lambda: log.refresh() >= planned, "the receiver to recover the relay log")
        return log

    def _wait_for(self, condition: Callable[[], Any], what: str, *, seconds: float = 120) -> None:
        self.receiver.wait_for(condition, what, self.stopping, seconds=seconds)

    def _watch_query(self) -> QueryWatch:
        from penstock.spark.stream import start_query

        return QueryWatch(
            self.config.retries,
            self.stopping,
            start=lambda: start_query(self.spark, self.runner.run_next, self.config.state),
            failure=lambda: self.runner.failure,
            failed=lambda error: self.runner.retries.failed(None, error, one_sentence(error)),
        )

    def _stop_query(self) -> None:
        if not self.runner.end(self.ending.left(0.9)):  # an epoch may finish if there is time
            log.warning("stopping: the current epoch is interrupted; the next run repeats it")
        self.query.stop()

    def _retrying(self) -> list[dict[str, Any]]:
        """What is being retried, for the status."""
        return [
            *self.runner.retries.to_json("epoch"),
            *self.chunks.retries.to_json("snapshot"),
            *self.planning_retries.to_json("planning"),
        ]

    # the loop -----------------------------------------------------------------------------------------------

    def loop(self) -> Progress:
        """Runs until the pipeline is stopped or has finished."""
        pace = LoopPace(self.state, self.log, interval_s=self.config.epoch.interval / 1000)
        while not self.stopping.is_set():
            if self.lease is not None:
                self.lease.raise_if_lost()
            self.receiver.check()
            self.query.check()
            if self.chunks.error is not None:
                raise self.chunks.error
            if pace.should_look():
                self.renewal.work()
                self._plan()
                self._report()
                if self._finished():
                    break
            time.sleep(pace.tick)
        self._report(now=True)
        self.progress.end()
        return self.progress

    def _plan(self) -> None:
        """Between two epochs: answers signals, then plans the next epoch."""
        if self.state.has_pending() or not self.planning_backoff.ready:
            return
        try:
            self.signals.work()
            cuts = self.comparisons.work()
            rested = self.last_plan + self.config.epoch.interval / 1000
            may_plan = not self.comparisons.held and time.monotonic() >= rested
            if may_plan:
                self.drift.work(self.chunks.misfits())
                self.resnapshots.work()
                self.parked.work()
            if (may_plan or cuts) and self.planning.next(cuts):
                self.runner.wake()
                self.last_plan = time.monotonic()
            self.planning_retries.ended(None)
        except (TransientError, TargetRefused) as error:
            # A server does not answer. Pending plans continue, and the receiver reports details.
            log.warning("nothing can be planned for now: %s", error)
            self.planning_retries.failed(None, error)
            self.planning_backoff.failed()

    def _applied(self, plan: EpochPlan, outcomes: list[Any]) -> None:
        """Called from Spark's thread after an epoch was recorded."""
        self.query.epoch_applied()
        self.runner.failure = None
        self.runner.retries.clear()
        self.progress.applied(plan, outcomes)
        for outcome in outcomes:
            self.staging.discard_placed(outcome.placed)

    def _report(self, *, now: bool = False) -> None:
        """Tells retention which log is still needed, and writes the status."""
        if not (now or self.progress.should_report()):
            return
        self.consumer.needs(needed(self.state, self.signals.needed()))
        self.progress.write()
        if self.on_progress is not None:
            self.on_progress(self.progress)

    def _finished(self) -> bool:
        """Whether a run that ends by itself has done everything."""
        only = self.config.snapshot.mode == "only"
        if not self.once and not only:
            return False
        if is_unfinished(self.state.tables(), settings.partials_to_read(self.state)):
            return False
        if self.state.has_pending() or self.state.signals("accepted") or not self.runner.views_follow:
            return False
        if only and not self.once:
            return True
        assert self.goal is not None
        with contextlib.suppress(TransientError):  # after a failover the source is asked again
            return has_planned(self.state, self.log, self.goal.position())
        return False

    # snapshot -----------------------------------------------------------------------------------------------

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

    def _may_read(self) -> bool:
        """Whether little enough log waits to be applied, so that chunks may be read."""
        most = self.config.snapshot.pause_when_behind
        return self.chunk_log.bytes_behind(self.state.applied_offset()) <= most

    def _snapshot_failed(self, read: TableState, error: TableError) -> None:
        """Parks a table that could not be read."""
        table = self.state.table(read.table)
        if table is None or table.start != read.start:
            return  # another snapshot of it has started
        log.warning("%s is parked: %s", read.table, error)
        at = self.state.position or Offset(0)
        self.state.park(read.table, offset=at, reason=error.message, hint=error.hint)
