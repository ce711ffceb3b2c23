"""Tables by what they are looked for: their numbers, their names, and the partitions that they have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

from penstock.model.schema import TableId
from penstock.sources.postgresql.catalog import PgTable


class KnownTables:
    """A table that is set or removed costs as much as it has partitions, however many tables there are."""

    def __init__(self, tables: Iterable[PgTable] = ()) -> None:
        self._tables: dict[int, PgTable] = {}
        self._named: dict[TableId, set[int]] = {}
        self.roots: dict[int, int] = {}
        """Numbers of tables by those of their partitions that have rows."""
        for table in tables:
            self.set(table.number, table)

    def __iter__(self) -> Iterator[PgTable]:
        return iter(self._tables.values())

    def __contains__(self, number: int) -> bool:
        return number in self._tables

    def __getitem__(self, number: int) -> PgTable:
        return self._tables[number]

    def get(self, number: int) -> PgTable | None:
        return self._tables.get(number)

    @property
    def numbers(self) -> Set[int]:
        return self._tables.keys()

    def named(self, names: Iterable[TableId]) -> set[int]:
        """The numbers of the tables with these names."""
        return {number for name in names for number in self._named.get(name, ())}

    def set(self, number: int, table: PgTable | None) -> None:
        """None: the table is removed, if it is there."""
        before = self._tables.pop(number, None)
        if before is not None:
            self._named[before.table].discard(number)
            if not self._named[before.table]:
                del self._named[before.table]
            for leaf in before.leaves:
                if self.roots.get(leaf.number) == number:
                    del self.roots[leaf.number]
        if table is not None:
            self._tables[number] = table
            self._named.setdefault(table.table, set()).add(number)
            self.roots.update((leaf.number, number) for leaf in table.leaves)
