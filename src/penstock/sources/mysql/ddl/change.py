"""What a statement did to tables: values that `Catalog.apply` answers with."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model.schema import TableId
from penstock.sources.mysql.ddl.definition import TableDefinition


@dataclass(frozen=True)
class Origin:
    """Where a column of an altered table comes from: `before` is the name it had; None for an added one."""

    before: str | None


@dataclass(frozen=True)
class Created:
    """`definition` None: it cannot be told from the statement (`why`). `filled`: rows come with it.

    `anew`: a table of this name was there and is gone. `like`: the table after which it was made.
    """

    table: TableId
    definition: TableDefinition | None
    filled: bool = False
    anew: bool = False
    like: TableId | None = None
    why: str | None = None


@dataclass(frozen=True)
class Altered:
    """`origins`: one for each column of `after`. `silent`: why rows may hold other values than before, which
    no row event tells, one reason each. `what`: the actions in few words."""

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
    """RENAME TABLE as a whole: which table each name means afterwards, by the name that table had before.
    A name that means no table any more is not there."""

    names: tuple[tuple[TableId, TableId], ...]
    left: tuple[TableId, ...]
    """Old names that mean nothing now."""


@dataclass(frozen=True)
class RowsChanged:
    """Statement-format DML that names these tables."""

    tables: tuple[TableId, ...]
    kind: str


@dataclass(frozen=True)
class Doubtful:
    """What the statement did to the table is not certain. `table` None: nor to which. `rows`: it may have
    changed rows as well, so that an unchanged definition proves nothing."""

    table: TableId | None
    why: str
    rows: bool = True


Change = Created | Altered | Dropped | Emptied | Moved | RowsChanged | Doubtful
