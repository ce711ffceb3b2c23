"""Changes of tables as Arrow batches, as soon as they are durable in the relay log. It needs neither Spark
nor a target, and serves programs that want changes within milliseconds (docs/changes.md).

    with follow("shop.yaml", ["shop.orders"]) as changes:
        for item in changes: ...

Why no value can be wrong. A batch is decoded with the definition that the table has at that place in the log,
and the core compares every table map with it. The first definitions are true at one offset: the offset up to
which a pipeline has planned, or one at which the catalog says the same before and after. From there on, each
statement in the log changes them by the rules of pipelines (`sources/statements.py`). A range ends at such a
statement, so no batch has rows from both sides of it. An item of its own says what the statement did, also to
rows that the log does not have. A table whose definition cannot be known is not followed any further.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import pyarrow as pa
from typing_extensions import Self

from penstock._core import DecodeError, RangeDecoder, SchemaMismatch
from penstock.config import TablesConfig
from penstock.errors import (
    ConfigError,
    LogPurged,
    PenstockError,
    RelayLogCorrupt,
    TableError,
    TransientError,
)
from penstock.model.offset import LogRange, Offset, Split
from penstock.model.pattern import exactly
from penstock.model.plan import Park, TruncateTarget
from penstock.model.schema import DEFAULT_TYPES, TableId, TableSchema, TypeOptions
from penstock.model.schema_change import TableEffect, only_truncates
from penstock.model.statement_head import statement_head
from penstock.planning.statement_effects import effects_in
from penstock.relaylog.consumers import Consumer
from penstock.relaylog.files import LogPlace
from penstock.relaylog.index import recovered_end
from penstock.relaylog.outline import Outlines
from penstock.relaylog.reader import RelayLog, Statement
from penstock.relaylog.segment import damaged
from penstock.relaylog.segment_bytes import opened
from penstock.sources import statements_of
from penstock.sources.base import Source
from penstock.sources.statements import Statements
from penstock.sources.table_filter import TableFilter
from penstock.store.errors import ObjectMissing

RANGE_BYTES = 8 * 1024**2
"""Bytes of log that are read at once if much is waiting: enough that the cost of a call does not count, and
little memory. A larger transaction is one range, in many batches."""
SPLIT_BYTES = 32 * 1024**2
"""Bytes of a range that are decoded at once, so that a huge transaction, which is one range, does not fill
the memory."""

PAUSES_S = ((1.0, 0.001), (10.0, 0.005), (float("inf"), 0.02))
"""Seconds between two checks of the log's end (one system call), by the time since the last change."""
REFRESH_S = 0.2
"""Seconds between two looks into the folder, where new segments appear. Each reads the folder, and a new
segment is rare."""
OPEN_SECONDS = 60.0
"""Seconds that a reader waits for a relay log that is being created. A receiver that has just been started
needs some seconds; without one the wait is in vain."""

Start = int | Literal["earliest", "latest"]


@dataclass(frozen=True)
class ChangeBatch:
    """Changes of one table under one definition, in log order. The columns are those of the source, then
    `_change_type` (insert, update_preimage, update_postimage, delete), `_sequence` and
    `_commit_timestamp`."""

    table: TableId
    batch: pa.RecordBatch
    schema: TableSchema


@dataclass(frozen=True)
class TableChanged:
    """A statement that ends at `offset` changed the table. Later batches have `schema`.

    `schema` None: the table is gone, or cannot be followed any further. `unseen`: why rows may have changed
    without being in the log; empty: none have. `truncated`: the table has no rows any more.
    """

    table: TableId
    offset: Offset
    what: str
    statement: str
    schema: TableSchema | None
    unseen: str = ""
    truncated: bool = False


@dataclass(frozen=True)
class Committed:
    """Every item up to `offset`, a transaction end, was returned. Reading may begin there again."""

    offset: Offset


Item = ChangeBatch | TableChanged | Committed


@dataclass(frozen=True)
class Definitions:
    """The definitions of tables at one offset of the log."""

    at: Offset
    schemas: Mapping[TableId, TableSchema]


class ChangeReader:
    """An iterator over `Item`s from `start` on. It waits for new changes, unless it ends at the offset
    `until`. `stop` ends it from another thread.

    `definitions` must name every table that is read, even if they are true at another offset than `start`.
    `source` is asked for what statements do not say. None: only the log is used.

    `name`: the relay log keeps what the reader has not acknowledged (`acknowledge`), also while the reader
    does not run. The relay log knows it by `consumer_id`, a uuid. A reader without one continues as the
    reader of its name that does not run, if there is one. `owns_name`: see `relaylog.consumers.Consumer`.
    """

    def __init__(
        self,
        path: str | Path | LogPlace,
        definitions: Definitions,
        *,
        start: Start = "latest",
        until: int | None = None,
        types: TypeOptions = DEFAULT_TYPES,
        before_images: bool = True,
        name: str | None = None,
        consumer_id: str | None = None,
        owns_name: bool = True,
        source: Source | None = None,
    ) -> None:
        self._log = log = RelayLog.open(path if isinstance(path, LogPlace) else LogPlace.at(path))
        if name is not None and log.place.folder is None:
            raise ConfigError(
                f"No log is kept for {name} in the archive {log.place}: consumers are registered where the "
                "receiver runs.",
                hint="Leave the name out, or follow the relay log itself.",
            )
        self.offset = self._begin_at(start)
        """The offset where the next item begins."""
        self._consumer = (
            Consumer(log.path, name, needs=self.offset, id=consumer_id, owns_name=owns_name) if name else None
        )
        self._closing: list[Callable[[], None]] = []
        self._stopping = threading.Event()
        try:
            self._begin(definitions, start, until, types, before_images, source)
        except BaseException:
            self.close()  # the name is free for the next reader
            raise

    def _begin(
        self,
        definitions: Definitions,
        start: Start,
        until: int | None,
        types: TypeOptions,
        before_images: bool,
        source: Source | None,
    ) -> None:
        if self._log.refresh() and self._log.start > self.offset:  # deleted just before it was registered
            self.offset = self._begin_at(start)
        self._until = None if until is None else Offset(until)
        self._types = types.to_json()
        self._before_images = before_images
        self._live = dict(definitions.schemas)
        self._texts: dict[TableId, str] = {}
        patterns = TablesConfig(include=[exactly(table) for table in definitions.schemas])
        self._captured = TableFilter(patterns, fold_case=source is not None and source.catalog.fold_case)
        self._statements = self._of_source(source, types)
        if definitions.at <= self.offset:
            self._carry(definitions.at)
        else:
            self._refuse_changed(definitions.at, self._of_source(source, types))
        self._quiet_since = time.monotonic()

    @property
    def schemas(self) -> dict[TableId, TableSchema]:
        """The definitions at `offset`."""
        return dict(self._live)

    def acknowledge(self, offset: int) -> None:
        """Says that the log up to an offset is not needed any more. Until the first call, the log is kept
        from where a reader that continues was before."""
        if self._consumer is not None:
            self._consumer.needs(Offset(offset))

    @property
    def consumer_id(self) -> str | None:
        """The id by which the relay log knows the reader. None: it has no name."""
        return self._consumer.id if self._consumer is not None else None

    def stop(self) -> None:
        """Ends the iteration before the next range."""
        self._stopping.set()

    def closing(self, close: Callable[[], None]) -> None:
        """Called by `close`."""
        self._closing.append(close)

    def close(self) -> None:
        self.stop()
        if self._consumer is not None:
            self._consumer.close()
        while self._closing:
            self._closing.pop()()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Item]:
        while not self._stopping.is_set():
            stamp = self._log.stamp()
            with self._purged_explained():
                reach = self._next_range()
            if reach:
                yield from self._read(reach)
            elif self._until is not None and self.offset >= self._until:
                return
            else:
                self._wait(stamp)

    # where --------------------------------------------------------------------------------------------------

    def _begin_at(self, start: Start) -> Offset:
        if start == "latest":
            return self._log.end
        if start == "earliest":
            return self._log.start
        if not isinstance(start, int):
            raise ConfigError(
                f"A reader cannot start at {str(start)[:100]!r}.",
                hint="`start` is `latest`, `earliest`, or the offset of a `Committed`.",
            )
        offset = Offset(start)
        folder = self._log.place.folder
        if folder is not None and self._log.end < offset <= recovered_end(folder):
            # A loss of power took the last newline of the index. The receiver adds it when it begins.
            wait_for(lambda: self._log.refresh() >= offset, "the receiver to recover the relay log")
        if not self._log.start <= offset <= self._log.end:
            raise ConfigError(
                f"Offset {offset} is not in the relay log {self._log.place}, which holds "
                f"{self._log.start} to {self._log.end}."
            )
        try:
            known = self._log.committed_before(offset)
        except DecodeError:  # in the middle of an event
            known = self._log.start
        if known != offset:
            raise ConfigError(f"Offset {offset} is not the end of a transaction.")
        return offset

    def _of_source(self, source: Source | None, types: TypeOptions) -> Statements:
        if source is None:
            return statements_of(self._log, self._captured, types=types)
        return source.statements(self._captured, self._log, types=types, parks_cascades=True)

    def _carry(self, known_at: Offset) -> None:
        """Applies statements to definitions of `known_at` until they are those of the start."""
        for statement, effects in self._effects(LogRange(known_at, self.offset)):
            for effect in effects:
                self._apply(effect, statement)

    def _refuse_changed(self, known_at: Offset, statements: Statements) -> None:
        """Refuses a start before a change of the definitions. Only TRUNCATE leaves them as they are.
        `statements`: read backwards, so of no further use."""
        between = LogRange(self.offset, min(known_at, self._log.end))
        for statement in reversed([*self._log.statements(between)]):
            if statement.tables is not None:
                continue
            found = statements.touched(statement, set(self._live)) & self._live.keys()
            if not found or only_truncates(statements.effects(statement, dict(self._live)), found):
                continue
            names = ", ".join(sorted(map(str, found)))
            raise ConfigError(
                f"The definition of {names} changed at offset {statement.end}, behind the start "
                f"{self.offset}, and what it was before is not known.",
                hint=f"Start at {statement.end} or later, or give the definitions of the start.",
            )

    @contextlib.contextmanager
    def _purged_explained(self) -> Iterator[None]:
        """Log that was deleted because this reader was slow is no damage."""
        try:
            yield
        except (LogPurged, RelayLogCorrupt, ObjectMissing):
            with contextlib.suppress(PenstockError, OSError):
                self._log.refresh()
            if self._log.start <= self.offset:
                raise
            raise LogPurged(
                f"The relay log {self._log.place} begins at offset {self._log.start} by now, and this reader "
                f"is at {self.offset}: what is between was deleted.",
                hint="Read the tables themselves, and start again. For a reader with a `name`, the log is "
                "kept until it has acknowledged it; for others, `relay_log.keep_age` and `keep_size` say how "
                "long.",
                path=str(self._log.place),
                offset=int(self.offset),
            ) from None

    def _reach_bytes(self) -> int:
        """Bytes of log that are read at once if much is waiting."""
        return RANGE_BYTES

    def _next_range(self) -> LogRange | None:
        self._log.refresh()
        end = self._log.cut(self.offset, self._reach_bytes())
        if self._until is not None:
            end = min(end, self._until)
        return LogRange(self.offset, end) if end > self.offset else None

    def _wait(self, stamp: tuple[int, int]) -> None:
        """Waits a short time, or until the log has changed since `stamp`."""
        began = time.monotonic()
        pause = next(pause for limit, pause in PAUSES_S if began - self._quiet_since < limit)
        while time.monotonic() - began < REFRESH_S and not self._stopping.is_set():
            if self._log.stamp() != stamp:
                return
            time.sleep(pause)  # the pace of looking

    # reading ------------------------------------------------------------------------------------------------

    def _read(self, reach: LogRange) -> Iterator[Item]:
        self._quiet_since = time.monotonic()
        statement, effects = next(self._effects(reach), (None, []))
        if statement is not None:
            reach = LogRange(reach.start, statement.end)
        with self._purged_explained():
            yield from self._changes(reach)
        for effect in effects:
            assert statement is not None
            yield self._apply(effect, statement)
        self.offset = reach.end
        # A statement may be inside of a transaction, where no reader can begin.
        if statement is None or self._log.committed_before(reach.end) == reach.end:
            yield Committed(reach.end)

    def _changes(self, reach: LogRange) -> Iterator[Any]:
        """The row changes of a range in which each table has one definition."""
        tables = sorted(self._log.tables(reach).keys() & self._live.keys())
        splits = {table: self._log.splits(reach, table, bytes_aim=SPLIT_BYTES) for table in tables}
        outlines = Outlines(splits)
        for table in tables:
            yield from self._batches(self._live[table], splits[table], outlines)

    def _batches(
        self, schema: TableSchema, splits: Sequence[Split], outlines: Outlines
    ) -> Iterator[ChangeBatch]:
        text = self._texts.get(schema.table)
        if text is None:
            text = self._texts[schema.table] = schema.to_json()
        for split in splits:
            try:
                part = opened(split)
                decoder = RangeDecoder(
                    text, *part.place, preamble=part.preamble,
                    positions=outlines.positions(schema.table, split),
                    before_images=self._before_images, types=self._types, identity_images=True,
                )  # fmt: skip
                for batch in decoder:
                    if batch.num_rows:
                        yield ChangeBatch(schema.table, batch, schema)
            except DecodeError as error:
                raise explained(error, schema.table, split.path) from error

    # statements ---------------------------------------------------------------------------------------------

    def _effects(self, reach: LogRange) -> Iterator[tuple[Statement, list[TableEffect]]]:
        return effects_in(self._log, reach, self._statements, self._live, self._concerns)

    def _concerns(self, effect: TableEffect, statement: Statement) -> bool:
        begins = effect.created is not None and effect.table in self._captured
        return effect.table in self._live or begins

    def _apply(self, effect: TableEffect, statement: Statement) -> TableChanged:
        """Sets the definition from here on."""
        schema = effect.definition_after(self._live.get(effect.table))
        what, unseen = effect.what, effect.rereads or ""
        if effect.created is not None and effect.fills:
            unseen = "it begins with rows that the log does not have"
        for step in effect.steps:
            if isinstance(step, Park):
                unseen, what = step.reason, what or "cannot be followed"
        self._texts.pop(effect.table, None)
        if schema is None:
            self._live.pop(effect.table, None)
        else:
            self._live[effect.table] = schema
        truncated = any(isinstance(step, TruncateTarget) for step in effect.steps)
        head = statement_head(statement.sql)
        return TableChanged(effect.table, statement.end, what, head, schema, unseen, truncated)


def wait_for(condition: Callable[[], Any], what: str, *, seconds: float = OPEN_SECONDS) -> None:
    """Waits for something that the receiver does. Raises `TransientError` after `seconds`."""
    deadline = time.monotonic() + min(seconds, OPEN_SECONDS)
    while not condition():
        if time.monotonic() > deadline:
            raise TransientError(
                f"Waited {OPEN_SECONDS:.0f} s for {what} without success.",
                hint="Does the receiver run? `penstock run FILE` and `penstock receive FILE` have one.",
            )
        time.sleep(0.01)  # polls a condition, with a limit


def explained(error: DecodeError, table: TableId | str, path: str) -> PenstockError:
    if isinstance(error, SchemaMismatch):
        return TableError(
            f"Rows of table {table} cannot be read at offset {error.offset}: {error.reason}.",
            hint="If the reason names no cure: start behind it, with the present definition, or give the one "
            "of that time.",
            table=str(table),
            offset=error.offset,
        )
    return damaged(error, path)
