"""The data files of a table's newest version, kept in memory from one commit to the next.

To ask Delta for all files with each small commit would make its cost grow with the table: beyond 500 files,
that is a Spark job. What our own commit changes is known. So if the newest version is our own commit, made
directly on the version that was known before, its files are known.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from penstock.model.schema import TableId
from penstock.sinks.files import FileWriter, field_id
from penstock.sinks.lake.delta import vectors
from penstock.sinks.lake.delta.checksum import Checksums
from penstock.sinks.lake.delta.files import location_of
from penstock.sinks.lake.index.tables import Indexes, TableKeys
from penstock.sinks.lake.lookup import DataFile, Unsearchable, parquet_file
from penstock.sinks.lake.vectors import Deleted
from penstock.store.files import Files, Folder


@dataclass(frozen=True)
class File:
    """A data file. `entry`: the entry of the log that adds it. `path`: the path at which it is read."""

    entry: Mapping[str, Any]
    path: str
    vector: Deleted | None

    @classmethod
    def of(cls, entry: Mapping[str, Any], folder: Folder) -> File:
        """A file of the table in `folder`. Raises `Unsearchable`."""
        path, descriptor = location_of(folder, entry["path"]), entry.get("deletionVector")
        if path is None:
            raise Unsearchable(f"{entry['path']} is not in the table's directory")
        return cls(entry, path, None if descriptor is None else vectors.place(folder, descriptor))

    @property
    def location(self) -> str:
        """The name that Delta's log has for the file."""
        return str(self.entry["path"])

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return int(self.entry["size"])

    @cached_property
    def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.entry.get("stats") or "{}")
        return found

    @property
    def rows(self) -> int:
        found = self.stats.get("numRecords")
        if found is None:
            raise Unsearchable(f"{self.location} has no row count")
        return int(found)

    def searched(self) -> DataFile:
        return DataFile(self.location, self.path, self.size, self.rows, self.vector)


@dataclass(frozen=True)
class Live:
    """The data files of one version of a table. `table`: Delta's id of it."""

    table: str
    version: int
    files: Mapping[str, File]
    """The data files, by location."""

    def vector(self, location: str) -> Deleted | None:
        found = self.files.get(location)
        return None if found is None else found.vector

    def after(self, version: int, changed: Iterable[File], removed: Iterable[str]) -> Live:
        """This version with the files `changed`, which are new or have other deletion vectors, and without
        the files `removed`."""
        files = {**self.files, **{one.location: one for one in changed}}
        for location in removed:
            del files[location]
        return Live(self.table, version, files)


class LiveFiles:
    """Remembers the files of one table. Not thread-safe."""

    def __init__(self, checksums: Checksums) -> None:
        self._checksums = checksums
        self.newest: Live | None = None

    def of(self, snapshot: Any, folder: Folder) -> Live:
        """The files of a snapshot of the table in `folder`. Raises `Unsearchable`."""
        table, version = str(snapshot.metadata().id()), int(snapshot.version())
        known = self.newest
        if known is None or (known.table, known.version) != (table, version):
            files = [File.of(entry, folder) for entry in self._checksums.files(snapshot)]
            self.newest = known = Live(table, version, {file.location: file for file in files})
        return known

    def committed(self, live: Live) -> None:
        """Records the files that the table has after a commit."""
        self.newest = live


@dataclass(frozen=True)
class KeyReader:
    """Reads the columns of the key, by their field ids. A column may have been renamed or widened since a
    file was written."""

    fields: pa.Schema
    files: Files

    def reads(self, file: File) -> bool:
        with parquet_file(self.files, file.path, file.size) as found:
            kinds = {field_id(field): field.type for field in found.schema_arrow}
        try:
            for field in self.fields:
                pa.array([], kinds[field_id(field)]).cast(field.type)
        except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return False
        return True

    def batches(self, file: File) -> Iterator[pa.RecordBatch]:
        with parquet_file(self.files, file.path, file.size) as found:
            names = {field_id(field): field.name for field in found.schema_arrow}
            wanted = [names[field_id(field)] for field in self.fields]
            for batch in found.iter_batches(columns=wanted, use_threads=False):
                arrays = [
                    batch.column(name).cast(field.type)
                    for name, field in zip(wanted, self.fields, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.fields)


def table_keys(indexes: Indexes[LiveFiles], table: TableId, keys: FileWriter) -> TableKeys[LiveFiles]:
    """The index of a table by the columns of a writer of keys."""
    files = keys.folder.files
    return indexes.of(table, keys.fields, files, KeyReader(keys.fields, files))
