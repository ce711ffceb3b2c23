"""Commits small epochs without a Spark job: a data file with the new rows, and deletion vectors for the rows
that they replace. The key index (`lake/index/`) says where these are.

The new rows replace those with the same keys. That is right if all rows of the target with these keys are
older (`Newer`), and if the commit is made only once. The commit starts from the version in which it was found
to be missing, and declares the whole table as read. So Delta refuses it if rows were added since, if files
were removed, or if this commit was made by somebody else. If only others have changed the table meanwhile,
the rows are looked up in its new version, and the commit is tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from penstock.failures.messages import one_sentence
from penstock.model.history import IS_CURRENT
from penstock.model.schema import TableId
from penstock.sinks.base import Commit
from penstock.sinks.files import FileWriter, with_keys
from penstock.sinks.lake.access import Access
from penstock.sinks.lake.delta.commits import Action, Commits
from penstock.sinks.lake.delta.files import (
    added,
    clustering,
    file_writer,
    generation,
    key_writer,
    takes_vectors,
)
from penstock.sinks.lake.delta.live import File, KeyReader, Live, LiveFiles, table_keys
from penstock.sinks.lake.delta.mark_rows import mark_rows
from penstock.sinks.lake.index.tables import Indexes, Marked, TableKeys
from penstock.sinks.lake.lookup import Unsearchable
from penstock.sinks.lake.versions import Versions
from penstock.sinks.refusals import is_recorded, refuse_replaced
from penstock.sinks.rows import Rows
from penstock.store.files import Folder, remove_quietly
from penstock.store.late_files import LateFiles

log = logging.getLogger(__name__)

_CONFLICTS = ("ConcurrentAppendException", "ConcurrentDeleteReadException", "ConcurrentDeleteDeleteException")
"""Delta's refusals of a commit because somebody else has changed rows or files."""


@dataclass(frozen=True)
class _New:
    """What one commit adds: entries of the log for data files, and the keys whose rows it replaces."""

    folder: Folder
    files: Sequence[Action]
    keys: Sequence[pa.RecordBatch]
    commit: Commit
    late: LateFiles
    locations: Sequence[str]

    def stored(self) -> list[File]:
        return [File.of(action["add"], self.folder) for action in self.files]


@dataclass(frozen=True)
class _Table:
    """The table of a commit, with its index. `fenced`: the generation in its properties when it was read."""

    name: TableId
    index: TableKeys[LiveFiles]
    folder: Folder
    fenced: int


Ready = tuple[Any, Live]
"""A snapshot, and its files, all of which the index covers."""


class SmallCommits:
    """Commits small epochs without a Spark job. `load`: see `LakeFormat`."""

    def __init__(
        self,
        spark: SparkSession,
        access: Access,
        commits: Commits,
        indexes: Indexes[LiveFiles],
        load: Callable[[TableId], Any],
    ) -> None:
        self._spark = spark
        self._access = access
        self._commits = commits
        self._indexes = indexes
        self._load_newest = load

    def write(
        self,
        table: TableId,
        snapshot: Any,
        rows: Rows,
        key: tuple[str, ...],
        commit: Commit,
        versions: bool = False,
    ) -> bool:
        """Replaces the target's rows that have the same keys as these, in the layout `latest`. False, with
        nothing done: the table or these rows need another way. `versions`: the rows are changes, and the
        target keeps versions."""
        if rows.driver_side is None or not takes_vectors(snapshot):
            return False
        writer = file_writer(self._spark, self._access, snapshot)
        used = (*key, IS_CURRENT) if versions else _with_shard(key, rows)
        keys = None if writer is None else key_writer(writer, used)
        if writer is None or keys is None:
            return False
        changes = Versions.of(rows.driver_side(), key, writer.row_fields) if versions else None
        if versions and changes is None:
            return False
        index = table_keys(self._indexes, table, keys)
        one = _Table(table, index, writer.folder, generation(snapshot))
        with index.held(snapshot, partial(self._load, one)) as newest:
            if changes is not None:
                return self._replace_versions(one, newest, changes, writer, keys, commit)
            return self._replace(one, newest, rows.driver_side, writer, keys, commit)

    def _replace(
        self,
        table: _Table,
        snapshot: Any,
        rows: Callable[[], Iterable[pa.RecordBatch]],
        writer: FileWriter,
        keys: FileWriter,
        commit: Commit,
    ) -> bool:
        ready = self._ready(table, snapshot)
        if ready is None:
            return False
        locations: list[str] = []
        with _removed_if_refused(table.folder, locations), LateFiles(table.folder.files) as late:
            new = self._written(table.index, snapshot, writer.late(late), keys, rows(), commit, late)
            if new is None:
                return False  # a zero date arrives as NULL, and two NULLs may be different dates
            locations += new.locations
            while ready is not None:
                try:
                    marked = table.index.rows_of(new.keys, ready[1])
                except (Unsearchable, OSError) as why:
                    log.info("%s: it has no key index now: %s", table.name, one_sentence(why))
                    break
                try:
                    self._commit(table.index, *ready, new, marked)
                    return True
                except Py4JJavaError as error:
                    ready = self._once_more(table, ready, commit, error)
        remove_quietly(table.folder.files, locations)
        return False

    def _written(
        self,
        index: TableKeys[LiveFiles],
        snapshot: Any,
        writer: FileWriter,
        keys: FileWriter,
        rows: Iterable[pa.RecordBatch],
        commit: Commit,
        late: LateFiles,
    ) -> _New | None:
        """Writes the rows, and adds them to the index. They replace those with the same keys. None: a key is
        NULL."""
        written = with_keys(writer, keys, rows)
        if written is None:
            return None
        clustered = clustering(self._spark, snapshot)
        files = [added(file, writer, clustered) for file in written.files]
        named = [keys.in_fields(batch) for batch in written.all_keys(keys)]
        new = _New(writer.folder, files, named, commit, late, [file.location for file in written.files])
        known = written.by_file(keys)
        if not known:
            late.settle()
        stored = new.stored()
        index.add(stored, {one.location: known[one.path] for one in stored if one.path in known})
        return new

    def _replace_versions(
        self,
        table: _Table,
        snapshot: Any,
        changes: Versions,
        writer: FileWriter,
        keys: FileWriter,
        commit: Commit,
    ) -> bool:
        ready = self._ready(table, snapshot)
        while ready is not None:
            try:
                reader = KeyReader(writer.row_fields, writer.folder.files)
                rows, found = changes.against(table.index, keys.row_fields, reader, ready[1])
            except (Unsearchable, OSError) as why:
                log.info("%s: Spark writes its versions: %s", table.name, one_sentence(why))
                return False
            marked = table.index.marked(found, ready[1])
            try:
                self._add_versions(ready, table.index, rows, marked, writer, keys, commit)
                return True
            except Py4JJavaError as error:
                ready = self._once_more(table, ready, commit, error)
        return False

    def _add_versions(
        self,
        ready: Ready,
        index: TableKeys[LiveFiles],
        rows: Iterable[pa.RecordBatch],
        marked: Sequence[Marked],
        writer: FileWriter,
        keys: FileWriter,
        commit: Commit,
    ) -> None:
        snapshot, live = ready
        files = writer.folder.files
        locations: list[str] = []
        with _removed_if_refused(writer.folder, locations), LateFiles(files) as late:
            new = self._written(index, snapshot, writer.late(late), keys, rows, commit, late)
            assert new is not None, "no key is NULL"
            locations += new.locations
            self._commit(index, snapshot, live, new, marked)

    def _commit(
        self, index: TableKeys[LiveFiles], snapshot: Any, live: Live, new: _New, marked: Sequence[Marked]
    ) -> None:
        changes = mark_rows(new.folder, live.files, [one.found for one in marked])
        actions = [*changes.actions, *new.files]
        with _removed_if_refused(new.folder, changes.written):
            new.late.settle()
            version = self._commits.write(snapshot, new.commit, actions, reads=True)
        if version == live.version + 1:  # nothing else was committed in between
            after = live.after(version, [*changes.changed, *new.stored()], changes.removed)
            index.live.committed(after)
            index.remember(after, marked)
        index.committed()

    def _once_more(self, table: _Table, before: Ready, commit: Commit, error: Py4JJavaError) -> Ready | None:
        """The target, whose change by somebody else has made a commit impossible, and its files. None: the
        index does not cover all of them. Raises the error if it has another cause."""
        if not is_conflict(error):
            raise error
        snapshot = self._load(table)
        recorded = is_recorded(commit, self._commits.last(snapshot, commit.source))
        if recorded or snapshot.version() == before[1].version or self._commits.lacks_any(snapshot):
            raise error
        log.info("%s: somebody else has changed it", table.name)
        return self._ready(table, snapshot)

    def _load(self, table: _Table) -> Any:
        """The target as it is now. Raises `DriverReplaced` if another driver has taken over since."""
        snapshot = self._load_newest(table.name)
        refuse_replaced(table.name, generation(snapshot), table.fenced)
        return snapshot

    def _ready(self, table: _Table, snapshot: Any) -> Ready | None:
        """The target, and its files. None: the index does not cover all of them."""
        try:
            live = table.index.live.of(snapshot, table.folder)
            if table.index.is_ready(live):
                return snapshot, live
        except (Unsearchable, OSError) as why:
            log.info("%s: it has no key index now: %s", table.name, one_sentence(why))
        return None


def _with_shard(key: tuple[str, ...], rows: Rows) -> tuple[str, ...]:
    return key if rows.shard is None else (*key, rows.shard.column)


def is_conflict(error: Py4JJavaError) -> bool:
    """Whether Delta has refused a commit because of another one."""
    return error.java_exception.getClass().getSimpleName() in _CONFLICTS


@contextmanager
def _removed_if_refused(folder: Folder, locations: Sequence[str]) -> Iterator[None]:
    """Removes files that were written for a commit if Delta certainly refused it."""
    try:
        yield
    except Py4JJavaError as error:
        if is_conflict(error):
            remove_quietly(folder.files, locations)
        raise
