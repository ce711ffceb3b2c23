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
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from penstock.failures.messages import one_sentence
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
from penstock.sinks.lake.delta.live import File, Live, LiveFiles, table_keys
from penstock.sinks.lake.delta.mark_rows import Changes, mark_rows
from penstock.sinks.lake.index.tables import Indexes, Marked, TableKeys
from penstock.sinks.lake.lookup import Unsearchable
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

    def stored(self) -> list[File]:
        return [File.of(action["add"], self.folder) for action in self.files]


@dataclass(frozen=True)
class _Table:
    """The table of a commit, with its index. `fenced`: the generation that it was seen to have."""

    name: TableId
    index: TableKeys[LiveFiles]
    folder: Folder
    fenced: int


Ready = tuple[Any, Live]
"""A snapshot, and its files, all of which the index covers."""


class SmallCommits:
    """`load`: see `LakeFormat`."""

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

    def write(self, table: TableId, snapshot: Any, rows: Rows, key: tuple[str, ...], commit: Commit) -> bool:
        """Replaces the target's rows that have the same keys as these, in the layout `latest`. False, with
        nothing done: the table or these rows need another way."""
        if rows.driver_side is None or not takes_vectors(snapshot):
            return False
        writer = file_writer(self._spark, self._access, snapshot)
        keys = None if writer is None else key_writer(writer, _with_shard(key, rows))
        if writer is None or keys is None:
            return False
        index = table_keys(self._indexes, table, keys)
        one = _Table(table, index, writer.folder, generation(snapshot))
        if not index.changing.acquire(blocking=False):
            index.changing.acquire()
            snapshot = self._load(one)  # what was waited for has changed it
        try:
            return self._replace(one, snapshot, rows.driver_side, writer, keys, commit)
        finally:
            index.changing.release()

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
            writer = writer.late(late)
            written = with_keys(writer, keys, rows())
            if written is None:
                return False  # a zero date arrives as NULL, and two NULLs may be different dates
            locations += [file.location for file in written.files]
            clustered = clustering(self._spark, snapshot)
            files = [added(file, writer, clustered) for file in written.files]
            named = [keys.in_fields(batch) for batch in written.all_keys(keys)]
            new = _New(writer.folder, files, named, commit, late)
            known = written.by_file(keys)
            if not known:
                late.settle()
            stored = new.stored()
            table.index.add(stored, {one.location: known[one.path] for one in stored if one.path in known})
            while ready is not None:
                try:
                    marked = table.index.rows_of(new.keys, ready[1])
                except (Unsearchable, OSError) as why:
                    log.info("%s: it has no key index now: %s", table.name, one_sentence(why))
                    break
                changes = mark_rows(new.folder, ready[1].files, [one.found for one in marked])
                try:
                    with _removed_if_refused(new.folder, changes.written):
                        self._commit(table.index, *ready, new, changes, marked)
                    return True
                except Py4JJavaError as error:
                    ready = self._once_more(table, ready, commit, error)
        remove_quietly(table.folder.files, locations)
        return False

    def _commit(
        self,
        index: TableKeys[LiveFiles],
        snapshot: Any,
        live: Live,
        new: _New,
        changes: Changes,
        marked: Sequence[Marked],
    ) -> None:
        actions = [*changes.actions, *new.files]
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
        if recorded or snapshot.version() == before[1].version:
            raise error
        log.info("%s: somebody else has changed it", table.name)
        return self._ready(table, snapshot)

    def _load(self, table: _Table) -> Any:
        """The target as it is now. Refused if another driver has taken over since."""
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
