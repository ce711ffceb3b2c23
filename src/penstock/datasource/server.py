"""A server's tables as a stream: their rows, and then their changes.

This is a pipeline whose target is Spark's own query. It has the receiver, the planner and the reader of
chunks of every pipeline, in the process that Spark has for the stream. A plan is applied as soon as it is
stored in a file of its own (`plans.py`); micro-batches are ranges of plans. A plan names log ranges and
staged chunks, so Spark can ask for it again. When Spark says that a batch is done, its plans are removed.

When the columns of a query's table change, the plan ends there. The call that would begin the next batch
fails, and says so. From then on a query that is loaded has the new columns. A query of many tables goes on
(`envelope.py`). `ends.py` says what ends a query.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator

from penstock import config as configuration
from penstock.cascades.waiting import is_unfinished
from penstock.config import PipelineConfig
from penstock.datasource.ends import REPORTED, ends_of
from penstock.datasource.options import CdcOptions, needs_state
from penstock.datasource.partitions import (
    ChunkPartition,
    EventPartition,
    Partition,
    Single,
    TruncatePartition,
    grouped,
)
from penstock.datasource.plans import Plans
from penstock.datasource.turn import Turn
from penstock.disk import directory
from penstock.epochs.record import record
from penstock.epochs.table_outcome import outcome_of
from penstock.epochs.tasks import DecodeTask, PlaceTask
from penstock.errors import ConfigError
from penstock.model.offset import SourcePosition
from penstock.model.plan import (
    ApplyEvents,
    EpochPlan,
    PlaceChunks,
    TablePlan,
    TruncateTarget,
)
from penstock.model.schema import TableSchema
from penstock.runtime.log_needs import needed
from penstock.runtime.parts import Started
from penstock.runtime.staging_place import open_staging
from penstock.snapshot.chunk_jobs import InProcess
from penstock.snapshot.staging import Staging, snapshot_of
from penstock.sources import open_source
from penstock.sources.preflight import refuse
from penstock.state import StateStore

LIMIT = "mysql_cdc last epoch"
"""Key in the state: the last epoch before the change that ends the query, until that was reported."""
RESTART_SECONDS_MAX = 60.0
"""How long a query that goes on waits for what it lacks, before its first batch. Spark does not say whether
its trigger is `availableNow`. With this trigger the rest would wait for the next run; with others a longer
wait would hold up the first batch."""
_TICK_SECONDS = 0.05
"""Seconds between two looks at the relay log: short, compared with the start of a query."""


def definition(options: CdcOptions) -> TableSchema:
    """The definition that a query begins with, or goes on with."""
    config = options.pipeline()
    if StateStore.exists(config.state):
        with contextlib.closing(StateStore(config.state, read_only=True)) as state:
            if (text := state.meta(REPORTED)) is not None:
                return TableSchema.from_json(text)
    source = open_source(config)
    try:
        found = source.catalog.read_table(options.table_id)
    finally:
        source.close()
    if found is None:
        raise ConfigError(f"There is no table {options.table} at the source.")
    return found


class ServerStream:
    """The stream's state. It is opened in the process that asks for offsets first."""

    def __init__(self, options: CdcOptions) -> None:
        needs_state(options)
        self._options = options
        self._closing = contextlib.ExitStack()
        self._stopping = threading.Event()
        self._turn = Turn()
        config = options.pipeline()
        try:
            self._open(config)
        except BaseException:
            self.close()
            raise

    # offsets ------------------------------------------------------------------------------------------------

    @property
    def pipeline(self) -> str:
        return self._state.uuid

    def first(self) -> int:
        """The epoch before the first one. Raises `ConfigError` if a query has read some already."""
        if self._plans.removed:
            raise ConfigError(
                f"A query has read {self._options.state} up to epoch {self._plans.removed}, and this one has "
                "another checkpoint.",
                hint="Give it the checkpoint of that query, or a new folder in `state` to begin anew.",
            )
        return 0

    def plan(self) -> int:
        """Plans what has arrived. Returns the last epoch. Raises `TableError` if the query has every row of
        its definition, and the table has other columns now, or cannot be followed."""
        self._check()
        self._planners.renewal.work()
        if (limit := self._state.meta(LIMIT)) is not None:
            if self._turn.is_done(int(limit)):
                self._report()
            return int(limit)
        self._plan(self._options.max_bytes_per_trigger)
        self._keep_log()
        return self._state.last_epoch()

    def plan_until_now(self, *, is_all: bool) -> int:
        """Plans the whole snapshot, and all that is committed at the source now. Returns the last epoch.
        Without `is_all`, the query may have any trigger. Then this only waits a while if there were plans
        before, and respects `max_bytes_per_trigger`."""
        goal, planned = self._followed.source.end_position(), 0
        is_all = is_all or self._state.last_epoch() == 0
        most = None if is_all else self._options.max_bytes_per_trigger
        until = math.inf if is_all else time.monotonic() + RESTART_SECONDS_MAX
        while not self._has(goal) and (most is None or planned < most) and time.monotonic() < until:
            self._check()
            self._planners.renewal.work()
            found = self._plan(None if most is None else most - planned)
            planned += found
            if not found:
                time.sleep(_TICK_SECONDS)
        return self.plan() if planned == 0 else self._state.last_epoch()

    def step(self, after: int, last: int) -> int:
        """The last epoch of a batch that begins behind one epoch and does not go beyond another."""
        most, planned = self._options.max_bytes_per_trigger, 0
        if most is None:
            return last
        for plan in self._plans.between(after, last):
            planned += plan.range.bytes
            if planned >= most:
                return plan.epoch
        return last

    def has(self, epoch: int) -> None:
        """Called when Spark has everything up to an epoch. Raises `TableError` if the query's definition ends
        there."""
        limit = self._state.meta(LIMIT)
        if limit is not None and epoch >= int(limit):
            self._report()

    def _has(self, goal: SourcePosition) -> bool:
        """Whether everything up to a position of the source is planned, or no more will be."""
        if self._state.meta(LIMIT) is not None:
            return True
        if is_unfinished(self._state.tables()) or self._state.has_pending():
            return False
        return self._followed.has_planned(goal)

    def _plan(self, most: int | None) -> int:
        """Plans what has arrived, about `most` bytes of log. Returns how many it planned, at least 1 if it
        planned something."""
        planned = 0
        while (most is None or planned < most) and self._state.meta(LIMIT) is None:
            if not self._state.has_pending():
                self._planners.resnapshots.work()
                if self._ends.is_there():  # without a plan: a chunk cannot be read, a new definition
                    self._state.set_meta(LIMIT, str(self._state.last_epoch()))
                    break
            plan = self._next()
            if plan is None:
                break
            planned += max(1, plan.range.bytes)
            self._hand_over(plan)
        return planned

    def _next(self) -> EpochPlan | None:
        if not self._state.has_pending() and not self._planners.planning.next([]):
            return None
        return self._state.pending()[0]

    def _hand_over(self, plan: EpochPlan) -> None:
        """Hands a plan to the query."""
        self._plans.put(plan)
        outcomes = [outcome_of(table) for table in plan.tables]
        with self._state.transaction():
            record(self._state, plan, outcomes, discard=self._staging.discard, rereads_max=0, merges=False)
            if self._ends.is_there():
                self._state.set_meta(LIMIT, str(plan.epoch))

    def _report(self) -> None:
        """Ends the query with the `TableError` that `Ends` reports. The next query continues behind it."""
        with self._state.transaction():
            error = self._ends.report()
            self._state.remove_meta(LIMIT)
        raise error

    def _check(self) -> None:
        self._followed.receiver.check()
        if self._chunks.error is not None:
            raise self._chunks.error

    def partitions(self, after: int, last: int) -> list[Partition]:
        """What tasks read for the epochs after one, up to another."""
        self._turn.given(last)
        found: list[Single] = []
        for plan in self._plans.between(after, last):
            for table in plan.tables:
                found += self._of_table(plan, table)
        return grouped(found, self._options.partition_bytes) if self._options.is_envelope else [*found]

    def _of_table(self, plan: EpochPlan, table: TablePlan) -> Iterator[Single]:
        schema, types = table.schema, self._options.types
        for step in table.steps:
            match step:
                case ApplyEvents():
                    yield from self._events(schema, step)
                case PlaceChunks():
                    omitted = self._images.omitted(schema) if schema.key and step.scans else None
                    for chunk in step.chunks:
                        yield ChunkPartition(
                            PlaceTask(
                                schema.to_json(),
                                self._staging,
                                (chunk,),
                                step.scans,
                                plan.range.end,
                                "changelog",
                                types,
                                omitted,
                            )
                        )
                case TruncateTarget(timestamp_us=at, sequence=sequence):
                    yield TruncatePartition(
                        schema, int(plan.range.end if sequence is None else sequence), at, types
                    )
                case _:
                    pass  # says nothing about rows

    def _events(self, schema: TableSchema, step: ApplyEvents) -> Iterator[Single]:
        for split in step.splits:
            start = self._followed.log.committed_before(split.start)
            end = split.end
            if self._followed.log.committed_before(end) != end:
                end = self._followed.log.cut(end, 0)
            yield EventPartition(
                DecodeTask(
                    schema.to_json(), (split,), "changelog", self._options.types,
                    before_images=self._options.before_images, identity_images=True,
                    computation=self._images.computation(schema),
                ),
                str(self._followed.log.place), int(start), int(end),
            )  # fmt: skip

    def done(self, epoch: int) -> None:
        """Records that a query has everything up to an epoch, and will not ask for it again."""
        for plan in self._plans.remove(epoch):
            self._staging.discard_placed(plan.chunks)
        self._keep_log()

    def _keep_log(self) -> None:
        offsets = [needed(self._state), *[plan.oldest for plan in self._plans.all()]]
        self._followed.consumer.needs(min(offsets))

    # opening and closing ------------------------------------------------------------------------------------

    def _open(self, config: PipelineConfig) -> None:
        stack = self._closing
        directory.make(config.state, "state")
        stack.enter_context(directory.held(config.state))
        state = self._state = stack.enter_context(contextlib.closing(StateStore(config.state, owner=True)))
        config = stack.enter_context(configuration.with_lent_secrets(config))
        source = open_source(config)
        stack.callback(source.close)
        findings = source.preflight.check(config)
        refuse(findings)
        source.preflight.check_start()
        file = config.state / "pipeline.yaml"
        configuration.save(config, file)
        started = Started.start(config, state, source, file, findings, stopping=self._stopping, until=stack)
        followed = self._followed = started.follow()
        followed.discover()
        self._ends = ends_of(self._options, state)
        self._ends.begin()
        self._plans = Plans(config.state / "plans")
        self._staging = Staging(open_staging(config, state))
        self._images = followed.images()
        self._planners = followed.planners(None, self._staging)
        self._chunks = followed.snapshot_reader(
            InProcess(), self._staging, allowed=lambda: True, kept_folders=self._kept_folders
        )
        stack.callback(self._chunks.stop)
        self._chunks.start()

    def _kept_folders(self) -> set[str]:
        return {snapshot_of(chunk) for plan in self._plans.all() for chunk in plan.chunks}

    def close(self) -> None:
        self._stopping.set()
        self._closing.close()
