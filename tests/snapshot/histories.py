"""Histories against a real server: sessions write, a real receiver follows, chunks are read over connections
of their own, and the real planner says what is done. Only Spark is missing: `Target` does the steps of plans
in Python, as the contract of sinks has it (`sinks/base.py`).

The judge is the server. The writers are held, the pipeline is brought to the end of the log, and the target
is compared with what SELECT says. A history is seeded as far as one with threads can be.
"""

from __future__ import annotations

import functools
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymysql
from tests.snapshot.history_target import Broken, Key, Killed, Target
from tests.sources.mysql.receiving import Receiving

from penstock.config import PipelineConfig
from penstock.config import parse as parse_config
from penstock.epochs.record import record
from penstock.errors import ChunkOutdated, ConfigError, TransientError
from penstock.model.chunk import Chunk
from penstock.model.offset import Offset
from penstock.model.partial_snapshot import PartialSnapshot
from penstock.model.schema import TableId
from penstock.model.signal import ENDED
from penstock.model.table import TableState, is_splitting
from penstock.planning.discovery import discover
from penstock.planning.planner import Planner, PlannerLimits
from penstock.planning.policy import Policies
from penstock.planning.resnapshots import Resnapshots
from penstock.relaylog import segment_format
from penstock.relaylog.files import LogPlace
from penstock.relaylog.reader import RelayLog
from penstock.signals.acceptance import accept
from penstock.signals.settings import apply_patterns
from penstock.signals.work import Signals
from penstock.snapshot.chunk_log import ChunkLog
from penstock.snapshot.placement import PlacementLimits
from penstock.snapshot.staging import Staging, stage_chunk
from penstock.sources import open_source
from penstock.sources.chunks import ALL_ROWS
from penstock.sources.mysql.identifiers import quoted
from penstock.sources.mysql.omitted_columns import omitted_values
from penstock.sources.table_filter import TableFilter
from penstock.state import StateStore
from penstock.store.opening import open_store
from penstock.testing.servers import Database

NAMES = 24
CHUNK_ROWS = 4
CHUNKS_MIN = 8
"""A history goes on until so many have been placed."""
SECONDS_MAX = 120
_PASSING = (1062, 1205, 1213)
"""Key taken, lock wait, deadlock: the transaction is rolled back, as anywhere."""


def wait(condition: Callable[[], Any], what: str, *, seconds: float = SECONDS_MAX) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TransientError(f"{what} did not happen")
        time.sleep(0.005)  # polls a condition, with a limit


class Writers:
    """Sessions that write to tables `a` (numbers as keys) and `b` (texts, whose case does not matter)."""

    def __init__(self, database: Database, dice: random.Random) -> None:
        self._database = database
        self._values = itertools.count(1)
        self._locks = [threading.Lock() for _ in range(3)]
        self._stopping = threading.Event()
        self.transactions = 0
        self.error: BaseException | None = None
        self._truncates = dice.choice((0, 0.02, 0.06))
        self._threads = [
            threading.Thread(target=self._run, args=(lock, random.Random(dice.random())), daemon=True)
            for lock in self._locks
        ]
        database.execute(
            "CREATE TABLE a (id INT PRIMARY KEY, v INT NOT NULL)",
            "CREATE TABLE b (k VARCHAR(10) COLLATE utf8mb4_0900_ai_ci PRIMARY KEY, v INT NOT NULL)",
            "CREATE TABLE tick (id INT PRIMARY KEY AUTO_INCREMENT)",
        )

    def begin(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def is_beyond(self, transactions: int) -> bool:
        return self.transactions > transactions

    @contextmanager
    def held(self) -> Iterator[None]:
        with ExitStack() as stack:
            for lock in self._locks:
                stack.enter_context(lock)
            yield

    def _run(self, lock: threading.Lock, dice: random.Random) -> None:
        try:
            with self._database.connect(autocommit=False) as connection, connection.cursor() as cursor:
                cursor.execute("SET SESSION innodb_lock_wait_timeout = 2")
                while not self._stopping.is_set():
                    with lock:
                        self._transaction(connection, cursor, dice)
                    self._stopping.wait(dice.choice((0, 0, 0.002, 0.01)))
        except BaseException as error:
            self.error = error

    def _transaction(self, connection: Any, cursor: Any, dice: random.Random) -> None:
        try:
            if dice.random() < self._truncates:
                cursor.execute(f"TRUNCATE {dice.choice('ab')}")
            for _ in range(dice.choice((1, 1, 2, 4))):
                table, column, key, other = _keys(dice)
                value, kind = next(self._values), dice.random()
                if kind < 0.5:
                    upsert = f"INSERT INTO {table} VALUES (%s, %s) ON DUPLICATE KEY UPDATE v = %s"
                    cursor.execute(upsert, (key, value, value))
                elif kind < 0.7:
                    cursor.execute(f"DELETE FROM {table} WHERE {column} = %s", (key,))
                else:
                    move = f"UPDATE {table} SET {column} = %s, v = %s WHERE {column} = %s"
                    cursor.execute(move, (other, value, key))
            connection.rollback() if dice.random() < 0.15 else connection.commit()
            self.transactions += 1
        except pymysql.MySQLError as error:
            connection.rollback()
            if error.args[0] not in _PASSING:
                raise


def _keys(dice: random.Random) -> tuple[str, str, Any, Any]:
    one, other = dice.randrange(NAMES), dice.randrange(NAMES)
    if dice.random() < 0.5:
        return "a", "id", one, other
    return "b", "k", name_of(one, dice), name_of(one if dice.random() < 0.3 else other, dice)


def name_of(number: int, dice: random.Random) -> str:
    """Either case names the same row."""
    return f"{dice.choice('kK')}{number:02d}"


class Run:
    """One run of the pipeline: what is in memory only, and gone when it is killed."""

    def __init__(self, config: PipelineConfig, target: Target, database: Database, discard: Any) -> None:
        self.config, self.target = config, target
        self.state = StateStore(config.state)
        self.log = RelayLog.open(config.relay_log_path)
        self.chunk_log = ChunkLog(LogPlace.of(config))
        self.source = open_source(config)
        self.captured = TableFilter(config.tables, fold_case=self.source.catalog.fold_case)
        apply_patterns(self.captured, config.tables, self.state)
        self.hosts = self.source.snapshot_hosts(self.captured, self.chunk_log.bytes_outside)

        def renew() -> None:
            database.execute("INSERT INTO tick VALUES ()")

        if self.state.position is None:
            self.log.refresh()
            self.state.advance(self.log.end)
        self.discover(True)
        self.resnapshots = Resnapshots(
            self.state, self.log, self.source, config, target.open, wait=wait, renew=renew
        )
        self.signals = Signals(
            self.state, config, self.captured, [], discover=self.discover,
            catalog=self.source.catalog, unpark=lambda table: {}, limit=lambda limits: None,
            advance_log=renew,
        )  # fmt: skip
        self.planner = self._make_planner(discard)

    def discover(self, reads: bool) -> None:
        discover(
            self.state, self.log, self.source, self.captured, self.config,
            append_only=self.target.append_only, wait=wait, reads=reads,
        )  # fmt: skip

    def _make_planner(self, discard: Any) -> Planner:
        epoch, types = self.config.epoch, self.config.types
        statements = self.source.statements(self.captured, self.log, types=types, parks_cascades=True)
        limits = PlannerLimits(epoch.bytes_max, self.target.limits, epoch.task_bytes, epoch.snapshot_rows_max)
        policies = Policies(self.config.evolution, append_only=self.target.append_only, reads=True)
        return Planner(
            self.state, self.log, statements, windows=self.source.windows, policies=policies,
            discard=discard, limits=limits,
        )  # fmt: skip


class History:
    """`play` raises `Broken` for a target that is not what it must be."""

    def __init__(self, seed: int, database: Database, receiver: Receiving, folder: Path) -> None:
        self.dice = random.Random(seed)
        self._database = database
        self._folder = folder
        self._writers = Writers(database, self.dice)
        limits = self.dice.choice((PlacementLimits(1 << 40, 0), PlacementLimits(1 << 40, 1 << 40)))
        if self.dice.random() < 0.2:
            limits = PlacementLimits(2000, 1000)
        self._staging = Staging(open_store(folder.absolute().as_uri()))
        append_only = self.dice.random() < 0.35
        self.target = Target(self._staging, append_only=append_only, limits=limits, omitted=omitted_values)
        captured = self.dice.choice((("a", "b"), ("a", "b"), ("a",)))
        self._config = parse_config(
            {
                "name": "history",
                "source": {"host": database.host, "port": database.port, "user": database.user,
                           "password": database.password},
                "tables": [f"{database.name}.{table}" for table in captured],
                "sink": {"type": "parquet" if self.target.append_only else "iceberg",
                         "path": str(folder / "lake")},
                "state": str(folder / "state"),
                "relay_log": {"path": str(receiver.log_path)},
                "epoch": {"bytes_max": self.dice.choice((1000, 20_000, 1_000_000))},
            }
        )  # fmt: skip
        self._crashes = self.dice.choice((0, 0.01, 0.04))
        self._lags = self.dice.random() < 0.7
        self._held = False
        self._rests_until = 0
        """A number of transactions: before it nothing is planned."""
        self._stopping = threading.Event()
        self._damaged: dict[tuple[TableId, Any], str] = {}
        """Keys at the target, lower case, that a signal is to mend."""
        self._sent: list[str] = []
        self.chunks = 0
        self.error: BaseException | None = None

    # the history

    def play(self, rounds: int = 4) -> None:
        writers, dice = self._writers, self.dice
        writers.begin()
        threads: list[threading.Thread] = []
        try:
            wait(lambda: writers.transactions > 30 or writers.error, "first rows")
            self.run = self._begin()
            threads = [
                threading.Thread(target=self._guarded, args=(work,), daemon=True)
                for work in (self._split, self._read, self._read, self._read)
            ]
            for thread in threads:
                thread.start()
            for number in itertools.count():
                if number >= rounds and self.chunks >= CHUNKS_MIN:
                    break
                for _ in range(dice.choice((0, 1, 2)) if number < rounds else 2):
                    self._ask()
                goal = writers.transactions + dice.randint(10, 60)
                self._work_until(functools.partial(writers.is_beyond, goal))
                with writers.held():
                    self._held, self._rests_until = True, 0
                    self._catch_up()
                    self._judge()
                self._held = False
            writers.end()
            self._held, self._crashes, self._rests_until = True, 0, 0
            self._work_until(self._is_done)
            self._catch_up()
            self._damaged.clear()
            self._judge(finally_=True)
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join()
            writers.end()
        if writers.error or self.error:
            raise writers.error or self.error  # type: ignore[misc]

    def _begin(self) -> Run:
        run = Run(self._config, self.target, self._database, self._staging.discard)
        for item in self._staging.staged():
            run.state.chunk_staged(item)  # what an earlier run staged counts
        return run

    def _work_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not condition():
            assert time.monotonic() < deadline, f"not in time: {self._doing()}"
            if self._writers.error or self.error:
                raise self._writers.error or self.error  # type: ignore[misc]
            try:
                worked = self._step()
            except Killed:
                self.run, worked = self._begin(), True
            if not worked:
                self._stopping.wait(0.005)  # others work

    def _doing(self) -> str:
        state = self.run.state
        tables = [(str(t.table), t.phase) for t in state.tables().values()]
        return f"{tables} {state.partials()} {[s.to_json() for s in state.signals()]}"

    def _step(self) -> bool:
        """One turn of the pipeline's loop; whether there was anything to do."""
        run = self.run
        if self._writers.transactions < self._rests_until:
            return False
        if self.dice.random() < self._crashes:
            raise Killed
        for plan in run.state.pending():
            fails = self.dice.random() < self._crashes
            outcomes = self.target.apply(plan, kill=self.dice if fails else None)
            if self.dice.random() < self._crashes:
                raise Killed
            merges = not self.target.append_only
            record(run.state, plan, outcomes, discard=self._staging.discard, rereads_max=3, merges=merges)
            # Epochs take their time, and chunks are read meanwhile.
            if self._lags and not self._held and self.dice.random() < 0.3:
                self._rests_until = self._writers.transactions + self.dice.randint(2, 25)
            for outcome in outcomes:
                self.chunks += len(outcome.placed)
                self._staging.discard_placed(outcome.placed)
            return True
        try:
            run.signals.work()
            run.resnapshots.work()
            return run.planner.plan_next() is not None
        except TransientError:
            return False

    def _catch_up(self) -> None:
        goal = segment_format.position(*self._database.position())

        def there() -> bool:
            run = self.run
            run.log.refresh()
            offset = run.log.offset_reaching(goal)
            position = run.state.position
            level = offset is not None and position is not None and position >= offset
            return level and not run.state.has_pending()

        self._work_until(there)

    def _is_done(self) -> bool:
        run = self.run
        ended = all(one.status in ENDED for one in run.state.signals())
        idle = not run.state.partials() and not run.state.has_pending()
        return ended and idle and all(t.streaming for t in run.state.tables().values())

    # signals

    def _ask(self) -> None:
        """A signal, sent at whatever moment this is; before some of them the target goes wrong."""
        known = list(self.run.state.tables().values())
        if len(known) < 2 and self.dice.random() < 0.5:
            self._send("add-table", {"tables": [f"{self._database.name}.b"]})
            return
        table = self.dice.choice(known)
        name, dice = {"data-collections": [str(table.table)]}, self.dice
        numbered = table.table.table == "a"
        keys = [
            [number if numbered else name_of(number, dice)]
            for number in (dice.randrange(NAMES) for _ in range(dice.randint(1, 8)))
        ]
        match dice.choice(("whole", "fresh", "keys", "keys", "range", "condition", "damage", "damage")):
            case "whole":
                self._send("execute-snapshot", name)
            case "fresh":
                into = {} if self.target.append_only else {"target": "recreate"}
                self._send("execute-snapshot", name | into)
            case "keys":
                self._send("execute-snapshot", name | {"keys": keys})
            case "range":
                low, high = sorted(keys)[0], sorted(keys)[-1]
                self._send("execute-snapshot", name | {"from": low, "to": high})
            case "condition":
                condition = {"data-collection": str(table.table), "filter": "v % 2 = 0"}
                self._send("execute-snapshot", name | {"additional-conditions": [condition]})
            case "damage":
                self._damage(table, [tuple(key) for key in keys])

    def _send(self, kind: str, data: dict[str, Any]) -> str:
        signal = f"s{len(self._sent)}"
        self._sent.append(signal)
        accept(self.run.state, signal, kind, data, "test")
        return signal

    def _damage(self, table: TableState, keys: list[Key]) -> None:
        """Rows of a target that is complete change behind our back, and a signal names their keys."""
        now = self.run.state.table(table.table)
        if self.target.append_only or now is None or not (now.streaming and now.complete):
            return
        if self.run.state.has_pending() or table.table not in self.target.rows:
            return
        if not now.written:
            return  # into a target that it left empty the pipeline appends without a look
        self.target.damage(table.table, keys, self.dice, int(self.run.state.position or 0))
        asked = {"data-collections": [str(table.table)], "keys": [list(key) for key in keys]}
        signal = self._send("execute-snapshot", asked)
        for key in keys:
            self._damaged[table.table, _folded(key)] = signal

    # judging

    def _judge(self, *, finally_: bool = False) -> None:
        """The target beside the server's SELECT; nobody writes, and all of the log is applied."""
        for table in self.run.state.tables().values():
            if not table.planned or (table.reading and table.replaces) or table.target_reset != "none":
                assert not finally_, f"{table.table}: {self._doing()}"
                continue  # rows of before are still there
            rows = self._database.query(f"SELECT * FROM {quoted(table.table)}")
            truth = {(row[0],): row for row in rows}
            found = self.target.now(table.table)
            exempt = self._still_damaged(table.table)
            for key, row in found.items():
                if _folded(key) not in exempt and truth.get(key) != row:
                    raise Broken(f"{table.table}: {row} instead of {truth.get(key)}")
            missing = {key for key in truth.keys() - found.keys() if _folded(key) not in exempt}
            if missing and not table.reading:
                raise Broken(f"{table.table}: {sorted(missing)} are missing")

    def _still_damaged(self, table: TableId) -> set[Any]:
        ended = {one.id for one in self.run.state.signals() if one.status in ENDED}
        return {key for (name, key), by in self._damaged.items() if name == table and by not in ended}

    # chunks

    def _guarded(self, work: Callable[[Run], bool]) -> None:
        while not self._stopping.is_set():
            try:
                if not work(self.run):
                    self._stopping.wait(0.005)
            except (TransientError, ChunkOutdated, ConfigError):
                self._stopping.wait(0.01)  # it is tried again, as the pipeline does
            except BaseException as error:
                self.error = error
                return

    def _split(self, run: Run) -> bool:
        tables = run.state.tables()
        for table in tables.values():
            if is_splitting(table):
                for chunk in self._found(run, table, None):
                    if run is not self.run or not run.state.add_chunks(table, [chunk]):
                        break
        for partial in run.state.partials():
            table = tables[partial.table]
            if partial.status == "splitting" and table.streaming:
                chunks = list(self._found(run, table, partial))
                if run is self.run:
                    run.state.set_partial_chunks(partial, chunks)
        return False

    def _found(self, run: Run, table: TableState, partial: PartialSnapshot | None) -> Iterator[Chunk]:
        since = table.start if partial is None else max(table.start, partial.since)
        for chunk in run.source.chunks.find(
            table.schema,
            CHUNK_ROWS,
            run.chunk_log.executed_at(Offset(since)),
            sized=lambda rows: None,
            part=partial.part if partial else ALL_ROWS,
            after=None if partial else run.state.last_chunk(table.table),
        ):
            yield replace(chunk, snapshot=partial.number) if partial else chunk

    def _read(self, run: Run) -> bool:
        """Several may read one chunk: the first that is staged counts."""
        tables = run.state.tables()
        waiting = [(table, 0, table.start) for table in tables.values() if table.reading]
        waiting += [
            (tables[part.table], part.number, Offset(max(tables[part.table].start, part.since)))
            for part in run.state.partials()
            if part.status == "reading" and tables[part.table].streaming
        ]
        for table, snapshot, since in waiting:
            chunk = run.state.next_planned(table.table, set(), snapshot=snapshot)
            if chunk is None:
                continue
            folder = f"part-{snapshot}" if snapshot else str(table.start)
            executed, host = run.chunk_log.executed_at(since), run.hosts.followed()
            staged = stage_chunk(host, self._staging, table.schema, chunk, folder, executed=executed)
            if run is self.run:
                run.state.chunk_staged(staged)
            return True
        return False


def _folded(key: Key) -> Any:
    return str(key[0]).lower()
