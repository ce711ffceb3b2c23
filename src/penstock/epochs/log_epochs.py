"""Executes plans for a sink that takes messages (`LogSink`): an epoch whole, over all tables.

An epoch's messages come in this order: statements that come before its rows, the row events of all tables in
the order of the log, the rows of placed chunks, and the statement that ends the epoch, with the definitions
that it changed. An epoch that is repeated has the same messages, but for the time at which rows of a snapshot
are written, which they tell.

The driver encodes and writes them. Encoding is done by the core, in as many threads as there are cores, and
takes less time than the client needs to send the messages.

Rows of tables with `transforms` are changed before they become messages (`ruled_log.py`).

A table that cannot go on is left out of the epoch and parked. The commit has a note of it: an epoch that is
repeated after a crash finds the note, and parks the same tables.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock._core import DecodeError, EncodedMessages, LogEncoder, RowEncoder, arrow_schema
from penstock.encode.bootstrap import Phase, bootstrap_message
from penstock.encode.truncation import At, truncated
from penstock.epochs import log_definitions, ruled_log, tasks
from penstock.epochs.incomplete_images import IncompleteImages
from penstock.epochs.log_definitions import ShownChange
from penstock.epochs.ruled_log import RuledSink, Rules
from penstock.epochs.table_outcome import TableOutcome, outcome_of, written_by_another
from penstock.errors import TableError, rebuilt
from penstock.failures.crossing import core_error
from penstock.failures.messages import at_source
from penstock.model.change import CHANGE_TYPE, own_name
from penstock.model.offset import LogRange, Offset
from penstock.model.plan import (
    ApplyEvents,
    DefinitionChange,
    EpochPlan,
    Park,
    PlaceChunks,
    Step,
    TablePlan,
    TruncateTarget,
)
from penstock.model.schema import TableId, TableSchema, TypeOptions
from penstock.relaylog.files import LogPlace
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment import damaged
from penstock.relaylog.segment_format import format_of
from penstock.relaylog.side_by_side import PART_BYTES, SideBySide
from penstock.sinks.base import Commit, EncodedBatch, LogMessage, LogSink, name_at_target
from penstock.snapshot.staging import Staging
from penstock.state import StateStore
from penstock.state.dead_letters import Letters

log = logging.getLogger(__name__)

READ_BYTES = 1024**2
"""Bytes of messages that are in one piece of memory."""
ROWS_AT_ONCE = 2000
"""Rows of a snapshot that become messages at once, which limits their memory."""

Messages = Sequence[LogMessage] | EncodedBatch


@dataclass(frozen=True)
class _Wanted:
    """A table whose events are encoded, from an offset on. `rules`: what is done to its rows."""

    schema: TableSchema
    start: Offset
    rules: Rules | None


@dataclass(frozen=True)
class _Attempt:
    """One attempt to write an epoch: without the tables that were refused before. `letters`: the rows that
    could not be transformed."""

    plan: EpochPlan
    tables: Sequence[TablePlan]
    changes: Sequence[ShownChange]
    letters: Letters


class LogEpochs:
    """Writes epochs to a `LogSink`. `place`: that of the relay log. `schema_ids`: see `_core.LogEncoder`. One
    thread calls `run`."""

    def __init__(
        self,
        sink: LogSink,
        state: StateStore,
        place: LogPlace,
        staging: Staging,
        images: IncompleteImages,
        types: TypeOptions,
        schema_ids: Callable[[dict[str, Any]], int] | None = None,
    ) -> None:
        self._sink = sink
        self._state = state
        self._place = place
        self._staging = staging
        self._images = images
        self._types = types
        self._schema_ids = schema_ids
        self._log: RelayLog | None = None
        self._messages_of_log = 0
        """Of the epoch's row events, for all tables."""
        self._threads = SideBySide()

    def run(self, plan: EpochPlan, *, is_first: bool) -> list[TableOutcome]:
        """Writes the epoch, unless it is written already. `is_first`: nobody can have written it before."""
        commit = Commit(self._state.uuid, plan.epoch)
        refused: dict[TableId, TableError] = {}
        untold: set[TableId] = set()
        while True:
            part = [table for table in plan.tables if table.table not in refused]
            note = json.dumps({str(table): one.to_json() for table, one in refused.items()})
            told = log_definitions.told(plan, refused.keys() | untold)
            try:
                changes = log_definitions.shown(told, self._rules_of)
                attempt = _Attempt(plan, part, changes, Letters())
                found = self._sink.write_epoch(
                    commit,
                    self._with_messages(part, changes),
                    self._messages(attempt, commit),
                    note if refused else "",
                )
                break
            except TableError as error:
                if (table := self._named(error, part)) is not None:
                    refused[table] = at_source(error, str(self._name(table)), str(table))
                elif (new := self._named(error, told)) is not None:
                    # A table that has no steps yet. It is parked when it has.
                    log.warning("the changed definition of %s is not sent: %s", new, error)
                    untold.add(new)
                else:
                    raise
        if found is not None and is_first:
            return [_foreign(table, plan) for table in plan.tables]
        if found:
            refused = _of_note(found, plan.tables)
        outcomes = [_outcome(table, refused.get(table.table)) for table in plan.tables]
        if outcomes and not found:
            outcomes[0].changes = self._messages_of_log  # of all tables: they are written together
        return outcomes

    # messages -----------------------------------------------------------------------------------------------

    def _messages(self, attempt: _Attempt, commit: Commit) -> Iterator[Messages]:
        plan, tables = attempt.plan, attempt.tables
        at = self._at(plan.range.end)
        for table in tables:
            if first := _before_rows(table):
                yield from self._statements(table, first, self._beginning(table, plan.range, at))
        wanted = {
            table.table: _Wanted(
                table.schema, max(table.start, plan.range.start), self._rules_of(table.schema)
            )
            for table in tables
            if any(isinstance(step, ApplyEvents) for step in table.steps)
        }
        self._messages_of_log = 0
        for messages in self._events(plan.range, wanted, attempt.letters) if wanted else ():
            self._messages_of_log += _length(messages)
            yield messages
        read = replace(at, commit_us=time.time_ns() // 1000)
        for table in tables:
            yield from self._rows(table, read, attempt.letters)
        for table in tables:
            yield from self._statements(table, table.steps[len(_before_rows(table)) :], at)
        changes = attempt.changes
        yield from log_definitions.messages(changes, self._sink, self._opened(plan.range.end), plan.range)
        if isinstance(self._sink, RuledSink):
            attempt.letters.write(self._sink.letters, commit)

    # tables as messages show them

    def _rules_of(self, schema: TableSchema) -> Rules | None:
        return self._sink.rules(schema) if isinstance(self._sink, RuledSink) else None

    def _shown(self, schema: TableSchema) -> TableSchema:
        """The table as its messages show it."""
        rules = self._rules_of(schema)
        return schema if rules is None else rules.shown

    def _name(self, table: TableId) -> TableId:
        """The name that messages have for a table."""
        return name_at_target(self._sink, table)

    def _with_messages(
        self, tables: Sequence[TablePlan], changes: Sequence[ShownChange]
    ) -> list[TableSchema]:
        """The tables that have messages in the epoch."""
        shown = [change.shown for change in changes]
        shown += [self._shown(table.schema) for table in tables if _has_messages(table)]
        return list({schema.table: schema for schema in shown}.values())

    def _named(self, error: TableError, tables: Sequence[TablePlan | DefinitionChange]) -> TableId | None:
        """The table that an error is about, whatever name it has there."""
        name = error.details.get("table")
        known = [one.schema.table for one in tables]
        at_source = next((table for table in known if str(table) == name), None)
        return at_source or next((table for table in known if str(self._name(table)) == name), None)

    def _at(self, offset: Offset) -> At:
        log = self._opened(offset)
        place, commit_us = log.position_at(offset).text, log.commit_time_us_at(offset) or 0
        return At(int(offset), commit_us, place, format_of(log.facts))

    def _opened(self, until: Offset) -> RelayLog:
        if self._log is None:
            self._log = RelayLog.open(self._place)
        if self._log.end < until:
            self._log.refresh()
        return self._log

    def _beginning(self, table: TablePlan, reach: LogRange, end: At) -> At:
        """The place before the table's rows in an epoch. A consumer that compares places must not take rows
        of the epoch for older than what comes before them."""
        at = self._at(max(table.start, reach.start))
        return at if at.commit_us else replace(at, commit_us=end.commit_us)

    def _statements(self, table: TablePlan, steps: Sequence[Step], at: At) -> Iterator[Messages]:
        options = json.loads(self._sink.format_options)
        prefix = options.get("topic_prefix", "")
        for step in steps:
            if isinstance(step, Park):
                return
            if isinstance(step, TruncateTarget):
                offset = at.offset if step.sequence is None else int(step.sequence)
                place = replace(at, offset=offset, commit_us=step.timestamp_us or at.commit_us)
                name = self._name(table.table)
                value = truncated(self._sink.format, prefix, name, place, table.schema.catalog)
                if value is not None and self._sink.format == "debezium" and options.get("schemas"):
                    value = b'{"schema":%s,"payload":%s}' % (self._envelope(table.schema, at), value)
                if value is not None:
                    yield [(name, None, value, offset)]
                else:
                    log.warning(
                        "%s was emptied at offset %d, and the format %s has no message for that",
                        table.table, offset, self._sink.format,
                    )  # fmt: skip

    def _envelope(self, schema: TableSchema, at: At) -> bytes:
        """Connect's schema of the table's messages. It does not depend on the row."""
        shown = self._shown(schema)
        fields = arrow_schema(shown.to_json(), "rows", self._types.to_json())
        row = pa.RecordBatch.from_pydict({field.name: pa.nulls(1, field.type) for field in fields})
        found = self._row_encoder(shown, at).encode(row, at_us=0)
        return json.dumps(json.loads(found.lines(False))["schema"], separators=(",", ":")).encode()

    # events

    def _events(
        self, reach: LogRange, wanted: dict[TableId, _Wanted], letters: Letters
    ) -> Iterator[Messages]:
        part_bytes = ruled_log.part_bytes([one.rules for one in wanted.values()], PART_BYTES)
        log = self._opened(reach.end)
        return self._threads.run(log, reach, lambda parts: self._encode(parts, wanted, letters), part_bytes)

    def _encode(
        self, parts: list[Any], wanted: dict[TableId, _Wanted], letters: Letters
    ) -> Iterator[Messages]:
        names = {table: self._name(table) for table in wanted}
        routes = [(table, self._sink.route_of(name)) for table, name in names.items()]
        rules = {table: one.rules for table, one in wanted.items() if one.rules is not None}
        encoder = LogEncoder(
            parts, self._sink.format, options=self._sink.format_options,
            schemas=[one.schema.to_json() for one in wanted.values()],
            tables=[(table.database, table.table) for table in wanted], schema_ids=self._schema_ids,
            routes=[(table.database, table.table, route) for table, route in routes if route is not None],
            rules=ruled_log.arguments(rules),
        )  # fmt: skip
        known = {(table.database, table.table): table for table in wanted}
        begin = parts[0][1] + parts[0][2] if parts else 0
        late = {names[table]: one.start for table, one in wanted.items() if one.start > begin}
        try:
            for step in ruled_log.steps(encoder, rules, letters, READ_BYTES):
                # The planner knows what statements do.
                if isinstance(step, EncodedMessages):
                    yield EncodedBatch(step, [names[known[name]] for name in encoder.tables], late)
        except DecodeError as error:
            raise _explained(error, names) from error

    # rows of snapshots

    def _rows(self, table: TablePlan, at: At, letters: Letters) -> Iterator[Messages]:
        first = 0
        for step in table.steps:
            if isinstance(step, Park):
                return
            if not isinstance(step, PlaceChunks):
                continue
            rules, shown = self._rules_of(table.schema), self._shown(table.schema)
            encoder = self._row_encoder(shown, at)
            placed = self._placed(table, step, at)
            yield from self._bootstrap(shown, at, "start")
            for batch in placed if rules is None else ruled_log.placed(placed, rules, letters):
                for begin in range(0, batch.num_rows, ROWS_AT_ONCE):
                    rows = batch.slice(begin, ROWS_AT_ONCE)
                    yield self._encoded(encoder, shown, rows, first, at)
                    first += rows.num_rows
            yield from self._bootstrap(shown, at, "complete")

    def _placed(self, table: TablePlan, step: PlaceChunks, at: At) -> Iterator[pa.RecordBatch]:
        """The placed rows that exist at the source. For a key that a partial snapshot did not find there is
        no row: it was deleted, and the log has a message for that."""
        schema = table.schema
        defaults = self._images.omitted(schema) if schema.key and step.scans else None
        placed = tasks.place(
            tasks.PlaceTask(
                schema.to_json(), self._staging, step.chunks, step.scans, Offset(at.offset), "changelog",
                self._types, defaults,
            )
        )  # fmt: skip
        for batch in placed:
            kinds = batch.column(own_name(CHANGE_TYPE, batch.schema.names))
            if (rows := batch.filter(pc.equal(kinds, "read"))).num_rows:
                yield rows

    def _row_encoder(self, schema: TableSchema, at: At) -> RowEncoder:
        try:
            return RowEncoder(
                schema.to_json(), self._sink.format, options=self._sink.format_options,
                schema_ids=self._schema_ids, route=self._sink.route_of(schema.table),
                segment_format=at.segment_format,
            )  # fmt: skip
        except DecodeError as error:
            raise core_error(error, str(schema.table)) from error

    def _encoded(
        self, encoder: RowEncoder, schema: TableSchema, rows: pa.RecordBatch, first: int, at: At
    ) -> Messages:
        try:
            found = encoder.encode(
                rows, at_us=at.commit_us, place=at.place, sequence=at.offset, first_row=first
            )  # fmt: skip
        except DecodeError as error:
            raise core_error(error, str(schema.table)) from error
        return EncodedBatch(found, [schema.table])

    def _bootstrap(self, schema: TableSchema, at: At, phase: Phase) -> Iterator[Messages]:
        """Maxwell's messages around the rows of a snapshot."""
        if self._sink.format == "maxwell":
            options, id = self._sink.format_options, str(at.offset)
            message = bootstrap_message(schema, phase, at_us=at.commit_us, options=options, id=id)
            yield [(schema.table, *message, at.offset)]


def _before_rows(table: TablePlan) -> Sequence[Step]:
    """The steps before the first rows of the epoch; none if it has no rows of the table."""
    first = tuple(takewhile(lambda step: not isinstance(step, ApplyEvents | PlaceChunks), table.steps))
    return first if len(first) < len(table.steps) else ()


def _has_messages(table: TablePlan) -> bool:
    return any(isinstance(step, ApplyEvents | PlaceChunks | TruncateTarget) for step in table.steps)


def _explained(error: DecodeError, names: Mapping[TableId, TableId]) -> Exception:
    """The error with the source's names of tables. `names`: for each table, the name that messages have for
    it."""
    name = getattr(error, "table", None)
    table = next((one for one, shown in names.items() if name in (str(one), str(shown))), None)
    if table is not None:
        return core_error(error, str(table))
    return damaged(error)


def _of_note(note: str, tables: Sequence[TablePlan]) -> dict[TableId, TableError]:
    """The tables that were left out of an epoch that is written."""
    fields = json.loads(note)
    found = {}
    for table in tables:
        if (of_table := fields.get(str(table.table))) is not None:
            error = rebuilt(of_table, {"TableError": TableError}, unknown=TableError)
            assert isinstance(error, TableError)
            found[table.table] = error
    return found


def _foreign(table: TablePlan, plan: EpochPlan) -> TableOutcome:
    outcome = TableOutcome(table.table)
    outcome.parked = written_by_another(table.table, plan.epoch)
    return outcome


def _length(messages: Messages) -> int:
    return len(messages.encoded if isinstance(messages, EncodedBatch) else messages)


def _outcome(table: TablePlan, refused: TableError | None) -> TableOutcome:
    """The outcome of the epoch for a table."""
    if refused is None:
        return outcome_of(table)
    return TableOutcome(table.table, parked=refused, failed=table.steps[0])
