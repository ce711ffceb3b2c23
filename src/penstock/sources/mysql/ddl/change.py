"""What a statement did to tables. `Catalog.apply` returns these values."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model.schema import TableId
from penstock.sources.mysql.ddl.definition import TableDefinition


@dataclass(frozen=True)
class Origin:
    """The origin of a column of an altered table. `before`: its earlier name; None for an added column."""

    before: str | None


@dataclass(frozen=True)
class Created:
    """A table was created.

    `definition` None: the statement does not contain it, and `why` says for what reason. `filled`: the table
    begins with rows. `replaces`: there was a table of this name. `like`: the table in its LIKE clause.
    `if_not_exists`: nothing was created if there is a view of this name.
    """

    table: TableId
    definition: TableDefinition | None
    filled: bool = False
    replaces: bool = False
    like: TableId | None = None
    why: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True)
class Altered:
    """A table was altered. `origins`: one for each column of `after`. `silent`: reasons why
    values of rows may have changed without row events. `what`: the actions in a few words."""

    table: TableId
    before: TableDefinition
    after: TableDefinition
    origins: tuple[Origin, ...]
    silent: tuple[str, ...] = ()
    what: str = ""


@dataclass(frozen=True)
class Dropped:
    table: TableId


@dataclass(frozen=True)
class Emptied:
    table: TableId


@dataclass(frozen=True)
class Moved:
    """The result of RENAME TABLE: pairs of a name and the earlier name of the table that has it now."""

    names: tuple[tuple[TableId, TableId], ...]
    left: tuple[TableId, ...]
    """Names that no table has any more."""


@dataclass(frozen=True)
class RowsChanged:
    """Statement-format DML that names these tables."""

    tables: tuple[TableId, ...]
    kind: str


@dataclass(frozen=True)
class Doubtful:
    """The effect on the table is not certain. `table` None: any table may be affected. `rows`: rows may have
    changed, too, so an unchanged definition proves nothing."""

    table: TableId | None
    why: str
    rows: bool = True


Change = Created | Altered | Dropped | Emptied | Moved | RowsChanged | Doubtful
