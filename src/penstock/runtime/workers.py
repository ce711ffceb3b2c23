"""What works in other threads while the loop of a run decides: epochs, chunks, tables about the pipeline."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.failures.messages import one_sentence
from penstock.relaylog.archive import Archive
from penstock.relaylog.split_sources import SplitSources
from penstock.runtime.engine import Engine
from penstock.runtime.message_schemas import schema_ids
from penstock.runtime.parts import Followed
from penstock.runtime.query_watch import QueryWatch
from penstock.runtime.shutdown import Ending
from penstock.runtime.staging_place import folder_url
from penstock.signals import settings
from penstock.sinks.base import table_sink
from penstock.snapshot.reader import SnapshotReader

if TYPE_CHECKING:
    from penstock.spark.epochs import EpochRunner

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Workers:
    """`query`: the stream in which `runner` applies epochs. `chunks`: reads the snapshot."""

    runner: EpochRunner
    chunks: SnapshotReader
    query: QueryWatch

    def retrying(self) -> list[dict[str, Any]]:
        """What is being retried, for the status."""
        return [*self.runner.retries.to_json("epoch"), *self.chunks.retries.to_json("snapshot")]


def open_workers(followed: Followed, engine: Engine, ending: Ending, until: contextlib.ExitStack) -> Workers:
    """Creates them, and has them stopped when `until` ends. They do nothing yet. What only reports is started
    first, so that it is stopped last: the other parts still record changes."""
    from penstock.spark.epochs import EpochLog, EpochRunner, EpochSettings
    from penstock.spark.opened_sink import open_views
    from penstock.spark.stage_chunk import SparkJobs
    from penstock.spark.stream import start_query

    config, state = followed.config, followed.state
    views = open_views(config, engine.spark, engine.sink, state)
    if views is not None:
        until.callback(views.close)
    reads = EpochLog(
        followed.images(), followed.source.comparisons, _split_sources(followed), followed.log.place
    )
    runner = EpochRunner(
        engine.spark, engine.sink, state, engine.store, reads, EpochSettings.of(config),
        may_write=engine.may_write, schema_ids=schema_ids(engine.sink), views=views,
    )  # fmt: skip

    def may_read() -> bool:
        """Whether little enough log waits to be applied."""
        behind = followed.chunk_log.bytes_behind(state.applied_offset())
        return behind <= config.snapshot.pause_when_behind

    jobs = SparkJobs(engine.spark, opens_views=config.spark.is_local)
    chunks = followed.snapshot_reader(jobs, engine.staging, allowed=may_read)
    chunks.limits(**settings.limits_by_signal(state))
    query = QueryWatch(
        config.retries,
        followed.stopping,
        start=lambda: start_query(engine.spark, runner.run_next, config.state),
        failure=lambda: runner.failure,
        failed=lambda error: runner.retries.failed(None, error, one_sentence(error)),
    )
    _start_notifier(followed, until)
    _start_history(followed, engine, ending, until)
    _start_completeness(followed, engine, ending, until)
    until.callback(lambda: chunks.stop(ending.left(0.8)))

    def stop_query() -> None:
        if not runner.end(ending.left(0.9)):  # an epoch may finish if there is time
            log.warning("stopping: the current epoch is interrupted; the next run repeats it")
        query.stop()

    until.callback(stop_query)
    return Workers(runner, chunks, query)


def _split_sources(followed: Followed) -> SplitSources:
    """Where tasks find the log. On one machine that is the relay log itself."""
    config, archive = followed.config, followed.log.place.archive
    place = None
    if not config.spark.is_local:
        place = config.store.open(f"{folder_url(config, followed.state)}/relay-log")
    sources = SplitSources(config.relay_log_path, None if archive is None else Archive(archive), place)
    sources.sweep()
    return sources


def _start_notifier(followed: Followed, until: contextlib.ExitStack) -> None:
    from penstock.notifications.notifier import Notifier

    config = followed.config
    if config.notifications is not None:
        notifier = Notifier(config, config.notifications, followed.state)
        until.callback(notifier.stop)
        notifier.start()


def _start_history(followed: Followed, engine: Engine, ending: Ending, until: contextlib.ExitStack) -> None:
    from penstock.spark.history import HistoryTable

    table = followed.config.history_table
    if table is not None:
        history = HistoryTable(engine.spark, engine.sink, followed.state, table)
        history.check()
        until.callback(lambda: history.stop(ending.left(0.9)))
        history.start()


def _start_completeness(
    followed: Followed, engine: Engine, ending: Ending, until: contextlib.ExitStack
) -> None:
    from penstock.spark.complete_table import CompleteTable

    config, table = followed.config, followed.config.complete_table
    if table is not None:
        written = CompleteTable(
            engine.spark, table_sink(engine.sink), followed.state, followed.source, followed.log.place, table,
            seconds=config.completeness.interval / 1000,
        )  # fmt: skip
        written.check()
        until.callback(lambda: written.stop(ending.left(0.9)))
        written.start()
