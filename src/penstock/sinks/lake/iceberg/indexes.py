"""The key indexes of a pipeline's Iceberg tables."""

from __future__ import annotations

import hashlib
import logging
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from penstock.disk.lock import FileLock, take
from penstock.failures.messages import one_sentence
from penstock.model.schema import TableId
from penstock.sinks.lake.iceberg.files import Classes, schema_fields
from penstock.sinks.lake.iceberg.live import Live, LiveFiles
from penstock.sinks.lake.iceberg.manifests import Content
from penstock.sinks.lake.iceberg.registration import INDEX_DIRECTORY
from penstock.sinks.lake.iceberg.row_reader import Reader
from penstock.sinks.lake.index.deleted import DeletedRows
from penstock.sinks.lake.index.matching import live_rows
from penstock.sinks.lake.index.table_index import DamagedRun, Indexed, TableIndex, described
from penstock.sinks.lake.lookup import LOCAL_ROWS_MAX, Found, Unsearchable
from penstock.store.files import Files

log = logging.getLogger(__name__)

MEMORY_MAX = 256 * 1024**2
"""Bytes that building a run of an index may take. What it has more is sorted on the disk."""
BUILD_ROWS = 8_000_000
"""Rows of one run while an index is built. After a kill, building goes on behind the last run."""


class Indexes:
    """`directory`: where the indexes are kept. None, or if another process uses it: in a temporary one, and
    only while this object is used."""

    def __init__(self, directory: Path | None, classes: Classes) -> None:
        self._directory = directory
        self._classes = classes
        self._guard = threading.Lock()
        self._tables: dict[TableId, TableKeys] = {}
        self._temporary: Path | None = None
        self._lock: FileLock | None = None
        self._background = ThreadPoolExecutor(1, thread_name_prefix="key-index")
        """Builds and merges."""
        self._adder = ThreadPoolExecutor(1, thread_name_prefix="key-index-add")
        """Adds the rows of small commits."""

    def of(self, table: TableId, target: Any, fields: pa.Schema, files: Files) -> TableKeys:
        """The index of a table by these columns, which may not cover all rows yet."""
        with self._guard:
            found = self._tables.get(table)
            if found is None or described(found.index.fields) != described(fields):
                place = self._place() / hashlib.sha256(str(table).encode()).hexdigest()[:32]
                index = TableIndex(place, fields, MEMORY_MAX)
                found = TableKeys(index, LiveFiles(self._classes), files, self._background, self._adder)
                self._tables[table] = found
        found.columns(schema_fields(self._classes, target))
        return found

    def known(self, table: TableId) -> TableKeys | None:
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
            self._temporary = Path(tempfile.mkdtemp(prefix="penstock-index-"))
        return self._temporary


def index_directory(spark: SparkSession) -> Path | None:
    """The directory that the session was told."""
    found = spark.conf.get(INDEX_DIRECTORY, None)
    return Path(found) if found else None


class TableKeys:
    """The index of one table, together with what the table's metadata says."""

    def __init__(
        self,
        index: TableIndex,
        live: LiveFiles,
        files: Files,
        background: ThreadPoolExecutor,
        adder: ThreadPoolExecutor,
    ) -> None:
        self.index = index
        self.live = live
        self.deleted = DeletedRows()
        self._files = files
        self._background = background
        self._adder = adder
        self._reader: Reader | None = None
        self._building: Future[None] | None = None
        self._adding: Future[None] | None = None
        self._tidying: Future[None] | None = None
        self.changing = threading.Lock()
        """Whoever marks rows of data files, or replaces data files, holds this from reading the state of the
        table until the commit. Then none of this process is refused because of another."""

    def columns(self, columns: Iterable[Any]) -> None:
        """Tells the columns that the table has now: data files may lack some of those of the key."""
        self._reader = Reader.of(columns, self.index.fields, self._files, pa.schema([]))

    def is_ready(self, live: Live) -> bool:
        """Whether the index covers all files of the table. A few rows that it lacks are added here, more in
        the background. Raises `Unsearchable`, and `OSError` if the disk is full."""
        if self._adding is not None:
            adding, self._adding = self._adding, None
            if (error := adding.exception()) is not None:
                log.info("Rows are added to a key index once more: %s", one_sentence(error))
        missing = self._missing(live)
        if not missing:
            return True
        if self._building is not None:
            if not self._building.done():
                return False
            building, self._building = self._building, None
            building.result()
            missing = self._missing(live)
        if sum(file.rows for file in missing) > LOCAL_ROWS_MAX:
            log.info("A key index of %s rows is built.", sum(file.rows for file in missing))
            self._building = self._background.submit(self._build, missing)
            return False
        self.cover(missing)
        return True

    def _missing(self, live: Live) -> list[Content]:
        return [
            live.files[one.location]
            for one in self.index.uncovered(Indexed(file.location, file.rows) for file in live.files.values())
        ]

    def _build(self, files: Sequence[Content]) -> None:
        some: list[Content] = []
        for file in files:
            some.append(file)
            if sum(one.rows for one in some) >= BUILD_ROWS:
                self.cover(some)
                self.index.save()
                some = []
        self.cover(some)
        self.index.save()

    def cover(self, files: Sequence[Content]) -> None:
        """Adds the rows of these files to the index."""
        reader, by_location = self._reader, {file.location: file for file in files}
        assert reader is not None, "the columns are known"
        for file in files:
            if not reader.reads(file):
                raise Unsearchable(f"{file.location} has columns of other types")
        self.index.cover(
            [Indexed(file.location, file.rows) for file in files],
            lambda one: reader.batches(by_location[one.location]),
        )

    def add(self, files: Sequence[Content]) -> None:
        """Adds the rows of files that are about to be committed, while the caller goes on."""
        if files:
            self._adding = self._adder.submit(self.cover, files)

    def expect(self, live: Live, marked: Sequence[Marked]) -> None:
        """Says what the table will have if the commit succeeds that is about to be made."""
        self.live.expect(live)
        for one in marked:
            vector = live.deletes.vector(one.location)
            assert vector is not None, "it has just been written"
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
        return self.deleted.of(location, live.deletes.vector(location), self._files)

    def rows_of(self, keys: Sequence[pa.RecordBatch], live: Live) -> list[Marked]:
        """The rows that have these keys, in the types of the index's columns, in the files of `live`, which
        the index covers. Raises `Unsearchable`, and `OSError` if the disk fails."""

        def read(location: str) -> Iterable[pa.RecordBatch]:
            assert self._reader is not None
            return self._reader.batches(live.files[location])

        while True:
            try:
                found = live_rows(self.index, keys, live.files, partial(self.deleted_rows, live), read)
                break
            except DamagedRun as why:
                log.warning("A part of a key index is read again: %s", why)
                if not self.is_ready(live):
                    raise Unsearchable("its key index is built again") from why
        marked = []
        for location, rows in found.items():
            rows |= self.deleted_rows(live, location)  # `rows` is a new bitmap
            marked.append(Marked(location, rows, rows.serialize()))
        return marked


class Stream:
    """The small commits to a table that go on while its files are put together. `load`: the table as it is
    now. `keys`: None if only other processes may make such commits."""

    def __init__(self, load: Callable[[], Any], classes: Classes, keys: TableKeys | None) -> None:
        self.load = load
        self._keys = keys
        self._live = LiveFiles(classes) if keys is None else keys.live
        self._deleted = DeletedRows() if keys is None else keys.deleted

    @contextmanager
    def expecting(self, files: Sequence[Content]) -> Iterator[None]:
        """Adds the rows of new files to the index. They are committed in the `with` block, in which this
        process makes no small commit."""
        if self._keys is None:
            yield
            return
        with self._keys.index.held([file.location for file in files]):
            self._keys.cover(files)
            with self._keys.changing:
                yield

    def files(self, target: Any) -> Live:
        return self._live.of(target)

    def deleted(self, live: Live, files: Files, location: str) -> BitMap64:
        """The rows of a data file that are deleted in `live`. Nobody changes the result."""
        return self._deleted.of(location, live.deletes.vector(location), files)

    def expect(self, live: Live) -> None:
        """Says what the table has after the commit that was just made."""
        self._live.expect(live)


@dataclass(frozen=True)
class Marked:
    """All deleted rows of a data file, also as a serialised bitmap."""

    location: str
    rows: BitMap64
    bitmap: bytes

    @property
    def found(self) -> Found:
        return self.location, self.bitmap, len(self.rows)
