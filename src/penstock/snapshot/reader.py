"""Reads chunks: threads that each run one job per chunk (`snapshot/chunk_jobs.py`), when the gate permits it.

One job per chunk has advantages over one job for many: a failed chunk is retried alone; there are never
more than `parallel` connections that read chunks; limits and load are checked before each chunk
(`snapshot/gate.py`); and jobs of epochs can run between two chunks. A chunk counts once its manifest is
staged, whoever finds it. After a crash, the manifests found there are taken over.

Small chunks (`snapshot/driver_side.py`) are read by the thread itself, several in a row over one
connection. The gate is asked before each of them, too. When it refuses, the thread closes the connection
and returns the permit. A small chunk that fails is retried by a Spark job.

A table that is read in one piece (`snapshot/single_view.py`) is read by the thread, too, if tasks run on
other machines: the end of the log, which places it, is only on the driver's.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from penstock.backoff import Backoff
from penstock.config import RetriesConfig
from penstock.errors import ChunkOutdated, PenstockError, TableError, TransientError
from penstock.failures.crossing import returned
from penstock.failures.messages import as_table_error, of_one_table
from penstock.failures.outages import passes
from penstock.model.chunk import Chunk, StagedChunk
from penstock.model.offset import Offset
from penstock.model.partial_snapshot import PartialSnapshot
from penstock.model.schema import TableId
from penstock.model.table import TableState, is_reading, is_splitting
from penstock.snapshot.chunk_jobs import ChunkJobs, ChunkSource, StageTask
from penstock.snapshot.driver_side import driver_reads
from penstock.snapshot.gate import Gate, Permit
from penstock.snapshot.retries import Retries
from penstock.snapshot.staged_folders import StagedFolders
from penstock.snapshot.staging import Stager, Staging
from penstock.sources.chunks import Host, ViewChoice
from penstock.state import StateStore

log = logging.getLogger(__name__)

CHUNK_RETRY_FIRST_S = 0.4
"""Pause before the first retry of a chunk."""
CATCH_UP_SECONDS = 1.0
"""Pause while the source does not answer, or until the log explains why a chunk does not fit its table."""

Work = tuple[TableState, Chunk]
Place = tuple[TableId, int, int]
"""Identifies a chunk: its table, the number of its snapshot, its own number."""

GRACE_SECONDS = 3.0
"""Time for chunks that are being read when the pipeline stops. Their jobs are cancelled afterwards."""

TOGETHER_MAX = 32
"""Small chunks that a thread takes at once: enough to make opening a connection cheap, and few enough for
other threads to get some."""

FOUND_SECONDS = 0.5
"""New chunks are stored together for so long, because each transaction of the state store costs an fsync."""

LOOK_SECONDS = 1.0
"""Longest time between two checks for work while nothing has changed."""

OUTDATED_MAX = 60
"""Times that a chunk of a partial snapshot may not fit its table. After that, no statement in the log will
explain it, and the partial snapshot ends."""


class SnapshotReader:
    """Splits tables into chunks and stages them, until every chunk is staged or placed. A table that cannot
    be read is parked. `gate` is asked before each chunk. `kept_folders`: see `StagedFolders`."""

    def __init__(
        self,
        jobs: ChunkJobs,
        state: StateStore,
        staging: Staging,
        chunks: ChunkSource,
        gate: Gate,
        *,
        parallel: int,
        retries: RetriesConfig,
        kept_folders: Callable[[], set[str]] = lambda: set(),
    ) -> None:
        self._jobs = jobs
        self._state = state
        self._staging = staging
        self._folders = StagedFolders(staging, state, kept_folders)
        self._attempts_max = retries.attempts_max
        self._schedule = retries.schedule(CHUNK_RETRY_FIRST_S)
        self._chunks = chunks
        self._outdated: Counter[int] = Counter()
        self.gate = gate
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._taken: set[Place] = set()
        self._swept = -1  # number of the state's changes when outdated chunks were last removed
        self.error: BaseException | None = None
        self.retries = Retries()
        """Tables that wait because the source does not answer."""
        self._misfits: dict[TableId, TableState] = {}
        self._started = False
        self._threads: list[threading.Thread] = []
        self._begin(self._split_loop)
        for _ in range(parallel):
            self._begin(self._read_loop)

    def start(self) -> None:
        """Takes over what an earlier run has staged, and starts the threads."""
        self._folders.take_over()
        self.gate.start()
        with self._lock:
            self._started = True
            for thread in self._threads:
                thread.start()

    def _begin(self, run: Callable[[], None]) -> None:
        """Creates a thread; starts it if the reader is started."""
        name = f"snapshot-{len(self._threads)}"
        thread = self._jobs.thread(lambda: self._guarded(run), name)
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
        """Sets other limits for chunks that start from now on. None leaves a limit unchanged; 0 removes a
        rate limit. May be called from any thread."""
        self.gate.limits(
            parallel=parallel, rows_per_second=rows_per_second, bytes_per_second=bytes_per_second
        )
        with self._lock:
            while parallel is not None and len(self._threads) <= parallel and not self._stopping.is_set():
                self._begin(self._read_loop)

    def misfits(self) -> list[TableState]:
        """The tables whose columns at the source are not those of their definition. Each is as it was when a
        chunk of it was read. May be called from any thread."""
        with self._lock:
            return list(self._misfits.values())

    def _note_misfit(self, state: TableState, error: TransientError | None) -> None:
        """Remembers that the table does not fit its definition, or (None) that it fits again."""
        with self._lock:
            if isinstance(error, ChunkOutdated):
                self._misfits[state.table] = state
            else:
                self._misfits.pop(state.table, None)

    def _remove_outdated(self) -> bool:
        """Removes chunks of ended snapshots. False: some must stay for now."""
        with self._lock:
            try:
                return self._folders.remove_outdated({table for table, _, _ in self._taken})
            except TransientError as error:
                log.warning("chunks of ended snapshots are still there: %s", error)
                return False

    def stop(self, seconds: float = 60.0) -> None:
        """Ends the threads and waits for them at most `seconds`. Chunks that are almost read may finish.
        Longer jobs are cancelled; the next run reads these chunks again."""
        with self._lock:  # no thread begins after this
            self._stopping.set()
        deadline = time.monotonic() + seconds
        self.gate.stop(min(seconds, GRACE_SECONDS))
        left = self._join(min(deadline, time.monotonic() + GRACE_SECONDS))
        if left:
            log.warning("stopping: the jobs that read chunks are cancelled")
            with suppress(Exception):  # Spark may have ended
                self._jobs.cancel()
            left = self._join(deadline)
        if left:
            log.warning("stopping: these threads have not ended: %s", ", ".join(left))
            return
        with suppress(PenstockError):  # the next run does it
            self._remove_outdated()

    def _join(self, deadline: float) -> list[str]:
        """Waits for the threads until the deadline. Returns the names of those that still run."""
        for thread in self._threads:
            if thread.ident is not None:  # None: `start` was not reached
                thread.join(max(0.0, deadline - time.monotonic()))
        return [thread.name for thread in self._threads if thread.is_alive()]

    def _guarded(self, run: Callable[[], None]) -> None:
        """Runs a thread's function, and stores the error that ends it."""
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
                    return  # the next run splits the others
                self._split(state)
            for state, partial in self._partials("splitting"):
                self._split(state, partial)
            self._chunks.found_all()
            self.retries.keep_only(self._in_work())
            if known != self._swept and self._remove_outdated():
                self._swept = known
            self._pause(known, 0.2)

    def _pause(self, known: int, seconds: float) -> None:
        """Waits until the state has more than `known` changes, or `LOOK_SECONDS` have passed. It checks
        less and less often, because each check costs time."""
        until = time.monotonic() + LOOK_SECONDS
        while not self._stopping.wait(seconds):
            if self._state.own_changes != known or time.monotonic() > until:
                return
            seconds = min(2 * seconds, LOOK_SECONDS / 2)

    def _partials(self, status: str) -> list[tuple[TableState, PartialSnapshot]]:
        """Partial snapshots in this status whose tables are not being read as a whole."""
        found = [one for one in self._state.partials() if one.status == status]
        tables = self._state.tables() if found else {}
        return [
            (tables[one.table], one) for one in found if one.table in tables and tables[one.table].streaming
        ]

    def _in_work(self) -> set[TableId]:
        """Tables that are being split or read."""
        tables = [*self._state.tables_that(is_splitting), *self._state.tables_that(is_reading)]
        return {one.table for one in tables} | {one.table for one in self._state.partials()}

    def _split(self, state: TableState, partial: PartialSnapshot | None = None) -> None:
        """Splits one table, or the rows of one partial snapshot, into chunks."""
        try:
            if partial is None:
                self._find_all(state)
            else:
                chunks = self._chunks.find(state, partial, None, lambda rows: None)
                numbered = [replace(chunk, snapshot=partial.number) for chunk in chunks]
                self._state.set_partial_chunks(partial, numbered)
        except TransientError as error:
            # The source does not answer, or a later statement in the log explains the failure.
            log.warning("splitting %s: %s", state.table, error)
            self.retries.failed(state.table, error)
            if partial is None:
                self._note_misfit(state, error)
            self._stopping.wait(CATCH_UP_SECONDS)
        except Exception as error:
            own = as_table_error(error, str(state.table)) if isinstance(error, PenstockError) else error
            if (found := of_one_table(own, str(state.table), self._state.path.parent)) is None:
                raise
            self._give_up(state, partial.number if partial else 0, found)
        else:
            self.retries.ended(state.table)
            self._note_misfit(state, None)

    def _find_all(self, state: TableState) -> None:
        """Stores chunks while more are being found, so that reading can start. Each chunk is durable before
        the next one is searched from its upper bound on, also after a restart. Splitting the same range
        twice would give other bounds, and a row in two chunks would be appended twice."""
        found: list[Chunk] = []
        sizes: list[int] = []
        since = time.monotonic()
        last = self._state.last_chunk(state.table)
        for chunk in self._chunks.find(state, None, last, sizes.append):
            found.append(chunk)
            if self._stopping.is_set():
                return  # the next run finds the rest
            if chunk.upper is None or time.monotonic() - since > FOUND_SECONDS:
                size = sizes[-1] if sizes else None
                if not self._state.add_chunks(state, found, rows_guess=size):
                    return  # the table has changed and is split again
                found, since = [], time.monotonic()

    def _give_up(self, state: TableState, snapshot: int, error: TableError) -> None:
        """Ends a snapshot that cannot be read."""
        self.retries.ended(state.table)
        if snapshot:
            log.warning("the partial snapshot %d of %s ends: %s", snapshot, state.table, error)
            self._state.end_partial(snapshot, "stopped", error.message)
        else:
            self._park(state, error)

    def _park(self, read: TableState, error: TableError) -> None:
        table = self._state.table(read.table)
        if table is None or table.start != read.start:
            return  # another snapshot of it has started
        log.warning("%s is parked: %s", read.table, error)
        at = self._state.position or Offset(0)
        self._state.park(read.table, offset=at, reason=error.message, hint=error.hint)

    # reading chunks -----------------------------------------------------------------------------------------

    def _read_loop(self) -> None:
        self._jobs.begin()
        while not self._stopping.is_set():
            known = self._state.own_changes
            work = self._next()
            if not work:
                self._pause(known, 0.1)
                continue
            try:
                if not self._work_off(work):
                    self._stopping.wait(0.1)
            finally:
                with self._lock:
                    self._taken -= {_place(chunk) for _, chunk in work}

    def _next(self) -> list[Work]:
        """Takes chunks that no thread reads yet: one, or several small ones, this thread's share."""
        with self._lock:
            candidates = [(state, 0) for state in self._state.tables_that(is_reading)]
            candidates += [(state, partial.number) for state, partial in self._partials("reading")]
            waiting = self._state.with_planned() if candidates else set()
            share = max(1, min(TOGETHER_MAX, len(waiting) // len(self._threads)))
            found: list[Work] = []
            for state, snapshot in candidates:
                if (state.table, snapshot) not in waiting or self._chunks.paused(state.table):
                    continue
                while len(found) < share and (chunk := self._free(state.table, snapshot)) is not None:
                    by_driver = self._driver_reads(state, chunk)
                    if found and not by_driver:
                        return found
                    found.append((state, chunk))
                    self._taken.add(_place(chunk))
                    if not by_driver:
                        return found
                if len(found) == share:
                    break
            return found

    def _free(self, table: TableId, snapshot: int) -> Chunk | None:
        """The next planned chunk that no thread has taken."""
        taken = {number for name, of, number in self._taken if (name, of) == (table, snapshot)}
        return self._state.next_planned(table, taken, snapshot=snapshot)

    def _driver_reads(self, state: TableState, chunk: Chunk) -> bool:
        """Whether the thread reads the chunk without a Spark job."""
        return driver_reads(chunk, state.rows_guess) and self._chunks.view(state) is None

    def _work_off(self, work: list[Work]) -> bool:
        """Reads the chunks. Returns False if the gate lets no chunk start now."""
        state, chunk = work[0]
        if (permit := self._enter(state)) is None:
            return False
        if self._driver_reads(state, chunk):
            self._read_in_driver(work, permit)
        else:
            self._read(state, chunk, permit)
        return True

    def _read_in_driver(self, work: list[Work], permit: Permit) -> None:
        """Reads small chunks over one connection, as many as the gate permits in a row. Closes the
        connection and then returns the permit."""
        failed: Work | None = None
        try:
            with self._stager(permit) as stager:
                for state, chunk in work:
                    if self._chunks.paused(state.table):
                        continue
                    failed = state, chunk
                    staged = self._stage_in_driver(stager, state, chunk)
                    self._state.chunk_staged(staged)
                    failed = None
                    another = self.gate.may_read_another(permit, rows=staged.rows, bytes_=staged.bytes_read)
                    if not another or self._stopping.is_set():
                        break
        except Exception as error:
            if failed is None:
                raise
            log.info("%s chunk %d is read again: %s", failed[1].table, failed[1].number, error)
        finally:
            self.gate.leave(permit)
        if failed is not None and not self._stopping.is_set():
            self._read(*failed, self._enter(failed[0], permit.host))

    def _stager(self, permit: Permit, view: ViewChoice | None = None) -> Stager:
        return Stager(
            permit.host, self._staging, types=self._chunks.types, view=view, stopping=self._stopping
        )

    def _stage_in_driver(self, stager: Stager, state: TableState, chunk: Chunk) -> StagedChunk:
        executed = self._chunks.executed_at(self._since(state, chunk))
        return stager.stage(state.schema, chunk, self._folder(state, chunk), executed=executed)

    def _folder(self, state: TableState, chunk: Chunk) -> str:
        with self._lock:
            return self._folders.of(state, chunk.snapshot)

    def _read(self, state: TableState, chunk: Chunk, permit: Permit | None) -> None:
        """Reads one chunk by itself, with retries. Returns the permit."""
        backoff = Backoff(self._schedule)
        while permit is not None:
            try:
                self._state.chunk_staged(self._read_once(state, chunk, permit))
                self.retries.ended(state.table)
                self._note_misfit(state, None)
                return
            except Exception as error:
                if self._stopping.is_set():
                    return
                found = returned(error)
                of_table = isinstance(found, TableError) or backoff.failures + 1 >= self._attempts_max
                table, folder = str(state.table), self._state.path.parent
                if of_table and (own := of_one_table(found, table, folder)) is not None:
                    self._give_up(state, chunk.snapshot, own)
                    return
                if isinstance(found, ChunkOutdated):
                    self.retries.failed(state.table, found)
                    self._outdated[chunk.snapshot] += bool(chunk.snapshot)
                    if self._outdated[chunk.snapshot] > OUTDATED_MAX:
                        self._give_up(state, chunk.snapshot, as_table_error(found, table))
                        return
                    # A later statement in the log explains this. The chunk waits for it. If there is none,
                    # `planning/drift.py` has the table read again.
                    if not chunk.snapshot:
                        self._note_misfit(state, found)
                    if permit.host.is_replica:
                        log.warning("read from %s: %s", permit.host.address, found.message)
                    self._stopping.wait(CATCH_UP_SECONDS)
                    return
                backoff.failed()
                attempt = backoff.failures
                if attempt >= self._attempts_max and not passes(found):
                    raise found from error
                log.warning("%s chunk %d: attempt %d failed: %s", state.table, chunk.number, attempt,
                            str(found).splitlines()[0])  # fmt: skip
                self.retries.failed(state.table, found)
                backoff.wait(self._stopping)
            failed, permit = permit.host, None
            while permit is None and not self._stopping.wait(0.1):
                permit = self._enter(state, failed)

    def _enter(self, state: TableState, failed: Host | None = None) -> Permit | None:
        """Asks for a permit, if possible for another host than the one that `failed`. A table that is read in
        one piece is read from the source, because a replica's read view has no exact place in the log."""
        return self.gate.enter(at_source=self._chunks.view(state) is not None, failed=failed)

    def _read_once(self, state: TableState, chunk: Chunk, permit: Permit) -> StagedChunk:
        """One attempt. Returns the permit in any case."""
        done: list[StagedChunk] = []
        view = self._chunks.view(state)
        try:
            if view is not None and not self._jobs.opens_views:
                with self._stager(permit, view) as reading:
                    done = [self._stage_in_driver(reading, state, chunk)]
                return done[0]
            job = StageTask(
                host=permit.host,
                staging=self._staging,
                schema=state.schema,
                chunk=chunk,
                snapshot=self._folder(state, chunk),
                executed=self._chunks.executed_at(self._since(state, chunk)),
                types=self._chunks.types,
                view=view,
            )
            done = [self._jobs.stage(job)]
            return done[0]
        finally:
            rows, size = sum(item.rows for item in done), sum(item.bytes_read for item in done)
            self.gate.leave(permit, rows=rows, bytes_=size)

    def _since(self, state: TableState, chunk: Chunk) -> Offset:
        """The offset up to which the chunk's rows must show the log: at least the table's start and its
        last schema change. A replica that has not executed that statement could return columns under old
        names."""
        since = [state.start, self._state.changed_at(state.table)]
        if chunk.snapshot:
            since += [one.since for one in self._state.partials() if one.number == chunk.snapshot]
        return Offset(max(since))


def _place(chunk: Chunk) -> Place:
    return chunk.table, chunk.snapshot, chunk.number
