"""Whole transactions over all tables, in the order of the log, with their rows as messages of a format.

The log is cut between transactions into ranges, which are decoded side by side and returned in order. A range
ends at a statement that changes a followed table, like those of `ChangeReader`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock._core import DecodeError, EncodedMessages, LogEncoder
from penstock.changes.reader import ChangeReader, explained
from penstock.model.offset import LogRange, Offset
from penstock.model.schema import TableId
from penstock.relaylog.side_by_side import PART_BYTES, SideBySide

if TYPE_CHECKING:
    from penstock._core import LogPart

READ_BYTES = 8 * 1024**2
"""Bytes of messages that are in one piece of memory."""


@dataclass(frozen=True)
class Message:
    """`table` None: the begin or the end of a transaction. `value` None: a tombstone. `sequence`: the offset
    of the change in the log."""

    table: TableId | None
    key: bytes | None
    value: bytes | None
    sequence: int


@dataclass(frozen=True)
class Transaction:
    """A transaction that changed a followed table. It ends at `offset`. `id`: its name at the source.

    `commit_us`: microseconds since 1970, of the commit where the log has it, else of the statement.
    `position`: where it begins in the source's log."""

    offset: Offset
    id: str | None
    commit_us: int
    xid: int | None
    thread_id: int | None
    position: str
    messages: tuple[Message, ...]


class LogOrderReader(ChangeReader):
    """An iterator over `Transaction`s, and over the same `TableChanged` and `Committed` as `ChangeReader`."""

    def __init__(self, *arguments: Any, format: str = "json", options: str = "{}", **others: Any) -> None:
        super().__init__(*arguments, **others)
        self._format, self._options = format, options
        self._threads = SideBySide()
        self.closing(self._threads.close)

    def _reach_bytes(self) -> int:
        return PART_BYTES * self._threads.threads

    def _changes(self, reach: LogRange) -> Iterator[Transaction]:
        return self._threads.run(self._log, reach, self._decode, PART_BYTES) if self._live else iter(())

    def _decode(self, parts: list[LogPart]) -> Iterator[Transaction]:
        encoder = LogEncoder(
            parts, self._format, options=self._options,
            schemas=[schema.to_json() for schema in self._live.values()],
            tables=[(table.database, table.table) for table in self._live],
        )  # fmt: skip
        begun: list[Message] = []
        try:
            while (step := encoder.read(READ_BYTES)) is not None:
                # What statements do is known before (`_effects`).
                if isinstance(step, EncodedMessages):
                    tables = [TableId(*name) for name in encoder.tables]
                    yield from _transactions(step, tables, begun)
        except DecodeError as error:
            raise explained(error, getattr(error, "table", ""), error.path or "") from error


def _transactions(
    step: EncodedMessages, tables: list[TableId], begun: list[Message]
) -> Iterator[Transaction]:
    """The transactions that end in a step. `begun`: messages of one that began in an earlier step, and then
    those of one that ends in a later step."""
    begin = 0
    for fields in step.transactions():
        end = fields["messages_end"]
        messages = (*begun, *_messages(step, tables, begin, end))
        begun.clear()
        begin = end
        yield Transaction(
            Offset(fields["end"]), fields["id"], fields["commit_us"], fields["xid"],
            fields["thread_id"], fields["position"], messages,
        )  # fmt: skip
    begun += _messages(step, tables, begin, len(step))


def _messages(step: EncodedMessages, tables: list[TableId], begin: int, end: int) -> Iterator[Message]:
    for number, key, value, sequence in step.messages(begin, end):
        yield Message(None if number is None else tables[number], key, value, sequence)
