"""Stores captured tables, and the history of their definitions."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from penstock.model.offset import Offset
from penstock.model.plan import KeptColumns
from penstock.model.schema import TableId, TableSchema
from penstock.model.table import Change, TableState
from penstock.state.changes import HistoryAdded, StateChange, TablePut
from penstock.state.database import now_us
from penstock.state.layout import delete_unused_schemas, store_schema
from penstock.state.phases import PhaseColumns, columns_of, phase_of
from penstock.state.schemas import Schemas

log = logging.getLogger(__name__)

Condition = Callable[[TableState], bool]
_CONDITIONS_MAX = 32
"""Number of conditions whose tables are cached. The program has fewer; a condition that is created at each
call would otherwise fill the memory."""
HISTORY_ENTRIES_MAX = 20_000
"""Number of history entries that are kept: some MB. Older ones are deleted each time `HISTORY_STEP` more
entries have been added."""
HISTORY_STEP = 1000
"""Entries between two deletions: so adding one entry costs no search for old ones."""


class Tables(Schemas):
    """Access to the captured tables.

    The pipeline reads its tables many times a second, and parsing a thousand definitions takes a tenth of a
    second. So parsed tables are cached until a table is written.
    """

    def __init__(self, directory: Path, *, read_only: bool = False, owner: bool = False) -> None:
        self._puts = 0
        self._known: dict[TableId, TableState] = {}
        self._known_at: tuple[int, ...] | None = None
        self._parsed: dict[str, tuple[tuple[Any, ...], TableState]] = {}
        self._parsed_undone = 0
        self._found: dict[Condition, list[TableState]] = {}
        super().__init__(directory, read_only=read_only, owner=owner)

    def tables(self) -> dict[TableId, TableState]:
        with self._lock:
            return dict(self._tables())

    def tables_that(self, condition: Condition) -> list[TableState]:
        """Returns the tables for which `condition` returns True, ordered by name. The result is cached per
        function until a table changes. So `condition` must be a function of a module or a property's getter,
        and its result must depend on the table alone."""
        with self._lock:
            tables = self._tables()
            found = self._found.get(condition)
            if found is None:
                if len(self._found) >= _CONDITIONS_MAX:
                    self._found.clear()
                found = self._found[condition] = [state for state in tables.values() if condition(state)]
            return list(found)

    def _tables(self) -> dict[TableId, TableState]:
        at = (*self._others(), self._puts)
        if at != self._known_at:
            with self.reading():  # otherwise another process could delete a definition in between
                rows = self._rows("SELECT * FROM tables ORDER BY name")
                self._parsed = {row[0]: (row, self._parse(row)) for row in rows}
            self._known = {state.table: state for _, state in self._parsed.values()}
            self._found.clear()
            self._known_at = at
        return self._known

    def _parse(self, row: tuple[Any, ...]) -> TableState:
        if self._parsed_undone != self._undone:  # numbers of definitions may have been reused
            self._parsed, self._parsed_undone = {}, self._undone
        cached = self._parsed.get(row[0])
        if cached is not None and cached[0] == row:
            return cached[1]
        kept = KeptColumns(self.schema(row[16]), tuple(json.loads(row[14]))) if row[14] else None
        schema = self.schema(row[3])
        return self.read(lambda: _table(row, schema, kept))

    def brief_tables(self) -> list[TableState]:
        """Returns the tables without what takes long to read for many tables: definitions have only their
        version, and `kept_columns` is None. Returns complete tables if they are cached."""
        with self._lock:
            if (*self._others(), self._puts) == self._known_at:
                return list(self._known.values())
            rows = self._rows(
                "SELECT tables.*, version FROM tables JOIN schemas ON schemas.id = tables.schema "
                "ORDER BY name"
            )
        return [self.read(partial(_table, row[:-1], _brief(row[0], row[-1]), None)) for row in rows]

    def table(self, table: TableId) -> TableState | None:
        with self._lock:
            if (*self._others(), self._puts) == self._known_at:
                return self._known.get(table)
            # Reads only this table: a caller may write a thousand tables one after the other.
            with self.reading():
                rows = self._rows("SELECT * FROM tables WHERE name = ?", str(table))
                return self._parse(rows[0]) if rows else None

    def _apply(self, change: StateChange) -> None:
        match change:
            case TablePut(table):
                self._put(table)
            case HistoryAdded(entry, noted_us):
                self._add_entry(entry, noted_us)
            case _:
                super()._apply(change)

    def put_table(self, state: TableState) -> None:
        self.commit([TablePut(state)])

    def _put(self, state: TableState) -> None:
        kept, phase = state.kept_columns, columns_of(state.phase)
        row = (
            str(state.table), phase.status, state.start, store_schema(self._db, state.schema),
            phase.snapshot, int(state.written), state.last_epoch, phase.reason, phase.hint,
            phase.parked_at, state.replaces, state.rows_guess, state.target_reset,
            phase.resnapshot_pending, json.dumps(kept.sources) if kept else None, phase.resumes,
            store_schema(self._db, kept.schema) if kept else None,
        )  # fmt: skip
        columns = "schema, kept_schema, resnapshot_pending"
        before = self._rows(f"SELECT {columns} FROM tables WHERE name = ?", row[0])
        others = self._others()
        known = (*others, self._puts) == self._known_at and state.table in self._known
        self._puts += 1
        self._db.execute(f"INSERT OR REPLACE INTO tables VALUES ({', '.join('?' * 17)})", row)
        named = {number for *numbers, _ in before for number in numbers if number is not None}
        delete_unused_schemas(self._db, named - {row[3], row[16]})
        if known:  # the cache stays valid with this change
            self._parsed[row[0]] = (row, state)
            self._known[state.table] = state
            self._known_at = (*others, self._puts)
            self._found.clear()
        if phase.resnapshot_pending not in ("", *(pending for *_, pending in before)):
            log.warning("%s is read again: %s", state.table, phase.resnapshot_pending)

    def add_change(self, change: Change) -> None:
        """Appends an entry to the history of tables' definitions. The oldest entries are deleted, except each
        table's newest one."""
        self.commit([HistoryAdded(change, now_us())])

    def _add_entry(self, change: Change, noted_us: int) -> None:
        cursor = self._db.execute(
            "INSERT INTO history VALUES ((SELECT max(coalesce(max(id), 0), ?) + 1 FROM history), "
            "?, ?, ?, ?, ?, ?, ?, ?)",
            (
                self.began_after,
                str(change.table), change.version, change.offset, change.commit_us, noted_us,
                change.what, change.decision, change.statement,
            ),
        )  # fmt: skip
        number = int(cursor.lastrowid or 0)
        if number % HISTORY_STEP == 0:
            self._db.execute(
                "DELETE FROM history WHERE id <= ? AND id NOT IN (SELECT max(id) FROM history GROUP BY name)",
                (number - HISTORY_ENTRIES_MAX,),
            )

    def history(self, *, last_only: bool = False) -> list[Change]:
        """Returns the history of tables' definitions, oldest first. With `last_only`, returns only each
        table's newest entry."""
        newest = "WHERE id IN (SELECT max(id) FROM history GROUP BY name) " if last_only else ""
        rows = self._rows(
            "SELECT name, version, offset, what, decision, statement, commit_us, noted_us FROM history "
            f"{newest}ORDER BY id"
        )
        return [Change(TableId.parse(name), *rest) for name, *rest in rows]

    def changed_at(self, table: TableId) -> Offset:
        """Returns the offset of the newest entry in a table's history, or 0 if it has none."""
        rows = self._rows("SELECT offset FROM history WHERE name = ? ORDER BY id DESC LIMIT 1", str(table))
        return Offset(rows[0][0]) if rows else Offset(0)

    def version_at(self, table: TableId, offset: Offset) -> int | None:
        """Returns the version of a table's definition at an offset, as far as its history tells."""
        rows = self._rows(
            "SELECT version FROM history WHERE name = ? AND offset <= ? ORDER BY id DESC LIMIT 1",
            str(table),
            offset,
        )
        return int(rows[0][0]) if rows else None

    def last_change(self) -> int:
        """Returns the id of the newest history entry, or 0 if the history is empty."""
        return int(self._rows("SELECT coalesce(max(id), 0) FROM history")[0][0])

    def history_after(self, entry: int) -> list[tuple[int, Change]]:
        """Returns the history entries after the one with this id, oldest first, each with its id."""
        rows = self._rows(
            "SELECT id, name, version, offset, what, decision, statement, commit_us, noted_us FROM history "
            "WHERE id > ? ORDER BY id",
            entry,
        )
        return [(number, Change(TableId.parse(name), *rest)) for number, name, *rest in rows]


def _brief(name: str, version: int) -> TableSchema:
    return TableSchema(TableId.parse(name), (), (), version)


def _table(row: tuple[Any, ...], schema: TableSchema, kept: KeptColumns | None) -> TableState:
    _, status, start, _, snapshot, written, last_epoch, reason, hint, parked_at, *rest = row
    replaces, rows_guess, target_reset, pending, _, resumes, _ = rest
    phase = phase_of(PhaseColumns(status, snapshot, reason, hint, parked_at, pending, resumes))
    return TableState(
        schema, start, phase, bool(written), last_epoch, replaces, rows_guess, target_reset, kept
    )
