"""Changes at which a query ends: reported once, when the query has everything before them.

Whoever starts the query again after that has read it. A query of one table goes on with the table's new
columns. One of many tables goes on without a table that cannot be followed.
"""

from __future__ import annotations

import json
from typing import Protocol

from penstock.datasource.options import CdcOptions
from penstock.datasource.partitions import arrow_schema
from penstock.errors import TableError
from penstock.model.schema import TableSchema
from penstock.model.table import Dropped, Parked, Removed, TableState
from penstock.state import StateStore

REPORTED = "mysql_cdc definition"
"""Key in the state: the definition that queries over one table have."""
LEFT_OUT = "mysql_cdc left out"
"""Key in the state: tables that cannot be followed, and the offset at which that was reported."""


class Ends(Protocol):
    def begin(self) -> None:
        """Called when the stream is opened, once its tables are known."""

    def is_there(self) -> bool:
        """Whether the query cannot go on as it is."""

    def report(self) -> TableError:
        """The error that ends the query. Stores that it was reported, so that the next query continues."""


def ends_of(options: CdcOptions, state: StateStore) -> Ends:
    return EndsOfMany(options, state) if options.is_envelope else EndsOfOne(options, state)


class EndsOfOne:
    """A query of one table ends when its columns change, and when it cannot be followed."""

    def __init__(self, options: CdcOptions, state: StateStore) -> None:
        self._options = options
        self._state = state

    def begin(self) -> None:
        table = self._state.table(self._options.table_id)
        if table is not None and self._state.meta(REPORTED) is None:
            self._state.set_meta(REPORTED, table.schema.to_json())

    def is_there(self) -> bool:
        table = self._state.table(self._options.table_id)
        if table is None or table.gone or table.parked is not None:
            return True
        known, types = TableSchema.from_json(self._state.meta(REPORTED) or "{}"), self._options.types
        return not arrow_schema(known, types).equals(arrow_schema(table.schema, types))

    def report(self) -> TableError:
        table = self._state.table(self._options.table_id)
        if table is None or table.gone or table.parked is not None:
            reason, hint = "it is gone.", ""
            if table is not None and isinstance(table.phase, Dropped | Removed):
                reason = table.phase.reason or reason
            elif table is not None and table.parked is not None:
                reason, hint = _why(table.parked)
            return TableError(
                f"{self._options.table} cannot be followed any further: {reason}",
                hint=f"{hint} Begin anew, with a new folder in `state` and a new checkpoint.".strip(),
                table=self._options.what,
            )
        changes = [one for one in self._state.history() if one.table == table.table]
        what = f" at offset {changes[-1].offset}: {changes[-1].what}" if changes else ""
        self._state.set_meta(REPORTED, table.schema.to_json())
        return TableError(
            f"The columns of {self._options.table} have changed{what}. The query has every change before "
            "that.",
            hint="Load and start the query again, with the same checkpoint: it goes on with the new columns.",
            table=self._options.what,
        )


class EndsOfMany:
    """A query of many tables ends when one of them cannot be followed."""

    def __init__(self, options: CdcOptions, state: StateStore) -> None:
        self._state = state

    def begin(self) -> None:
        pass

    def is_there(self) -> bool:
        return bool(self._new())

    def report(self) -> TableError:
        found = self._new()
        told = self._told() | {str(one.table): int(parked.at) for one, parked in found}
        self._state.set_meta(LEFT_OUT, json.dumps(told))
        reasons = "; ".join(f"{one.table}: {_why(parked)[0]}" for one, parked in found)
        return TableError(
            f"Tables cannot be followed any further. {reasons}",
            hint="The query has every change before that. Start it again, with the same checkpoint: it goes "
            "on without them. To have them, begin anew, with a new folder in `state` and a new checkpoint.",
            table=str(found[0][0].table) if found else "",
        )

    def _told(self) -> dict[str, int]:
        found: dict[str, int] = json.loads(self._state.meta(LEFT_OUT) or "{}")
        return found

    def _new(self) -> list[tuple[TableState, Parked]]:
        """Tables that cannot be followed, and that were not reported yet."""
        told = self._told()
        return [
            (one, one.parked)
            for one in self._state.tables_that(_is_parked)
            if one.parked is not None and told.get(str(one.table)) != int(one.parked.at)
        ]


def _is_parked(table: TableState) -> bool:
    return table.parked is not None


def _why(parked: Parked) -> tuple[str, str]:
    """The reason, and what to do. Advice about a pipeline file is left out, because a query has none."""
    _, is_refused, reason = parked.reason.rpartition(" of the pipeline file asks for: ")
    return (reason, "") if is_refused else (parked.reason, parked.hint)
