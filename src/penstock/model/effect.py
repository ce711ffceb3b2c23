"""What a statement in the source's log does to captured tables.

A statement has a list of effects. One `Unsupported`, `RowStatement` or `Unknown` that concerns a table
means that the log alone does not tell the table's rows any more, whatever other effects the statement has.
What the effects come to for a captured table is a `TableEffect`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.model import plan
from penstock.model.offset import Offset
from penstock.model.schema import TableId, TableSchema


@dataclass(frozen=True)
class First:
    """The column becomes the first one."""


@dataclass(frozen=True)
class After:
    """The column comes right behind another one (which the same statement may have added)."""

    column: str


@dataclass(frozen=True)
class DefaultLiteral:
    """A constant DEFAULT as written: `text` is the number, the string without quotes, hex digits or bits."""

    kind: Literal["null", "number", "string", "hex", "bits"]
    text: str = ""


@dataclass(frozen=True)
class AddedColumn:
    """A column that an ALTER TABLE adds.

    Existing rows get `default`; without one, NULL if `nullable`, else the type's implicit default.
    `nullable` is None where the statement does not tell (TIMESTAMP, which explicit_defaults_for_timestamp
    decides): then the catalog does. `needs_rows` says why existing rows get values that only the server
    knows. `cascades`: a foreign key comes with it, see `AddCascade`.
    """

    name: str
    definition: str
    position: First | After | None = None
    default: DefaultLiteral | None = None
    nullable: bool | None = True
    needs_rows: str | None = None
    cascades: bool = False


@dataclass(frozen=True)
class CreateTable:
    """`if_not_exists`: nothing happens where the table is there already (it is logged all the same).

    `as_select`: the statement itself fills the table, without row events. `cascades`: it has a foreign key
    that is an `AddCascade`.
    """

    table: TableId
    like: TableId | None = None
    as_select: bool = False
    if_not_exists: bool = False
    cascades: bool = False


@dataclass(frozen=True)
class AddColumns:
    """Columns in the order written; rows keep their other values."""

    table: TableId
    columns: tuple[AddedColumn, ...]


@dataclass(frozen=True)
class AddCascade:
    """A foreign key by which the table's rows change from here on; before MySQL 9.6 without row events."""

    table: TableId


@dataclass(frozen=True)
class Truncate:
    table: TableId


@dataclass(frozen=True)
class Harmless:
    """Neither rows nor columns change. `key_may_change`: unique indexes do, so read the key again."""

    table: TableId | None
    what: str
    key_may_change: bool = False


@dataclass(frozen=True)
class Unsupported:
    """Columns or rows change in a way that is not followed from the log."""

    table: TableId
    what: str


@dataclass(frozen=True)
class DropDatabase:
    """Every table of the database is gone."""

    database: str


@dataclass(frozen=True)
class RowStatement:
    """Statement-format DML: rows of these tables may change, and no row event says how.

    Tables that the statement only reads may be among them. What its triggers and stored functions change is
    not.
    """

    tables: tuple[TableId, ...]
    kind: str


@dataclass(frozen=True)
class Unknown:
    """The tables concerned cannot be told. `sql_head` are the leading keywords, never values."""

    sql_head: str


Effect = (
    CreateTable
    | AddColumns
    | AddCascade
    | Truncate
    | Harmless
    | Unsupported
    | DropDatabase
    | RowStatement
    | Unknown
)


@dataclass(frozen=True)
class TableEffect:
    """What one statement means for one captured table, in the planner's terms.

    `steps` end the table's plan of the epoch that ends at the statement. `voids`: chunks read before it are
    untrue. `created`: the table begins here with this schema; `fills`: with rows that the log does not carry.
    `rereads`: the statement changes rows and the log does not tell how, with the reason. `dropped`: the table
    is gone. `renamed`: its rows live on under this name. `what` is the change in a few words.
    """

    table: TableId
    steps: tuple[plan.Step, ...] = ()
    voids: str | None = None
    created: TableSchema | None = None
    fills: bool = False
    rereads: str | None = None
    dropped: bool = False
    renamed: TableId | None = None
    what: str = ""

    @classmethod
    def parked(cls, table: TableId, offset: Offset, *, reason: str, hint: str) -> TableEffect:
        return cls(table, (plan.Park(offset, reason, hint),))

    @classmethod
    def truncated(cls, table: TableId) -> TableEffect:
        return cls(table, (plan.TruncateTarget(),), voids="TRUNCATE TABLE")
