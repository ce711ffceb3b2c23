"""Reads chunks: threads that each run one-task Spark jobs, one chunk a job, as the gate lets them.

One chunk a job, rather than one job for many: a failing chunk is tried again alone, there are never more
than `parallel` connections that read chunks, limits and load are looked at before each one
(`snapshot/gate.py`), and jobs of epochs get their turn between two chunks. A chunk counts once its manifest
lies in the directory, whoever sees it: after a crash the manifests found there are taken over.

Small chunks (`snapshot/driver_side.py`) are read by the thread itself, several one after the other over one
connection. The gate is asked before each of them too, and when it says no, the connection goes with the
permit. One that fails is tried again in the common way.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from penstock.backoff import Backoff
from penstock.config import RetriesConfig
from penstock.errors import PenstockError, TableError, TransientError
from penstock.model.chunk import Chunk, StagedChunk
from penstock.model.offset import Offset
from penstock.model.partial_snapshot import PartialSnapshot
from penstock.model.schema import TableId, TypeOptions
from penstock.model.table import TableState, is_reading, is_splitting
from penstock.snapshot import staging
from penstock.snapshot.driver_side import reads_here
from penstock.snapshot.gate import Gate, Permit
from penstock.snapshot.retries import Retries
from penstock.sources.chunks import ChunkOutdated, ViewChoice
from penstock.spark.errors import returned
from penstock.spark.stage_chunk import StageTask, stager
from penstock.state import StateStore

log = logging.getLogger(__name__)

CHUNK_RETRY_FIRST_S = 0.4
CATCH_UP_SECONDS = 1.0
"""A pause while the source is away, or until the log says what happened to a table."""

FindChunks = Callable[[TableState, PartialSnapshot | None, Chunk | None, Callable[[int], None]], Any]
"""Iterates the chunks of a table, or of a part of it, as they are found; behind one that is known. The last
argument is told how many rows the server thinks there are."""

Work = tuple[TableState, Chunk]
Place = tuple[TableId, int, int]
"""Of a chunk: its table, the number of its snapshot, its own number."""

TAG = "penstock-chunks"
"""Of the jobs that read chunks."""
GRACE_SECONDS = 3.0
"""For chunks that are being read when the pipeline is stopped."""

TOGETHER_MAX = 32
"""Small chunks that a thread takes at once."""

FOUND_SECONDS = 0.5
"""How long chunks that were found wait for others, so that they become known together."""

LOOK_SECONDS = 1.0
"""How often it is looked for work where nothing has changed."""

OUTDATED_MAX = 60
"""Times that a chunk of a partial snapshot does not fit its table; then no statement explains it."""


class SnapshotReader:
    """Splits tables and stages their chunks until every chunk of every table is staged or placed.

    `gate` is asked before each chunk. `failed` is told of a table that cannot be read. `view`: for tables
    that cannot be read in chunks: the view in which they are read in one piece. `found_all` is called when
    there is no more table to be split.
    """

    def __init__(
        self,
        spark: SparkSession,
        state: StateStore,
        directory: Path,
        *,
        gate: Gate,
        parallel: int,
        retries: RetriesConfig,
        types: TypeOptions,
        find_chunks: FindChunks,
        executed_at: Callable[[Offset], str],
        failed: Callable[[TableState, TableError], None],
        paused: Callable[[TableId], bool] = lambda _: False,
        view: Callable[[TableState], ViewChoice | None] = lambda _: None,
        found_all: Callable[[], None] = lambda: None,
    ) -> None:
        self._spark = spark
        self._state = state
        self._directory = directory
        self._attempts_max = retries.attempts_max
        self._schedule = retries.schedule(CHUNK_RETRY_FIRST_S)
        self._types = types
        self._find_chunks = find_chunks
        self._executed_at = executed_at
        self._failed = failed
        self._paused = paused
        self._view = view
        self._found_all = found_all
        self._outdated: Counter[int] = Counter()
        self.gate = gate
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._taken: set[Place] = set()
        self._swept = -1  # changes of the state when outdated chunks were looked for
        self.error: BaseException | None = None
        self.retries = Retries()
        """Tables that do not go on because the source does not answer."""
        self._started = False
        self._threads: list[InheritableThread] = []
        self._begin(self._split_loop)
        for _ in range(parallel):
            self._begin(self._read_loop)

    def start(self) -> None:
        self._take_over()
        self.gate.start()
        with self._lock:
            self._started = True
            for thread in self._threads:
                thread.start()

    def _begin(self, run: Callable[[], None]) -> None:
        name = f"snapshot-{len(self._threads)}"
        thread = InheritableThread(target=self._guarded, args=(run,), name=name, daemon=True)
        self._threads.append(thread)
        if self._started:
            thread.start()

    def limits(
        self,
        *,
        parallel: int | None = None,
        rows_per_second: int | None = None,
        bytes_per_second: int | None = None,
    ) -> None:
        """Other limits for the chunks that begin from now on; None: as it is, a rate of 0: none. May be
        called from any thread. Chunks that are being read go on to their end."""
        self.gate.limits(
            parallel=parallel, rows_per_second=rows_per_second, bytes_per_second=bytes_per_second
        )
        with self._lock:
            while parallel is not None and len(self._threads) <= parallel and not self._stopping.is_set():
                self._begin(self._read_loop)

    def _take_over(self) -> None:
        """What an earlier run staged counts; what belongs to no snapshot any more is removed."""
        self._remove_outdated()
        for folder in staging.folders(self._directory):
            staging.sweep(folder)
            for item in staging.staged(folder):
                self._state.chunk_staged(item)

    def _remove_outdated(self) -> bool:
        """... of snapshots that are no more. False: some stay for now, since a task still reads into one or a
        plan that is to be applied names its chunks. No new plan does: the table is elsewhere."""
        with self._lock:
            folders = staging.folders(self._directory)  # first: one that is made meanwhile is current
            if not folders:
                return True
            with self._state.reading():
                known, partials = self._state.tables(), self._state.partials()
                unread = [one for one in known.values() if one.reading]
                needed = [(table, 0) for table in unread]
                needed += [(known[one.table], one.number) for one in partials if one.table in known]
                outdated = set(folders) - {self._directory_of(*one) for one in needed}
                plans = self._state.pending() if outdated else []
            planned = {Path(chunk.path).parent.parent.name for plan in plans for chunk in plan.chunks}
            tables = {table for table, _, _ in self._taken}
            kept = [
                one
                for one in outdated
                if one.name in planned
                or any(staging.table_directory(one, table).exists() for table in tables)
            ]
            for folder in outdated.difference(kept):
                shutil.rmtree(folder, ignore_errors=True)
        return not kept

    def _directory_of(self, state: TableState, snapshot: int) -> Path:
        """One directory a snapshot of a table: what an earlier one left behind can never be taken for this
        one."""
        return self._directory / (f"part-{snapshot}" if snapshot else str(state.start))

    def stop(self, seconds: float = 60.0) -> None:
        """Returns when no thread of ours runs a job any more, or when the time is up. Chunks that are nearly
        read may end; jobs that last longer are cancelled, and read again by the next run."""
        with self._lock:  # no thread begins after this
            self._stopping.set()
        deadline = time.monotonic() + seconds
        self.gate.stop(min(seconds, GRACE_SECONDS))
        left = self._join(min(deadline, time.monotonic() + GRACE_SECONDS))
        if left:
            log.warning("stopping: the jobs that read chunks are cancelled")
            with suppress(Exception):  # Spark may have ended
                self._spark.sparkContext.cancelJobsWithTag(TAG)
            left = self._join(deadline)
        if left:
            log.warning("stopping: these threads have not ended: %s", ", ".join(left))
            return
        with suppress(PenstockError):  # the next run does it
            self._remove_outdated()

    def _join(self, deadline: float) -> list[str]:
        """The names of threads that still live then."""
        for thread in self._threads:
            if thread.ident is not None:  # it was started; a start that failed earlier ends here too
                thread.join(max(0.0, deadline - time.monotonic()))
        return [thread.name for thread in self._threads if thread.is_alive()]

    def _guarded(self, run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as error:
            if not self._stopping.is_set():
                self.error = error
                log.exception("the snapshot reader stopped")

    # finding chunks -----------------------------------------------------------------------------------------

    def _split_loop(self) -> None:
        while not self._stopping.is_set():
            known = self._state.own_changes
            for state in self._state.tables_that(is_splitting):
                if self._stopping.is_set():
                    return  # the others are split by the next run
                self._split(state)
            for state, partial in self._partials("splitting"):
                self._split(state, partial)
            self._found_all()
            self.retries.keep(self._in_work())
            if known != self._swept and self._remove_outdated():
                self._swept = known
            self._rest(known, 0.2)

    def _rest(self, known: int, seconds: float) -> None:
        """There was nothing to do when the state was at `known` changes: waits until there are others, and so
        long at least. Looks the less often the longer nothing changes: also a look costs something."""
        until = time.monotonic() + LOOK_SECONDS
        while not self._stopping.wait(seconds):
            if self._state.own_changes != known or time.monotonic() > until:
                return
            seconds = min(2 * seconds, LOOK_SECONDS / 2)

    def _partials(self, status: str) -> list[tuple[TableState, PartialSnapshot]]:
        """Partial snapshots that may go on: those of tables that are not being read as a whole."""
        found = [one for one in self._state.partials() if one.status == status]
        tables = self._state.tables() if found else {}
        return [
            (tables[one.table], one) for one in found if one.table in tables and tables[one.table].streaming
        ]

    def _in_work(self) -> set[TableId]:
        """Tables of which chunks are being sought or read."""
        tables = [*self._state.tables_that(is_splitting), *self._state.tables_that(is_reading)]
        return {one.table for one in tables} | {one.table for one in self._state.partials()}

    def _split(self, state: TableState, partial: PartialSnapshot | None = None) -> None:
        try:
            if partial is None:
                self._find_all(state)
            else:
                chunks = self._find_chunks(state, partial, None, lambda rows: None)
                numbered = [replace(chunk, snapshot=partial.number) for chunk in chunks]
                self._state.set_partial_chunks(partial, numbered)
        except TransientError as error:
            # The source is away, or the log brings the statement that says what happened to the table.
            log.warning("splitting %s: %s", state.table, error)
            self.retries.failed(state.table, error)
            self._stopping.wait(CATCH_UP_SECONDS)
        except PenstockError as error:
            self._give_up(state, partial.number if partial else 0, _as_table_error(error, state.table))
        else:
            self.retries.ended(state.table)

    def _find_all(self, state: TableState) -> None:
        """Chunks are read while others are still being found. Each becomes durable before the next is sought
        from its upper bound on, also after a restart: bounds found twice would not be the same bounds, and a
        row that belongs to two chunks would be appended twice."""
        found: list[Chunk] = []
        sizes: list[int] = []
        since = time.monotonic()
        last = self._state.last_chunk(state.table)
        for chunk in self._find_chunks(state, None, last, sizes.append):
            found.append(chunk)
            if self._stopping.is_set():
                return  # the rest is found by the next run
            if chunk.upper is None or time.monotonic() - since > FOUND_SECONDS:
                size = sizes[-1] if sizes else None
                if not self._state.add_chunks(state, found, rows_guess=size):
                    return  # the table is not what it was
                found, since = [], time.monotonic()

    def _give_up(self, state: TableState, snapshot: int, error: TableError) -> None:
        self.retries.ended(state.table)
        if snapshot:
            log.warning("the partial snapshot %d of %s ends: %s", snapshot, state.table, error)
            self._state.end_partial(snapshot, "stopped", error.message)
        else:
            self._failed(state, error)

    # reading chunks -----------------------------------------------------------------------------------------

    def _read_loop(self) -> None:
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", "snapshot")
        self._spark.sparkContext.addJobTag(TAG)
        while not self._stopping.is_set():
            known = self._state.own_changes
            work = self._next()
            if not work:
                self._rest(known, 0.1)
                continue
            try:
                if not self._work_off(work):
                    self._stopping.wait(0.1)
            finally:
                with self._lock:
                    self._taken -= {_place(chunk) for _, chunk in work}

    def _next(self) -> list[Work]:
        """A chunk that nobody reads yet, or several small ones: this thread's share of what waits, up to a
        limit. They are taken from now on."""
        with self._lock:
            candidates = [(state, 0) for state in self._state.tables_that(is_reading)]
            candidates += [(state, partial.number) for state, partial in self._partials("reading")]
            waiting = self._state.with_planned() if candidates else set()
            share = max(1, min(TOGETHER_MAX, len(waiting) // len(self._threads)))
            found: list[Work] = []
            for state, snapshot in candidates:
                if (state.table, snapshot) not in waiting or self._paused(state.table):
                    continue
                while len(found) < share and (chunk := self._free(state.table, snapshot)) is not None:
                    here = self._reads_here(state, chunk)
                    if found and not here:
                        return found
                    found.append((state, chunk))
                    self._taken.add(_place(chunk))
                    if not here:
                        return found
                if len(found) == share:
                    break
            return found

    def _free(self, table: TableId, snapshot: int) -> Chunk | None:
        taken = {number for name, of, number in self._taken if (name, of) == (table, snapshot)}
        return self._state.next_planned(table, taken, snapshot=snapshot)

    def _reads_here(self, state: TableState, chunk: Chunk) -> bool:
        return reads_here(chunk, state.rows_guess) and self._view(state) is None

    def _work_off(self, work: list[Work]) -> bool:
        """False: the gate lets no chunk begin now."""
        state, chunk = work[0]
        if (permit := self._enter(state)) is None:
            return False
        if self._reads_here(state, chunk):
            self._read_here(work, permit)
        else:
            self._read(state, chunk, permit)
        return True

    def _read_here(self, work: list[Work], permit: Permit) -> None:
        """Reads small chunks over one connection, as many as the gate lets begin one after the other. Gives
        the permit back, behind the connection."""
        failed: Work | None = None
        try:
            with self._stager(permit) as stager:
                for state, chunk in work:
                    if self._paused(state.table):
                        continue
                    failed = state, chunk
                    staged = self._stage_here(stager, state, chunk)
                    self._state.chunk_staged(staged)
                    failed = None
                    goes_on = self.gate.goes_on(permit, rows=staged.rows, bytes_=staged.bytes_read)
                    if not goes_on or self._stopping.is_set():
                        break
        except Exception as error:
            if failed is None:
                raise
            log.info("%s chunk %d is read again: %s", failed[1].table, failed[1].number, error)
        finally:
            self.gate.leave(permit)
        if failed is not None and not self._stopping.is_set():
            self._read(*failed, self._enter(failed[0]))

    def _stager(self, permit: Permit) -> staging.Stager:
        return staging.Stager(permit.host, types=self._types)

    def _stage_here(self, stager: staging.Stager, state: TableState, chunk: Chunk) -> StagedChunk:
        directory = str(self._directory_of(state, chunk.snapshot))
        executed = self._executed_at(self._since(state, chunk))
        return stager.stage(state.schema, chunk, directory, executed=executed)

    def _read(self, state: TableState, chunk: Chunk, permit: Permit | None) -> None:
        backoff = Backoff(self._schedule)
        while permit is not None:
            try:
                self._state.chunk_staged(self._read_once(state, chunk, permit))
                self.retries.ended(state.table)
                return
            except Exception as error:
                if self._stopping.is_set():
                    return
                found = returned(error)
                if isinstance(found, TableError):
                    self._give_up(state, chunk.snapshot, found)
                    return
                if isinstance(found, ChunkOutdated):
                    self.retries.failed(state.table, found)
                    self._outdated[chunk.snapshot] += bool(chunk.snapshot)
                    if self._outdated[chunk.snapshot] > OUTDATED_MAX:
                        self._give_up(state, chunk.snapshot, _as_table_error(found, state.table))
                        return
                    # The log brings the statement that says what happened to the table; until then it waits.
                    if permit.host.is_replica:
                        log.warning("read from %s: %s", permit.host.address, found.message)
                    self._stopping.wait(CATCH_UP_SECONDS)
                    return
                backoff.failed()
                attempt = backoff.failures
                if attempt >= self._attempts_max and not isinstance(found, TransientError):
                    raise found from error
                log.warning("%s chunk %d: attempt %d failed: %s", state.table, chunk.number, attempt,
                            str(found).splitlines()[0])  # fmt: skip
                self.retries.failed(state.table, found)
                backoff.wait(self._stopping)
            permit = None
            while permit is None and not self._stopping.wait(0.1):
                permit = self._enter(state)

    def _enter(self, state: TableState) -> Permit | None:
        """A replica's view has no place in the log that is known to the transaction."""
        return self.gate.enter(at_source=self._view(state) is not None)

    def _read_once(self, state: TableState, chunk: Chunk, permit: Permit) -> StagedChunk:
        """Gives the permit back, whatever comes of the attempt."""
        done: list[StagedChunk] = []
        try:
            job = StageTask(
                host=permit.host,
                schema=state.schema,
                chunk=chunk,
                directory=str(self._directory_of(state, chunk.snapshot)),
                executed=self._executed_at(self._since(state, chunk)),
                types=self._types,
                view=self._view(state),
            )
            jobs = self._spark.sparkContext.parallelize([job], 1)
            done = jobs.mapPartitions(stager(str(chunk.table))).collect()
            return done[0]
        finally:
            rows, size = sum(item.rows for item in done), sum(item.bytes_read for item in done)
            self.gate.leave(permit, rows=rows, bytes_=size)

    def _since(self, state: TableState, chunk: Chunk) -> Offset:
        """Everything up to there must be visible to the chunk: all up to the table's start, and the last
        change of its definition. A replica that has yet to make it may show columns under names they no
        longer have."""
        since = [state.start, self._state.changed_at(state.table)]
        if chunk.snapshot:
            since += [one.since for one in self._state.partials() if one.number == chunk.snapshot]
        return Offset(max(since))


def _place(chunk: Chunk) -> Place:
    return chunk.table, chunk.snapshot, chunk.number


def _as_table_error(error: PenstockError, table: TableId) -> TableError:
    if isinstance(error, TableError):
        return error
    return TableError(error.message, hint=error.hint, table=str(table))
