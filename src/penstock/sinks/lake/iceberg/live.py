"""The files of a table's newest snapshot, kept in memory from one commit to the next.

Reading all manifests for each small commit would make its cost grow with the table. What our own commit
changes is known. So if the newest snapshot is that commit, on top of the snapshot that was read before, its
files are known without reading anything. Otherwise, somebody else has committed, and the manifests that are
new are read. Manifests never change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.model.schema import TableId
from penstock.sinks.files import FileWriter, field_id
from penstock.sinks.lake.iceberg.files import Classes, schema_fields
from penstock.sinks.lake.iceberg.manifests import Content, Deletes, data_files, deletes
from penstock.sinks.lake.iceberg.row_reader import Reader
from penstock.sinks.lake.index.tables import Indexes, TableKeys
from penstock.sinks.lake.vectors import Deleted


@dataclass(frozen=True)
class Live:
    """The files of one snapshot, with its deletes except equality deletes. `snapshot` None: the table has no
    snapshot."""

    snapshot: int | None
    files: Mapping[str, Content]
    """The data files, by location."""
    deletes: Deletes
    bounded: frozenset[int] = frozenset()
    """Ids of the columns whose bounds are kept of each file."""

    def of(self, target: Any) -> Any:
        """The snapshot, as an object of Iceberg."""
        return None if self.snapshot is None else target.snapshot(self.snapshot)

    def vector(self, location: str) -> Deleted | None:
        """The deletion vector of a data file. None: none of its rows is deleted."""
        return self.deletes.vector(location)

    def after(
        self,
        snapshot: int,
        added: Iterable[Content],
        vectors: Mapping[str, Sequence[Content]],
        removed: Iterable[str] = (),
    ) -> Live:
        """This state with further data files, with other deletion vectors of the data files at these
        locations, and without the data files `removed`."""
        changed = {**self.deletes.vectors, **vectors}
        files = {**self.files, **{one.location: one.short(self.bounded) for one in added}}
        for location in removed:
            del files[location]
            changed.pop(location, None)
        return replace(self, snapshot=snapshot, files=files, deletes=Deletes(self.deletes.equality, changed))


class LiveFiles:
    """Remembers the files of one table. Not thread-safe."""

    def __init__(self, classes: Classes, key: pa.Schema) -> None:
        """`key`: columns whose bounds are needed."""
        self._classes = classes
        self._bounded = frozenset(number for field in key if (number := field_id(field)) is not None)
        self._known: Live | None = None
        self._expected: Live | None = None

    def of(self, target: Any) -> Live:
        """The files of the newest snapshot of a table that has just been loaded. Raises `Unsearchable`."""
        if self._known is not None and self.is_of(self._known, target):
            return self._known
        snapshot = target.currentSnapshot()
        if self._is_expected(snapshot):
            self._known, self._expected = self._expected, None
        else:
            self._known, self._expected = self._read(target, snapshot), None
        assert self._known is not None
        return self._known

    @staticmethod
    def is_of(live: Live, target: Any) -> bool:
        """Whether these are the files of the newest snapshot of a table."""
        snapshot = target.currentSnapshot()
        return live.snapshot == (None if snapshot is None else snapshot.snapshotId())

    @property
    def newest(self) -> Live | None:
        """The files after the newest commit of ours, as far as it is known."""
        return self._expected or self._known

    def _is_expected(self, snapshot: Any) -> bool:
        """Whether a snapshot is our commit, made directly on the snapshot that is known."""
        if snapshot is None or self._known is None or self._expected is None:
            return False
        parent = snapshot.parentId()  # None: it has none, like the first one
        return bool(snapshot.snapshotId() == self._expected.snapshot and parent == self._known.snapshot)

    def expect(self, live: Live) -> None:
        """Says which files there will be if this snapshot comes directly after the one that `of` returned
        last. Call it before the commit: its outcome may remain unknown."""
        self._expected = live

    def _read(self, target: Any, snapshot: Any) -> Live:
        if snapshot is None:
            return Live(None, {}, Deletes((), {}), self._bounded)
        found = data_files(self._classes, target, snapshot)
        files = {one.location: one.short(self._bounded) for one in found}
        present = deletes(self._classes, target, snapshot)
        return Live(int(snapshot.snapshotId()), files, present, self._bounded)


def table_keys(
    indexes: Indexes[LiveFiles], classes: Classes, table: TableId, target: Any, keys: FileWriter
) -> TableKeys[LiveFiles]:
    """The index of a table by the columns of a writer of keys."""
    files = keys.folder.files
    known = partial(classes.identity_columns, target)
    columns = schema_fields(classes, target)
    reader = Reader.of(columns, keys.fields, files, pa.schema([]), in_partitions=known)
    return indexes.of(table, keys.fields, files, reader)
