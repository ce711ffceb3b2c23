"""What a statement says, without regard to any table. There is one class for each kind of statement or
action."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.model.schema import TableId
from penstock.sources.mysql.ddl.column import (
    ColumnSpec,
    Element,
)
from penstock.sources.mysql.ddl.definition import Default
from penstock.sources.mysql.ddl.options import TableOptions
from penstock.sources.mysql.ddl.query import PlainQuery


@dataclass(frozen=True)
class First:
    """The column becomes the first one."""


@dataclass(frozen=True)
class After:
    """The column comes right after another one."""

    column: str


Position = First | After | None


@dataclass(frozen=True)
class AddElement:
    """ADD [COLUMN | INDEX | CONSTRAINT …]"""

    element: Element
    position: Position = None
    if_not_exists: bool = False


@dataclass(frozen=True)
class ChangeColumn:
    """CHANGE and MODIFY: the column `old` gets another definition, and perhaps another name and place."""

    old: str
    column: ColumnSpec
    position: Position = None
    if_exists: bool = False


@dataclass(frozen=True)
class RenameColumn:
    old: str
    new: str
    if_exists: bool = False


@dataclass(frozen=True)
class DropColumn:
    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class AlterColumn:
    """ALTER COLUMN: SET DEFAULT (`default`), DROP DEFAULT (None), SET [IN]VISIBLE (`invisible`)."""

    name: str
    default: Default | None = None
    invisible: bool | None = None
    if_exists: bool = False


@dataclass(frozen=True)
class DropKey:
    """DROP PRIMARY KEY, INDEX, KEY, CONSTRAINT, FOREIGN KEY, CHECK. `kinds`: the kinds of keys that it can
    drop."""

    name: str
    kinds: frozenset[str]


@dataclass(frozen=True)
class RenameKey:
    old: str
    new: str


@dataclass(frozen=True)
class RenameTo:
    table: TableId


@dataclass(frozen=True)
class ConvertCharset:
    charset: str | None
    collation: str | None


@dataclass(frozen=True)
class SetOptions:
    options: TableOptions


@dataclass(frozen=True)
class Partitioning:
    """PARTITION BY (`on`) or REMOVE PARTITIONING."""

    on: bool


@dataclass(frozen=True)
class LosesRows:
    """Rows are deleted or added without row events: partitions are dropped or emptied, tablespaces are
    imported …"""

    what: str


@dataclass(frozen=True)
class ExchangeRows:
    """Rows are exchanged with those of another table. `creates`: that table is created, `drops`: it is gone
    afterwards (CONVERT PARTITION … TO TABLE, CONVERT TABLE … TO PARTITION of MariaDB)."""

    other: TableId
    what: str
    creates: bool = False
    drops: bool = False


@dataclass(frozen=True)
class Versioning:
    on: bool


@dataclass(frozen=True)
class NoChange:
    """Neither rows nor the definition change."""

    what: str


@dataclass(frozen=True)
class UnknownAction:
    """`names`: all other tables that it may be about."""

    what: str
    names: tuple[TableId, ...] = ()


Action = (
    AddElement
    | ChangeColumn
    | RenameColumn
    | DropColumn
    | AlterColumn
    | DropKey
    | RenameKey
    | RenameTo
    | ConvertCharset
    | SetOptions
    | Partitioning
    | LosesRows
    | ExchangeRows
    | Versioning
    | NoChange
    | UnknownAction
)


@dataclass(frozen=True)
class CreateTable:
    """CREATE TABLE. `as_select`: a query adds columns and rows. `query`: the query, if it is plain.
    `unknown`: the part of the definition that was not understood."""

    table: TableId
    elements: tuple[Element, ...] = ()
    options: TableOptions = field(default_factory=TableOptions)
    like: TableId | None = None
    if_not_exists: bool = False
    or_replace: bool = False
    as_select: bool = False
    partitioned: bool = False
    temporary: bool = False
    sequence: bool = False
    unknown: str | None = None
    query: PlainQuery | None = None
    calls: bool = False
    """Whether the query may call functions, because it has parentheses."""


@dataclass(frozen=True)
class AlterTable:
    """ALTER TABLE, with its actions in the order written. `ignore`: rows that violate a new key are
    deleted. `if_exists`: it is no error if the table does not exist."""

    table: TableId
    actions: tuple[Action, ...]
    ignore: bool = False
    if_exists: bool = False


@dataclass(frozen=True)
class DropTables:
    """DROP TABLE and DROP SEQUENCE. `sequences`: tables of these names stay."""

    tables: tuple[TableId, ...]
    if_exists: bool = False
    temporary: bool = False
    sequences: bool = False


@dataclass(frozen=True)
class RenameTables:
    """RENAME TABLE, with its pairs in the order written. `if_exists`: a pair whose first table does not exist
    is skipped."""

    pairs: tuple[tuple[TableId, TableId], ...]
    if_exists: bool = False


@dataclass(frozen=True)
class TruncateTable:
    table: TableId


@dataclass(frozen=True)
class SetDatabase:
    """CREATE (`create`) or ALTER DATABASE, with character set and collation as written. `replaces`: a
    database of this name is dropped before, with all of its tables."""

    name: str
    charset: str | None
    collation: str | None
    create: bool
    replaces: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropDatabase:
    """DROP DATABASE, which drops all of its tables."""

    name: str


@dataclass(frozen=True)
class UseDatabase:
    name: str


@dataclass(frozen=True)
class SetVariables:
    """SET name = value, …, with the variables that matter. None: the value is not a constant. `calls`: a
    value may come from a function or a query."""

    values: tuple[tuple[str, str | None], ...]
    calls: bool = False


@dataclass(frozen=True)
class RowStatement:
    """Statement-format DML: rows of these tables may change without row events.

    There may be tables among them that the statement only reads. Tables that it changes through views,
    triggers, stored functions and foreign keys are not among them.
    """

    tables: tuple[TableId, ...]
    kind: str


@dataclass(frozen=True)
class RepairTables:
    """REPAIR TABLE, which deletes rows of these tables that cannot be saved."""

    tables: tuple[TableId, ...]


@dataclass(frozen=True)
class NoTable:
    """The statement changes nothing that has rows."""

    what: str


@dataclass(frozen=True)
class Unknown:
    """A statement that may be about any table. `head`: its first keywords, never values. `tables`: it is
    certainly about no others."""

    head: str
    tables: tuple[TableId, ...] | None = None


Statement = (
    CreateTable
    | AlterTable
    | DropTables
    | RenameTables
    | TruncateTable
    | SetDatabase
    | DropDatabase
    | UseDatabase
    | SetVariables
    | RowStatement
    | RepairTables
    | NoTable
    | Unknown
)
