"""Values that say what a statement did to tables. `Catalog.apply` returns them."""

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
    """A table was created. `definition` None: the statement does not tell it, because of `why`. `filled`: it
    begins with rows.

    `anew`: an earlier table of this name is gone. `like`: the table that it was modelled on.
    """

    table: TableId
    definition: TableDefinition | None
    filled: bool = False
    anew: bool = False
    like: TableId | None = None
    why: str | None = None


@dataclass(frozen=True)
class Altered:
    """A table was altered. `origins`: one for each column of `after`. `silent`: reasons why rows may have
    other values than before without row events. `what`: the actions in a few words."""

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
    """The result of RENAME TABLE: the table that each name means afterwards, by the earlier name of that
    table. A name that means no table any more is left out."""

    names: tuple[tuple[TableId, TableId], ...]
    left: tuple[TableId, ...]
    """Old names that mean no table now."""


@dataclass(frozen=True)
class RowsChanged:
    """Statement-format DML that names these tables."""

    tables: tuple[TableId, ...]
    kind: str


@dataclass(frozen=True)
class Doubtful:
    """The effect on the table is not certain. `table` None: not even the table is. `rows`: rows may have
    changed, too, so an unchanged definition proves nothing."""

    table: TableId | None
    why: str
    rows: bool = True


Change = Created | Altered | Dropped | Emptied | Moved | RowsChanged | Doubtful
