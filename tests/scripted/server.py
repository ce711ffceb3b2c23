"""The server that plays a script: tables in memory, and the log of what was committed."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import Any

from tests.scripted import log_bytes
from tests.scripted.script import (
    AddColumn,
    Definition,
    Delete,
    Drop,
    DropColumn,
    Insert,
    Marker,
    Rewrite,
    Row,
    RowChange,
    Transaction,
    Truncate,
    Update,
    as_text,
)

from penstock._core import SeriesSet
from penstock.model.offset import SourcePosition
from penstock.model.schema import TableId, TableSchema
from penstock.relaylog import segment_format

SERVERS: dict[str, Server] = {}
"""The servers of this process by their addresses, which hosts and pipeline files name."""


@dataclass
class Server:
    """A server that plays a script. Each transaction and each statement is one entry of `committed`. Its
    number is its place there, from 1."""

    tables: dict[TableId, TableSchema]
    uuid: uuid.UUID = field(default_factory=uuid.uuid4)
    rows: dict[TableId, dict[Any, Row]] = field(default_factory=dict)
    committed: list[list[bytes]] = field(default_factory=list)
    length: int = 4
    """The length of the log in bytes."""
    meanwhile: dict[TableId, list[Transaction | Definition]] = field(default_factory=dict)
    """What happens after the rows of a table's next chunk were read, and before its high watermark is
    taken."""

    def __post_init__(self) -> None:
        SERVERS[self.address] = self
        for table in self.tables:
            self.rows.setdefault(table, {})

    @property
    def address(self) -> str:
        return f"script-{self.uuid}"

    @property
    def executed(self) -> str:
        """The executed transactions, in the form of the relay log's index."""
        return f"{self.uuid}-{len(self.committed)}" if self.committed else ""

    @property
    def end(self) -> SourcePosition:
        return segment_format.number_position(self.length)

    def has_executed(self, gtids: str) -> bool:
        return SeriesSet(gtids).issubset(SeriesSet(self.executed))

    def run(self, item: Transaction | Definition) -> None:
        if isinstance(item, Transaction):
            self._transaction([change for change in item.changes if not isinstance(change, Marker)])
        else:
            self._statement(item)

    @property
    def greeting(self) -> list[bytes]:
        """What comes at the beginning of a connection, before the transactions."""
        return [log_bytes.moved(4)]

    def _transaction(self, changes: list[RowChange]) -> None:
        numbers = {table: 100 + place for place, table in enumerate(self.tables)}
        touched = list(dict.fromkeys(change.table for change in changes))
        bodies = [
            (log_bytes.DEFINITION, log_bytes.definition(numbers[table], self.tables[table]))
            for table in touched
        ]
        for change in changes:
            schema = self.tables[change.table]
            kind, images = self._apply(change)
            bodies.append((log_bytes.ROWS, log_bytes.rows(numbers[change.table], schema, kind, images)))
        self._commit(bodies)

    def _apply(self, change: RowChange) -> tuple[int, list[Row]]:
        held = self.rows[change.table]
        match change:
            case Insert(row=row):
                assert row[0] not in held, f"{row} is there already"
                held[row[0]] = row
                return log_bytes.INSERT, [row]
            case Update(key=key, row=row):
                before = held.pop(key)
                held[row[0]] = row
                return log_bytes.UPDATE, [before, row]
            case Delete(key=key):
                return log_bytes.DELETE, [held.pop(key)]

    def _statement(self, statement: Definition) -> None:
        table = statement.table
        schema, held = self.tables[table], self.rows[table]
        match statement:
            case AddColumn(column=column):
                self.tables[table] = replace(schema, columns=(*schema.columns, column))
                self.rows[table] = {key: (*row, None) for key, row in held.items()}
            case DropColumn(name=name):
                place = [one.name for one in schema.columns].index(name)
                self.tables[table] = replace(schema, columns=_without(schema.columns, place))
                self.rows[table] = {key: _without(row, place) for key, row in held.items()}
            case Truncate():
                held.clear()
            case Drop():
                del self.tables[table], self.rows[table]
            case Rewrite(value=value):
                self.rows[table] = {key: (*row[:-1], value) for key, row in held.items()}
        self._commit([(log_bytes.STATEMENT, log_bytes.statement(table.database, as_text(statement)))])

    def _commit(self, bodies: list[tuple[int, bytes]]) -> None:
        number = len(self.committed) + 1
        begin = log_bytes.begin(number, f"{self.uuid}-{number}")
        records = []
        for kind, body in [(log_bytes.BEGIN, begin), *bodies, (log_bytes.COMMIT, b"")]:
            records.append(log_bytes.record(kind, self.length, body))
            self.length += len(records[-1])
        self.committed.append([*records, log_bytes.moved(self.length)])


def _without(values: tuple[Any, ...], place: int) -> tuple[Any, ...]:
    return values[:place] + values[place + 1 :]
