"""What a run works with besides the source: Spark, the sink, the folder for the files of tasks."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from penstock.config import executor_variables
from penstock.runtime import shape_changes, targets
from penstock.runtime.driver_lease import DriverLease, identity
from penstock.runtime.parts import Started
from penstock.runtime.shutdown import Ending
from penstock.runtime.staging_place import SCRATCH, lease_place, open_staging, sweep
from penstock.signals import settings
from penstock.sinks.base import Sink
from penstock.snapshot.staging import Staging
from penstock.store.base import Store
from penstock.store.folder import StoreFolder


@dataclass(frozen=True)
class Engine:
    """`spark`: a `SparkSession`. `store`: where tasks' files are staged. `lease`: says that no driver on
    another machine can be running; None: no other machine can open the state."""

    spark: Any
    sink: Sink
    store: Store
    lease: DriverLease | None

    @property
    def staging(self) -> Staging:
        return Staging(self.store)

    def may_write(self) -> None:
        """Raises `DriverReplaced` if another driver has taken over."""
        if self.lease is not None:
            self.lease.check()


def open_engine(started: Started, ending: Ending, borrowed: Any, until: contextlib.ExitStack) -> Engine:
    """Starts Spark and opens the sink, `until` that ends. `borrowed`: a session of the caller, to be used
    instead. Checks what must be true before the stream starts, because that continues with pending plans."""
    from penstock.spark.check_staging import check_staging
    from penstock.spark.opened_sink import open_sink
    from penstock.spark.session import warm_up

    config, state = started.config, started.state
    store = open_staging(config, state)
    lease = _take_lease(started, until)
    sweep(config, store)
    if borrowed is None:  # the tasks of another session may end later than this run
        until.callback(sweep, config, store)
    spark = _session(started, ending, borrowed, until)
    if not config.spark.is_local:
        check_staging(spark, StoreFolder(store, f"{SCRATCH}/check"))
    warm_up(spark)
    sink = open_sink(config, spark, state.uuid, StoreFolder(store, f"{SCRATCH}/transforms"))
    until.callback(sink.close)
    sink.check()
    targets.fence(sink, state, lease, config.history_table)
    if config.sink_kind.durable:
        wanted = settings.to_resnapshot(config, state)
        shape_changes.check(sink, config, state, **wanted, types=config.types)
        targets.check(sink, config, state, **wanted)
    return Engine(spark, sink, store, lease)


def _take_lease(started: Started, until: contextlib.ExitStack) -> DriverLease | None:
    """Waits until no driver on another machine can be running."""
    place = lease_place(started.config, started.state)
    if place is None:
        return None
    lease = DriverLease(place, identity(started.config.state), started.state.generation)
    lease.take(started.stopping.is_set)
    until.callback(lease.release)  # called after Spark has stopped
    started.state.begin_generation(lease.generation)
    return lease


def _session(started: Started, ending: Ending, borrowed: Any, until: contextlib.ExitStack) -> Any:
    """Starts Spark, or takes the caller's, whose jobs and lifetime are not this run's."""
    from penstock.spark.borrowed import borrow
    from penstock.spark.lock import lock_state, release_state
    from penstock.spark.session import build_session

    config = started.config
    if borrowed is not None:
        spark = borrow(borrowed, config.spark, config.sink, config.state)
        until.callback(release_state, spark, config.state)
    else:
        variables = executor_variables(config)
        spark = build_session(config.spark, config.sink, config.state, variables=variables)
        until.callback(spark.stop)
        ending.cancel_jobs = spark.sparkContext.cancelAllJobs
    lock_state(spark, config.state)
    return spark
