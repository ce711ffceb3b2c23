"""The key indexes of a pipeline's tables, whatever their format."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from penstock.disk.lock import FileLock, take
from penstock.failures.messages import one_sentence
from penstock.model.schema import TableId
from penstock.sinks.lake.index.deleted import DeletedRows
from penstock.sinks.lake.index.matching import live_rows, rows_at
from penstock.sinks.lake.index.place import INDEX_DIRECTORY
from penstock.sinks.lake.index.table_index import DamagedRun, Indexed, Matches, TableIndex, described
from penstock.sinks.lake.lookup import LOCAL_ROWS_MAX, Found, Unsearchable
from penstock.sinks.lake.scratch import make_directory
from penstock.sinks.lake.vectors import Deleted
from penstock.store.files import Files

log = logging.getLogger(__name__)

BUILD_ROWS = 4_000_000
"""Rows of one run while an index is built. After a kill, building goes on behind the runs that are done."""
BUILD_THREADS_MAX = 4
"""Threads that build an index. The other cores are left to the epochs."""


class Stored(Protocol):
    """A data file of a table."""

    @property
    def location(self) -> str: ...
    @property
    def rows(self) -> int: ...


class Live(Protocol):
    """The data files of one version of a table, and which rows of them are deleted."""

    @property
    def files(self) -> Mapping[str, Any]:
        """Each a `Stored`, by location."""

    def vector(self, location: str) -> Deleted | None:
        """The deletion vector of a data file. None: none of its rows is deleted."""


class Lives(Protocol):
    """Knows the data files of a table's newest version."""

    @property
    def newest(self) -> Live | None:
        """The newest version that is known without a look at the table."""


class KeyReader(Protocol):
    """Reads the columns of the key."""

    def reads(self, file: Any) -> bool:
        """Whether it can read this data file."""

    def batches(self, file: Any) -> Iterator[pa.RecordBatch]:
        """The columns of the key of all rows, also deleted ones."""


L = TypeVar("L", bound=Lives)
T = TypeVar("T")
Keys = Mapping[str, Sequence[pa.RecordBatch]]
"""The keys of all rows of data files, in their order and in the types of the index, by location."""


class Indexes(Generic[L]):
    """The key indexes of all tables. `directory`: where they are stored. If it is None, or in use by another
    process, they are in a temporary directory while this object is used. `make_temporary`: creates that
    directory."""

    def __init__(
        self,
        directory: Path | None,
        live: Callable[[pa.Schema], L],
        *,
        spark: SparkSession,
        memory_max: int,
        enabled: bool = True,
    ) -> None:
        """`live`: makes what knows the data files of one table, whose key has these columns. `memory_max`:
        bytes that building an index may take. What it has more is sorted on the disk. `enabled`: whether rows
        may be added to an index."""
        self._directory = directory
        self._live = live
        self._spark = spark
        self.enabled = enabled
        self._memory_max = memory_max
        self._threads = max(1, min(BUILD_THREADS_MAX, os.cpu_count() or 1))
        self._guard = threading.Lock()
        self._tables: dict[TableId, TableKeys[L]] = {}
        self._deleted = DeletedRows()
        self._temporary: Path | None = None
        self._lock: FileLock | None = None
        self._background = ThreadPoolExecutor(1, thread_name_prefix="key-index")
        """Builds and merges."""
        self._adder = ThreadPoolExecutor(1, thread_name_prefix="key-index-add")
        """Adds the rows of small commits."""

    def of(self, table: TableId, fields: pa.Schema, files: Files, reader: KeyReader) -> TableKeys[L]:
        """The index of a table by these columns, which may not cover all rows yet. `reader`: of the columns
        that the table has now; data files may lack some of those of the key."""
        with self._guard:
            found = self._tables.get(table)
            if found is None or described(found.index.fields) != described(fields):
                place = self._place() / hashlib.sha256(str(table).encode()).hexdigest()[:32]
                index = TableIndex(place, fields, self._memory_max // self._threads)
                found = TableKeys(
                    index, self._live(fields), files, self._deleted, self._background, self._adder
                )  # fmt: skip
                found.enabled, found.threads = self.enabled, self._threads
                self._tables[table] = found
        found.reader = reader
        return found

    def known(self, table: TableId) -> TableKeys[L] | None:
        with self._guard:
            return self._tables.get(table)

    def close(self) -> None:
        self._adder.shutdown(wait=True)
        self._background.shutdown(wait=True, cancel_futures=True)
        for one in self._tables.values():
            try:
                one.index.save()
            except OSError as error:  # it is built again
                log.info("A key index is not kept: %s", one_sentence(error))
        if self._lock is not None:
            self._lock.release()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _place(self) -> Path:
        if self._directory is not None and self._lock is None:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = take(self._directory / "lock", wait_seconds=0)
        if self._directory is not None and self._lock is not None:
            return self._directory
        if self._temporary is None:
            self._temporary = make_directory(self._spark, "index-")
        return self._temporary


def index_directory(spark: SparkSession) -> Path | None:
    """The directory in the options of the session."""
    found = spark.conf.get(INDEX_DIRECTORY, None)
    return Path(found) if found else None


class TableKeys(Generic[L]):
    """The index of one table, together with what the table's metadata says."""

    def __init__(
        self,
        index: TableIndex,
        live: L,
        files: Files,
        deleted: DeletedRows,
        background: ThreadPoolExecutor,
        adder: ThreadPoolExecutor,
    ) -> None:
        self.index = index
        self.live = live
        self.deleted = deleted
        self.files = files
        self._background = background
        self._adder = adder
        self.reader: KeyReader | None = None
        self._building: Future[None] | None = None
        self._adding: Future[None] | None = None
        self._tidying: Future[None] | None = None
        self.enabled = True
        """Whether rows may be added to the index."""
        self.threads = 1
        """How many build it."""
        self.rows_read = 0
        """Rows of the table whose keys were read in place of a look-up (`replaced.py`)."""
        self.changing = threading.Lock()
        """Whoever marks rows of data files, or replaces data files, holds this from reading the state of the
        table until the commit. Then none of this process is refused because of another."""

    def is_ready(self, live: Live) -> bool:
        """Whether the index covers all files of the table. A few rows that it lacks are added here, more in
        the background. Raises `Unsearchable`, and `OSError` if the disk is full."""
        if self._adding is not None:
            adding, self._adding = self._adding, None
            if (error := adding.exception()) is not None:
                log.info("Rows are added to a key index once more: %s", one_sentence(error))
        missing = self.missing(live)
        if not missing:
            return True
        if self._building is not None:
            if not self._building.done():
                return False
            building, self._building = self._building, None
            building.result()
            missing = self.missing(live)
        if sum(file.rows for file in missing) > LOCAL_ROWS_MAX:
            log.info("A key index of %s rows is built.", sum(file.rows for file in missing))
            self._building = self._background.submit(self._build, missing)
            return False
        self.cover(missing)
        return True

    def missing(self, live: Live) -> list[Stored]:
        """The files that the index does not cover."""
        return [
            live.files[one.location]
            for one in self.index.uncovered(Indexed(file.location, file.rows) for file in live.files.values())
        ]

    @contextmanager
    def held(self, target: T, load: Callable[[], T]) -> Iterator[T]:
        """Keeps out other changes of this process. Yields the target, loaded again if it may have changed."""
        if not self.changing.acquire(blocking=False):
            self.changing.acquire()
            target = load()
        try:
            yield target
        finally:
            self.changing.release()

    def _build(self, files: Sequence[Stored]) -> None:
        with ThreadPoolExecutor(self.threads, thread_name_prefix="key-index-build") as pool:
            for _ in pool.map(self.cover, parts(files, BUILD_ROWS)):
                self.index.save()

    def cover(self, files: Sequence[Stored], known: Keys = MappingProxyType({})) -> None:
        """Adds the rows of these files to the index. `known`: keys that need not be read."""
        reader, by_location = self.reader, {file.location: file for file in files}
        assert reader is not None, "the columns are known"
        for file in files:
            if file.location not in known and not reader.reads(file):
                raise Unsearchable(f"{file.location} has columns of other types")

        def keys(one: Indexed) -> Iterable[pa.RecordBatch]:
            found = known.get(one.location)
            return reader.batches(by_location[one.location]) if found is None else found

        self.index.cover([Indexed(file.location, file.rows) for file in files], keys)

    def add(self, files: Sequence[Stored], known: Keys) -> None:
        """Adds the rows of files that are about to be committed, while the caller goes on."""
        if files:
            self._adding = self._adder.submit(self.cover, files, known)

    def remember(self, live: Live, marked: Sequence[Marked]) -> None:
        """Keeps the vectors of `live`, which were just written, in memory."""
        for one in marked:
            vector = live.vector(one.location)
            if vector is not None:  # Delta removes a file whose rows are all gone
                self.deleted.put(one.location, vector, one.rows, len(one.bitmap))

    def committed(self) -> None:
        """Merges runs of the index in the background, if there are many."""
        is_idle = self._tidying is None or self._tidying.done()
        if is_idle and self.index.wants_tidying():
            self._tidying = self._background.submit(self._tidy)

    def _tidy(self) -> None:
        with self.changing:  # no small commit is under way
            live = self.live.newest
        if live is not None:
            self.index.tidy(live.files)

    def deleted_rows(self, live: Live, location: str) -> BitMap64:
        """The rows of a data file that are deleted in `live`. Nobody changes the result."""
        return self.deleted.of(location, live.vector(location), self.files)

    def rows_of(self, keys: Sequence[pa.RecordBatch], live: Live) -> list[Marked]:
        """The rows that have these keys, in the types of the index's columns, in the files of `live`, which
        the index covers. Raises `Unsearchable`, and `OSError` if the disk fails."""
        return self.marked(self.matches(keys, live), live)

    def matches(self, keys: Sequence[pa.RecordBatch], live: Live) -> dict[str, Matches]:
        """The rows that have these keys, by the location of their data file, each with the number of its
        key."""

        def read(location: str) -> Iterable[pa.RecordBatch]:
            assert self.reader is not None
            return self.reader.batches(live.files[location])

        while True:
            try:
                found = live_rows(self.index, keys, live.files, partial(self.deleted_rows, live), read)
            except DamagedRun as why:
                log.warning("A part of a key index is read again: %s", why)
            else:
                if self.index.covers(live.files):
                    return found
                # `tidy`, in the background, has just forgotten data files that have become live since it
                # looked.
            if not self.is_ready(live):
                raise Unsearchable("its key index is built again")

    def marked(self, found: Mapping[str, Matches], live: Live) -> list[Marked]:
        """For each data file, all rows that are deleted once the found ones are."""
        marked = []
        for location, matches in found.items():
            rows = BitMap64(matches.rows.tolist())
            rows |= self.deleted_rows(live, location)
            marked.append(Marked(location, rows, rows.serialize()))
        return marked

    def read(self, reader: KeyReader, found: Mapping[str, Matches], live: Live) -> dict[str, pa.Table]:
        """The found rows, by the location of their data file. `reader`: reads the wanted columns. Raises
        `Unsearchable`."""
        files: list[Stored] = [live.files[location] for location in found]
        if sum(file.rows for file in files) > LOCAL_ROWS_MAX:
            raise Unsearchable("too many rows have to be read for it")
        if not all(reader.reads(file) for file in files):
            raise Unsearchable("some of its data files have columns of other types")
        return {at: rows_at(reader.batches(live.files[at]), one.rows) for at, one in found.items()}


@dataclass(frozen=True)
class Marked:
    """All deleted rows of a data file, also as a serialised bitmap."""

    location: str
    rows: BitMap64
    bitmap: bytes

    def and_also(self, other: Marked) -> Marked:
        """The rows of both, which must be of the same file."""
        rows = self.rows | other.rows
        return Marked(self.location, rows, rows.serialize())

    @property
    def found(self) -> Found:
        return self.location, self.bitmap, len(self.rows)


def parts(files: Sequence[Stored], rows: int) -> Iterator[list[Stored]]:
    """The files in groups, each of which has so many rows or more, except the last one."""
    some: list[Stored] = []
    for file in files:
        some.append(file)
        if sum(one.rows for one in some) >= rows:
            yield some
            some = []
    if some:
        yield some
