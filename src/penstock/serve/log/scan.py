"""Reads the entries of a view from the log, as pieces.

A scan is used by one thread at a time. What it has read once, it reads again from the same place: entries
depend only on the log, the definitions and the filter.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from penstock._core import DecodeError, EncodedMessages, LogEncoder
from penstock.model.offset import Offset
from penstock.serve.batches import Piece, Place
from penstock.serve.log.definitions import Redefined
from penstock.serve.log.served_log import ServedLog, explained
from penstock.serve.log.statements import statement_entries
from penstock.serve.log.view import View

_NO_TABLE = [("", "")]
"""No table has this name, so only statements are read."""


class Scan(Protocol):
    """Reads the entries behind a place. `passed`: everything up to here was read."""

    passed: Offset

    def read(self, size: int, /) -> list[Piece] | None:
        """The next pieces, which may be none, of about `size` bytes. None: at the end of the log. Raises
        `PenstockError`."""


def scan_of(served: ServedLog, view: View, place: Place) -> Scan:
    if view.format == "arrow":
        from penstock.serve.log.typed_scan import TypedScan  # Arrow is large

        return TypedScan(served, view, place)
    return EntryScan(served, view, place)


class EntryScan:
    """`Scan` for entries of Canal and JSON."""

    def __init__(self, served: ServedLog, view: View, place: Place) -> None:
        self._served = served
        self._view = view
        self._format_options = json.dumps({"faithful": view.faithful} if view.format == "canal-entry" else {})
        columns = [(*name.split(".", 1), keep, names) for name, keep, names in view.columns]
        self._columns: dict[str, Any] = {"columns": columns} if columns else {}
        self._skip = place.entries
        self._encoder: LogEncoder | None = None
        self._part_end = place.offset
        self._changes: deque[Redefined] = deque()
        self._base = place.offset
        """The offset behind which entries are counted, and how many there were."""
        self._given = 0
        self._is_open = False
        """Whether the last transaction was given in part, and more of it follows."""
        self._open_end: Offset | None = None
        """Where the transaction ends whose statement was just given; rows of it may follow."""
        self.passed = place.offset

    def read(self, size: int) -> list[Piece] | None:
        if self._encoder is None:
            part = self._served.part(self.passed, self._view.tables)
            if part is None:
                return None
            if not part.parts:
                self._close(part.range.end)
                self.passed = part.range.end
                return []
            self._part_end, self._changes = part.range.end, deque(part.changes)
            self._encoder = LogEncoder(
                part.parts, self._view.format, options=self._format_options, schemas=part.schemas,
                tables=[(table.database, table.table) for table in part.tables] or _NO_TABLE, **self._columns,
            )  # fmt: skip
        try:
            step = self._encoder.read(size)
        except DecodeError as error:
            self._encoder = None
            raise explained(error) from error
        if step is None:
            self._encoder = None
            self._close(self._part_end)
            self.passed = self._part_end
            return []
        if isinstance(step, EncodedMessages):
            pieces = list(self._of_messages(step))
        else:
            pieces = [piece for one in step for piece in self._of_statement(one)]
        return pieces

    def _close(self, end: Offset) -> None:
        """Counts entries from `end` on, where one transaction ends and the next one begins."""
        self._base, self._given, self._open_end, self._skip = end, 0, None, 0
        self._is_open = False

    def _of_statement(self, statement: dict[str, object]) -> Iterator[Piece]:
        end = Offset(int(str(statement["end"])))
        if self._open_end is not None and self._open_end != end:
            self._moves(self._open_end)
        self._open_end = end
        while self._changes and self._changes[0].offset <= end:
            one = self._changes.popleft()
            assert self._encoder is not None
            text = None if one.schema is None else one.schema.to_json()
            self._encoder.define(one.table.database, one.table.table, text)
        if not self._view.ddl and not self._view.row_statements:
            return
        entries = statement_entries(
            statement,
            lambda table: self._served.has(table, self._view.tables),
            ddl=self._view.ddl,
            row_statements=self._view.row_statements,
            format=self._view.format,
        )
        yield self._piece(entries, None, until=end, commit_us=int(str(statement["commit_us"] or 0)))

    def _of_messages(self, step: EncodedMessages) -> Iterator[Piece]:
        begin, rows = 0, not self._view.transaction_entries and self._view.format != "json"
        for transaction_end, last, commit_us in step.ends():
            end = Offset(transaction_end)
            if self._open_end is not None and self._open_end != end:
                self._moves(self._open_end)
            yield self._piece(step.values(begin, last, rows=rows), end, commit_us=commit_us)
            self._moves(end)
            self._is_open = False
            begin = last
        if begin < len(step):
            commit_us = 0
            if self._served.is_merged and not self._is_open:
                [(_, _, _, sequence)] = step.messages(len(step) - 1)
                commit_us = self._served.commit_us_of(Offset(sequence))
            self._is_open = True
            yield self._piece(step.values(begin, rows=rows), None, commit_us=commit_us)

    def _piece(
        self, entries: Sequence[bytes], end: Offset | None, until: Offset | None = None, *, commit_us: int = 0
    ) -> Piece:
        """A piece without the entries that were given before."""
        count = min(self._skip, len(entries))
        self._skip -= count
        start = Place(self._base, self._given + count)
        self._given += len(entries)
        return Piece(start, entries[count:] if count else entries, end, until, commit_us)

    def _moves(self, base: Offset) -> None:
        """Counts entries from the end of a transaction on. Does nothing while entries still have to be
        skipped."""
        self._open_end = None
        if not self._skip:
            self._base, self._given = base, 0
