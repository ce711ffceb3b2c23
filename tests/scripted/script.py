"""A script: what happens at a source, as a list.

    [Transaction(insert(ORDERS, 1, "pen")), Chunk(), AddColumn(ORDERS, COLOUR), PAUSE, EOF]

The items are values. `server.py` plays them, `play.py` has a pipeline follow.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from penstock.model.schema import Column, TableId

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Insert:
    table: TableId
    row: Row


@dataclass(frozen=True)
class Update:
    """The row with this key becomes `row`, whose key may be another one."""

    table: TableId
    key: Any
    row: Row


@dataclass(frozen=True)
class Delete:
    table: TableId
    key: Any


RowChange = Insert | Update | Delete


class Marker:
    """An item that is nothing but its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


PAUSE = Marker("PAUSE")
"""The source is silent until the pipeline has applied all that came so far."""
ABORT = Marker("ABORT")
"""The pipeline's process is killed and started again. Inside of a transaction: when half of it has arrived.
Between items: when the next epoch is planned, and before it is applied."""
EOF = Marker("EOF")
"""The end of the script. The pipeline continues until its target has the rows of the source."""


@dataclass(frozen=True, init=False)
class Transaction:
    """Row changes that are committed together."""

    changes: tuple[RowChange | Marker, ...]

    def __init__(self, *changes: RowChange | Marker) -> None:
        object.__setattr__(self, "changes", changes)


@dataclass(frozen=True)
class AddColumn:
    """Existing rows get NULL in it."""

    table: TableId
    column: Column


@dataclass(frozen=True)
class DropColumn:
    table: TableId
    name: str


@dataclass(frozen=True)
class Truncate:
    table: TableId


@dataclass(frozen=True)
class Drop:
    table: TableId


@dataclass(frozen=True)
class Rewrite:
    """A statement whose row changes the log does not hold: every row's last column becomes `value`."""

    table: TableId
    value: Any


Definition = AddColumn | DropColumn | Truncate | Drop | Rewrite


@dataclass(frozen=True)
class Chunk:
    """The pipeline reads the next chunk that it has planned. `meanwhile`: happens after its rows are seen,
    and before its high watermark is taken."""

    meanwhile: tuple[Transaction | Definition, ...] = ()


Item = Transaction | Definition | Chunk | Marker
Kind = Literal["add", "drop-column", "truncate", "drop", "rewrite"]


def as_text(statement: Definition) -> str:
    """The text of a statement in the log. It is a language of its own, which no parser of SQL knows."""
    fields: dict[str, Any] = {"table": str(statement.table)}
    match statement:
        case AddColumn(column=column):
            fields |= {"do": "add", "name": column.name, "type": column.type, "length": column.length}
        case DropColumn(name=name):
            fields |= {"do": "drop-column", "name": name}
        case Truncate():
            fields["do"] = "truncate"
        case Drop():
            fields["do"] = "drop"
        case Rewrite(value=value):
            fields |= {"do": "rewrite", "value": value}
    return "script " + json.dumps(fields)


def from_text(text: str) -> Definition:
    fields = json.loads(text.removeprefix("script "))
    table = TableId.parse(fields["table"])
    match fields["do"]:
        case "add":
            return AddColumn(table, column(fields["name"], fields["type"], length=fields["length"]))
        case "drop-column":
            return DropColumn(table, fields["name"])
        case "truncate":
            return Truncate(table)
        case "drop":
            return Drop(table)
        case "rewrite":
            return Rewrite(table, fields["value"])
    raise ValueError(text)


def column(name: str, type: str, *, length: int | None = None, nullable: bool = True) -> Column:
    """A column of one of the types that scripts know: `bigint`, or `varchar` with a length."""
    charset = "utf8mb4" if type == "varchar" else None
    return Column(name, type, nullable, length=length, charset=charset)
