"""The relay log of a server: one thread follows its end and the definitions of tables, and scans of all
subscriptions read from it.

A scan never reads beyond what is tracked, so the definitions of what it reads are always known. `RelayLog` is
not thread-safe; what scans ask it is done under a lock and takes milliseconds. Files are read outside of it.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock._core import DecodeError, SchemaMismatch, transactions_of
from penstock.errors import ConfigError, PenstockError, TableError, TransientError
from penstock.model.offset import LogRange, Offset, Split
from penstock.model.schema import DEFAULT_TYPES, TableId, TableSchema
from penstock.planning.discovery import Wait, reach_end
from penstock.relaylog.archive_restore import identity_of, survives
from penstock.relaylog.files import LogPlace
from penstock.relaylog.full_statements import in_full
from penstock.relaylog.log_parts import parts_of
from penstock.relaylog.reader import RelayLog, Statement
from penstock.relaylog.segment import damaged
from penstock.relaylog.segment_format import format_of
from penstock.serve import source_places
from penstock.serve.batches import Place
from penstock.serve.filters import Filter
from penstock.serve.log import definitions
from penstock.serve.log.definitions import Definitions, EveryTable, Redefined
from penstock.serve.log.statements import UNREADABLE_HINT, statement_of, unreadable
from penstock.serve.log.times import Times
from penstock.serve.positions import make_folder
from penstock.serve.settings import ServerConfig
from penstock.serve.source_places import SourcePlace
from penstock.serve.start import offset_of
from penstock.sources import open_source, registry, statements_of
from penstock.sources.base import Source
from penstock.sources.log_start import LogStart
from penstock.sources.statements import Statements

if TYPE_CHECKING:
    from penstock._core import LogPart

log = logging.getLogger(__name__)

PART_BYTES = 4 * 1024**2
"""Bytes of log that a scan opens at once: enough that opening does not count."""
SCAN_BYTES = 256 * 1024**2
"""Bytes of log without rows of a subscription that are passed at once, by the index alone."""
PAUSES_S = ((1.0, 0.0005), (10.0, 0.002), (float("inf"), 0.005))
"""Seconds between two looks at the end of the log (one system call), by the time since it grew."""
REFRESH_S = 0.2
"""Seconds between two looks into the folder, where new segments appear."""
SOURCE_PLACES_MAX = 100
"""Number of places whose position at the source is remembered. Many clients are at the same place."""
CATCH_UP_S = 10.0
"""Seconds that a server waits for its receivers, before it listens."""
RETRY_S = 1.0
"""Pause behind an error of the source or the disk."""


@dataclass(frozen=True)
class Part:
    """A part of the log, with what is needed to decode it: the definitions where it begins, and those that
    statements in it change. Without `parts` it has nothing for the filter."""

    range: LogRange
    tables: tuple[TableId, ...] = ()
    schemas: tuple[str, ...] = ()
    changes: tuple[Redefined, ...] = ()
    parts: tuple[LogPart, ...] = ()


@dataclass(frozen=True)
class TypedPart:
    """A part of the log with the rows of one table (`splits`), which has this definition; and statements
    about it at its end. Several are in one transaction."""

    range: LogRange
    schema: TableSchema | None
    splits: tuple[Split, ...]
    statements: tuple[dict[str, Any], ...]


class ServedLog:
    """The relay log of a source, followed by a thread, which `start_following` begins. The thread calls
    `on_growth` when `end` has moved, or after `look`."""

    def __init__(self, place: LogPlace, source: Source | None, store: Path | None) -> None:
        self._lock = threading.Lock()
        self._log = RelayLog.open(place)
        self._source = source
        self._store = store
        kind = registry.of_format(format_of(self._log.facts))
        captured = self._captured = EveryTable(() if kind is None else kind.of_the_server)
        if source is not None:
            self._statements: Statements = source.statements(
                captured, self._log, types=DEFAULT_TYPES, parks_cascades=False
            )
        else:
            self._statements = statements_of(self._log, captured, types=DEFAULT_TYPES)
        self._definitions = Definitions(self._log.start, {})
        self._end = self._log.start
        self._source_places: dict[Offset, SourcePlace] = {}
        self._stopping = threading.Event()
        self._asked = False
        self._thread: threading.Thread | None = None
        self.is_merged = False
        """Whether somebody reads this log together with others, by the time of commits."""
        self._times = Times(place.folder)

    @classmethod
    def of(cls, config: ServerConfig, name: str) -> ServedLog:
        """The log of a source (`ServerConfig.logs`)."""
        pipeline = config.pipeline_of(name)
        source = None if config.logs[name].source is None else open_source(pipeline)
        store, file = config.positions.path, f"definitions-{name}.json" if name else "definitions.json"
        if store is None and config.is_shared:
            store = pipeline.relay_log_path / "serve"
            make_folder(store)
        return cls(LogPlace.of(pipeline).or_archive, source, store and store / file)

    @property
    def id(self) -> str:
        """The log's identity. It changes when the log is restored from its archive."""
        return identity_of(self._log.facts)

    @property
    def has_canals_places(self) -> bool:
        """Whether Canal has positions for the source."""
        kind = registry.of_format(format_of(self._log.facts))
        return kind is not None and kind.canal_places is not None

    @property
    def was_restored(self) -> bool:
        return self.id != self._log.uuid

    def place_in(self, id: str, place: Place) -> Place | None:
        """The place in this log that means a place of the log with this id. If this log was restored from its
        archive, log that was lost with the disk comes again. None: the id is that of another log."""
        same = survives(self._log.facts, id)
        if same is None or place <= Place(same):
            return None if same is None else place
        log.warning("the log behind offset %d was lost with a disk; clients get it again", same)
        return Place(same)

    @property
    def end(self) -> Offset:
        """The offset up to which the log can be read."""
        return self._end

    @property
    def start(self) -> Offset:
        with self._lock:
            return self._log.start

    def begin(self, wait: Wait) -> None:
        """Finds the definitions. Raises `TransientError` while the source does not answer."""
        with self._lock:
            self._log.refresh()
            known = None
            if self._store is not None:
                known = definitions.load(self._store, self._log)
            if known is None:
                known = definitions.first(self._log, self._source, self._statements, self._captured, wait)
            else:
                self._catch_up(wait)
            self._definitions = known
            self._end = max(self._end, known.tracked)
            try:
                self._follow()
            except TransientError as error:
                # A statement of the log needs an answer of the source. The thread tries again.
                log.warning("the relay log cannot be followed: %s", error)
            self._save()

    def _catch_up(self, wait: Wait) -> None:
        """Waits a short time for what was committed while no receiver ran, so that clients that begin at the
        latest change do not get it. Clients that continue must not wait for a source that is away."""
        if self._source is None:
            return
        try:
            reach_end(self._log, self._source, partial(wait, seconds=CATCH_UP_S))
        except TransientError as error:
            log.warning("clients that begin at the latest change may get earlier ones: %s", error.message)

    def start_following(self, on_growth: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=self._watch, args=(on_growth,), name="log-watch", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Makes `on_growth` be called soon, even if the log does not grow."""
        self._asked = True

    def close(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(5)
        if self._source is not None:
            self._source.close()

    # for scans ----------------------------------------------------------------------------------------------

    def offset_of(self, start: LogStart) -> Offset:
        with self._lock:
            self._log.refresh()
            return min(offset_of(self._log, start), self._end)

    def part(self, start: Offset, tables: Filter) -> Part | None:
        """The next part behind an offset. None: there is nothing yet. Raises `LogPurged`."""
        with self._lock:
            end = self._end
            if start >= end:
                return None
            reach = LogRange(start, min(self._log.cut(start, PART_BYTES), end))
            found = self._wanted(reach, tables)
            if found or self._log.statements(reach):
                return self._part(reach, found)
            far = LogRange(start, min(self._log.cut(start, SCAN_BYTES), end))
            if not self._wanted(far, tables) and not self._log.statements(far):
                reach = far
            return Part(reach)

    def typed_part(self, start: Offset, tables: Filter) -> TypedPart | None:
        """The next part behind an offset with rows of the one table of a filter, under one definition. None:
        there is nothing yet. Raises `LogPurged`, and `ConfigError` if the filter has several tables."""
        with self._lock:
            end = self._end
            if start >= end:
                return None
            reach = LogRange(start, min(self._log.cut(start, PART_BYTES), end))
            reach, statements = self._up_to_statement(reach, tables)
            names = self._wanted(reach, tables)
            # CREATE TABLE ... SELECT has its rows in its own transaction, with the new definition.
            inside = bool(statements) and self._log.committed_before(statements[0].end) == start
            known = self._definitions.at(reach.end if inside else start)
            if any(name not in known for name in names):
                # For a part of a span, the index has the tables of the whole span: this one may come later.
                names = self._wanted(reach, tables, exact=True)
            if len(names) > 1:
                raise ConfigError(f"A typed stream has one table, and not {', '.join(map(str, names))}.")
            splits = self._log.splits(reach, names[0], bytes_aim=PART_BYTES) if names else []
            schema = known.get(names[0]) if names else None
            told = (self._told(one, tables) for one in statements)
            return TypedPart(reach, schema, tuple(splits), tuple(one for one in told if one is not None))

    def _up_to_statement(self, reach: LogRange, tables: Filter) -> tuple[LogRange, list[Statement]]:
        """The part of a range up to the end of the first statement about a table of the filter, or to the
        first change of its definition, with the statements. One inside of a transaction is in a part with
        this transaction alone, and with the others in it."""
        about = [one for one in map(self._in_full, self._log.statements(reach)) if self._told(one, tables)]
        changes = [one.offset for one in self._definitions.changes(reach) if one.table in tables]
        first = min([one.end for one in about] + changes, default=None)
        if first is None:
            return reach, []
        committed = self._log.committed_before(first)
        if reach.start < committed < first:
            return LogRange(reach.start, committed), []
        if committed < first:
            first = self._transaction_end(LogRange(reach.start, reach.end), first)
        return LogRange(reach.start, first), [one for one in about if one.end <= first]

    def _told(self, statement: Statement, tables: Filter) -> dict[str, Any] | None:
        return statement_of(statement, format_of(self._log.facts), lambda table: self.has(table, tables))

    def has(self, table: TableId, tables: Filter) -> bool:
        """Whether clients with this filter get the table."""
        return table in tables and table in self._captured

    def _in_full(self, statement: Statement) -> Statement:
        return (in_full(self._log, statement) or statement) if statement.truncated else statement

    def _transaction_end(self, reach: LogRange, inside: Offset) -> Offset:
        """The end of the transaction that is open at an offset of the range."""
        begins, *_ = transactions_of(parts_of(self._log, reach), [], statements=True)
        behind = min((Offset(one) for one in begins if one >= inside), default=reach.end)
        return self._log.committed_before(behind)

    def definition(self, table: TableId, at: Offset) -> TableSchema | None:
        """The definition of a table behind an offset. None: there is no such table, or it is not known."""
        with self._lock:
            return self._definitions.at(min(at, self._end)).get(table)

    def _wanted(self, reach: LogRange, tables: Filter, *, exact: bool = False) -> tuple[TableId, ...]:
        found = self._log.tables(reach, exact=exact).items()
        return tuple(sorted(table for table, (events, _) in found if events and self.has(table, tables)))

    def _part(self, reach: LogRange, tables: tuple[TableId, ...]) -> Part:
        known = self._definitions.at(reach.start)
        schemas = tuple(known[table].to_json() for table in tables if table in known)
        changes = [one for one in self._definitions.changes(reach) if one.table in tables]
        return Part(reach, tables, schemas, tuple(changes), tuple(parts_of(self._log, reach)))

    def commit_us_of(self, change: Offset) -> int:
        """The commit time of the transaction that has a change at this offset."""
        with self._lock:
            return self._log.first_commit_us_after(self._log.committed_before(change)) or 0

    def reached_us(self, passed: Offset) -> int:
        """A time, by the source's clock: everything behind a place was committed at it or later. It comes
        from the log and the receiver's report."""
        return self._times.reached_us(passed)

    @property
    def end_position(self) -> str:
        """The place in the source's log up to which it was received."""
        with self._lock:
            return str(self._log.position_at(self._end))

    def place_of(self, place: SourcePlace) -> Place:
        """Raises `source_places.NotReached`, `LogPurged` and `ConfigError`."""
        with self._lock:
            found = source_places.to_place(self._log, place)
            if found.offset > self._end:
                raise source_places.NotReached(f"The definitions of tables are not known up to {place} yet.")
            return found

    def source_place(self, place: Place) -> SourcePlace:
        """The position at the source of a place in the log. Raises `LogPurged`."""
        with self._lock:
            found = self._source_places.get(place.offset)
            if found is None:
                found = source_places.of_place(self._log, Place(place.offset))
                if len(self._source_places) >= SOURCE_PLACES_MAX:
                    self._source_places.clear()
                self._source_places[place.offset] = found
        return replace(found, entries=place.entries)

    def behind(self, place: Offset) -> dict[str, Any]:
        """How much log follows an offset, and its position at the source. Empty if the offset is not in the
        log any more."""
        try:
            with self._lock:
                place = min(place, self._end)
                first_us = self._log.first_commit_us_after(place)
                return {
                    "position": str(self._log.position_at(place)),
                    "behind_bytes": self._end - place,
                    "behind_transactions": self._log.transactions_between(LogRange(place, self._end)),
                    "behind_seconds": 0.0 if first_us is None else round(time.time() - first_us / 1e6, 3),
                }
        except PenstockError:
            return {}

    # the thread ---------------------------------------------------------------------------------------------

    def _watch(self, on_growth: Callable[[], None]) -> None:
        grew = time.monotonic()
        while not self._stopping.is_set():
            try:
                with self._lock:
                    stamp = self._log.stamp()
                    moved = self._follow()
                    if self.is_merged:
                        moved = self._times.look(self._log, self._end) or moved
            except (PenstockError, OSError) as error:
                log.warning("the relay log cannot be followed: %s", error)
                self._stopping.wait(RETRY_S)
                continue
            if moved or self._asked:
                grew, self._asked = time.monotonic() if moved else grew, False
                on_growth()
            looked = time.monotonic()
            pause = next(pause for limit, pause in PAUSES_S if looked - grew < limit)
            while not self._stopping.is_set() and not self._asked and self._log.stamp() == stamp:
                if time.monotonic() - looked > REFRESH_S or (self.is_merged and self._times.heard()):
                    break
                time.sleep(pause)  # the pace of looking

    def _follow(self) -> bool:
        """Follows the log to its present end. Returns whether that has moved."""
        end = self._log.refresh()
        if end <= self._definitions.tracked:
            moved = self._end < end
            self._end = max(self._end, end)
            return moved
        if definitions.track(self._definitions, self._log, self._statements, end):
            self._save()
        self._end = end
        return True

    def save(self) -> None:
        with self._lock:
            self._save()

    def _save(self) -> None:
        """Stores the definitions of tables. Without a file for them, the next start finds them again, as far
        as the log has them."""
        if self._store is not None:
            # From the log's start on, since anybody may begin to read there.
            definitions.save(self._definitions, self._store, log_id=self.id, since=self._log.start)


def mark_of(logs: Sequence[ServedLog]) -> str:
    """A mark of these logs, for places that readers remember themselves. Other logs have another mark."""
    ids = [one.id for one in logs]
    if len(ids) == 1:
        return ids[0].rpartition("+")[2][:8]
    return hashlib.sha256(",".join(ids).encode()).hexdigest()[:8]


def wait_until(check: Callable[[], None], stopping: threading.Event, seconds: float) -> Callable[..., None]:
    """A `Wait` that ends when the server is stopped, or when `check` raises."""

    def wait(condition: Callable[[], object], what: str, *, seconds: float = seconds) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            check()
            if stopping.is_set():
                raise TransientError(f"Stopped while waiting for {what}.")
            if time.monotonic() > deadline:
                raise TransientError(
                    f"Waited {seconds:.0f} s for {what} without success.",
                    hint="Does the receiver run? See `receiver.log` in the relay log's folder.",
                )
            time.sleep(0.02)  # polls a condition, with a limit

    return wait


def explained(error: DecodeError) -> PenstockError:
    """The error that a client gets for log that cannot be decoded."""
    table = getattr(error, "table", "")
    if table or isinstance(error, SchemaMismatch):
        return TableError(
            f"Rows of table {TableId.parse(table) if '.' in table else table} cannot be read at offset "
            f"{error.offset}: {unreadable(error.reason)}.",
            hint=UNREADABLE_HINT,
            table=table,
            offset=error.offset,
        )
    return damaged(error)
