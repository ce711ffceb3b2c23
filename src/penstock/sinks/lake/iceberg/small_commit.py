"""Commits small epochs without a Spark job: a data file with the new rows, and deletion vectors for the rows
that they replace. The key index (`index/`) says where these are.

The new rows replace those with the same keys. That is right if all rows of the target with these keys are
older (`Newer`), and if the commit is made only once: Iceberg refuses it if rows were added since the version
of the table in which this commit was found to be missing, if a data file with a new vector has been removed,
or if somebody else has written a vector for it. If only others have changed the table meanwhile, the rows are
looked up in its new version, and the commit is tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError

from penstock.failures.messages import one_sentence
from penstock.model.history import IS_CURRENT
from penstock.model.schema import TableId
from penstock.sinks.base import Commit
from penstock.sinks.files import FileWriter, WrittenFile, with_keys
from penstock.sinks.lake.iceberg.commits import Commits
from penstock.sinks.lake.iceberg.fence import generation, row_delta
from penstock.sinks.lake.iceberg.files import (
    Classes,
    description,
    file_writer,
    is_refused,
    key_writer,
    removed_if_refused,
    schema_fields,
)
from penstock.sinks.lake.iceberg.fold_deletes import has_equality_deletes
from penstock.sinks.lake.iceberg.live import Live, LiveFiles, table_keys
from penstock.sinks.lake.iceberg.maintenance import Maintenance
from penstock.sinks.lake.iceberg.manifests import Content
from penstock.sinks.lake.iceberg.mark_rows import Marks, Placed, add_vectors
from penstock.sinks.lake.iceberg.row_reader import Reader
from penstock.sinks.lake.index.tables import Indexes, Marked, TableKeys
from penstock.sinks.lake.lookup import Unsearchable
from penstock.sinks.lake.recorded_commit import COMMIT
from penstock.sinks.lake.versions import Versions
from penstock.sinks.refusals import is_recorded, refuse_replaced
from penstock.sinks.rows import Rows
from penstock.store.files import remove_quietly
from penstock.store.late_files import LateFiles

log = logging.getLogger(__name__)

SMALL = "penstock.small"
"""Summary property of the snapshots of such commits."""


@dataclass(frozen=True)
class _New:
    """What one commit adds: data files, and the keys whose rows it replaces."""

    writer: FileWriter
    files: Sequence[Content]
    keys: Sequence[pa.RecordBatch]
    commit: Commit
    late: LateFiles


Ready = tuple[Any, Live]
"""A target, and its files, all of which the index covers."""


@dataclass(frozen=True)
class _Table:
    """The table of a commit, with its index, as it was when the commit was begun. `fenced`: its generation.
    `layout`: that of the files which are written. Nothing is asked of Iceberg's object later, since Iceberg
    loads a table again when a transaction begins, and somebody may change the partitions meanwhile."""

    name: TableId
    index: TableKeys[LiveFiles]
    fenced: int
    layout: _Layout


@dataclass(frozen=True)
class _Layout:
    """Ids of a partition spec and of a sort order."""

    spec: int
    order: int

    @classmethod
    def of(cls, target: Any) -> _Layout:
        return cls(int(target.spec().specId()), int(target.sortOrder().orderId()))

    def described(self, files: Sequence[WrittenFile], fields: pa.Schema) -> list[Content]:
        return [Content(description(self.spec, file, fields, sort_order=self.order), 0) for file in files]


class SmallCommits:
    def __init__(
        self, classes: Classes, commits: Commits, indexes: Indexes[LiveFiles], maintenance: Maintenance
    ) -> None:
        self._classes = classes
        self._commits = commits
        self._indexes = indexes
        self._maintenance = maintenance

    def write(
        self,
        table: TableId,
        target: Any,
        rows: Rows,
        key: tuple[str, ...],
        commit: Commit,
        versions: bool = False,
    ) -> bool:
        """Replaces the target's rows that have the same keys as these, in the layout `latest`. `key` empty:
        nothing is replaced. False, with nothing done: the table or these rows need Spark. `versions`: the
        rows are changes, and the target keeps versions."""
        if rows.driver_side is None or self._classes.format_version(target) < 2:
            return False
        writer = file_writer(self._classes, target)
        if writer is None:
            return False
        if rows.shard is not None and key:
            key = (*key, rows.shard.column)
        keys = key_writer(writer, (*key, IS_CURRENT) if versions else key)
        if keys is None:
            return False
        changes = Versions.of(rows.driver_side(), key, writer.row_fields) if versions else None
        if versions and changes is None:
            return False
        if not key:
            self._append(table, target, rows.driver_side, writer, commit)
            return True
        index = table_keys(self._indexes, self._classes, table, target, keys)
        one = _Table(table, index, generation(target), _Layout.of(target))
        for is_last in (False, True):
            target = self._without_equality_deletes(one, target)
            with index.held(target, partial(self._load, one)) as newest:
                if changes is not None:
                    done = self._replace_versions(one, newest, changes, writer, keys, commit)
                else:
                    done = self._replace(one, newest, rows.driver_side, writer, keys, commit)
            if done or is_last or not has_equality_deletes(target := self._load(one)):
                return done
        return False

    def _without_equality_deletes(self, table: _Table, target: Any) -> Any:
        """Called before the index is held: maintenance excludes other work on the table first, and then
        holds the index."""
        if not has_equality_deletes(target):
            return target
        self._maintenance.fold(table.name)
        return self._load(table)

    def _append(
        self,
        table: TableId,
        target: Any,
        rows: Callable[[], Iterable[pa.RecordBatch]],
        writer: FileWriter,
        commit: Commit,
    ) -> None:
        locations: list[str] = []
        files, keys = writer.folder.files, self._identifier(writer, target)
        with removed_if_refused(target, files, locations), LateFiles(files) as late:
            writer = writer.late(late)
            written = None if keys is None else with_keys(writer, keys, rows())
            found = list(writer.files(rows())) if written is None else written.files
            new = _New(writer, _Layout.of(target).described(found, writer.fields), (), commit, late)
            locations += _locations(new)
            if keys is not None and written is not None and (known := written.by_file(keys)):
                table_keys(self._indexes, self._classes, table, target, keys).add(new.files, known)
            self._add(target, None, new)

    def _identifier(self, writer: FileWriter, target: Any) -> FileWriter | None:
        """A writer of the key, which is what the next epochs will look for. None: the table does not say what
        it is, or in which order it has several columns."""
        names = self._classes.identifiers(target)
        return key_writer(writer, tuple(names)) if len(names) == 1 else None

    def _replace(
        self,
        table: _Table,
        target: Any,
        rows: Callable[[], Iterable[pa.RecordBatch]],
        writer: FileWriter,
        keys: FileWriter,
        commit: Commit,
    ) -> bool:
        index, ready = table.index, self._ready(table, target)
        if ready is None:
            return False
        locations: list[str] = []
        files = writer.folder.files
        with removed_if_refused(target, files, locations), LateFiles(files) as late:
            new = self._written(table, writer.late(late), keys, rows(), commit, late)
            if new is None:
                return False  # a zero date arrives as NULL, and two NULLs may be different dates
            locations += _locations(new)
            while ready is not None:
                try:
                    marked = index.rows_of(new.keys, ready[1])
                except (Unsearchable, OSError) as why:
                    log.info("%s: it has no key index now: %s", table.name, one_sentence(why))
                    break
                try:
                    self._add(*ready, new, index, marked)
                    return True
                except Py4JJavaError as error:
                    ready = self._once_more(table, ready, commit, error)
        remove_quietly(files, locations)
        return False

    def _written(
        self,
        table: _Table,
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
        named = [keys.in_fields(batch) for batch in written.all_keys(keys)]
        new = _New(writer, table.layout.described(written.files, writer.fields), named, commit, late)
        known = written.by_file(keys)
        if not known:
            late.settle()
        table.index.add(new.files, known)
        return new

    def _replace_versions(
        self,
        table: _Table,
        target: Any,
        changes: Versions,
        writer: FileWriter,
        keys: FileWriter,
        commit: Commit,
    ) -> bool:
        ready = self._ready(table, target)
        while ready is not None:
            try:
                reader = self._reader(ready[0], writer)
                rows, found = changes.against(table.index, keys.row_fields, reader, ready[1])
            except (Unsearchable, OSError) as why:
                log.info("%s: Spark writes its versions: %s", table.name, one_sentence(why))
                return False
            marked = table.index.marked(found, ready[1])
            try:
                self._add_versions(ready, table, rows, marked, writer, keys, commit)
                return True
            except Py4JJavaError as error:
                ready = self._once_more(table, ready, commit, error)
        return False

    def _reader(self, target: Any, writer: FileWriter) -> Reader:
        """Reads all columns of rows."""
        columns = schema_fields(self._classes, target)
        known = partial(self._classes.identity_columns, target)
        return Reader.of(columns, writer.fields, writer.folder.files, pa.schema([]), in_partitions=known)

    def _add_versions(
        self,
        ready: Ready,
        table: _Table,
        rows: Iterable[pa.RecordBatch],
        marked: Sequence[Marked],
        writer: FileWriter,
        keys: FileWriter,
        commit: Commit,
    ) -> None:
        target, live = ready
        files = writer.folder.files
        locations: list[str] = []
        with removed_if_refused(target, files, locations), LateFiles(files) as late:
            new = self._written(table, writer.late(late), keys, rows, commit, late)
            assert new is not None, "no key is NULL"
            locations += _locations(new)
            self._add(target, live, new, table.index, marked)

    def _once_more(self, table: _Table, before: Ready, commit: Commit, error: Py4JJavaError) -> Ready | None:
        """The target, whose change by somebody else has made a commit impossible, and its files. None: the
        index does not cover all of them. Raises the error if it has another cause."""
        if not is_refused(error):
            raise error
        target = self._load(table)
        recorded = is_recorded(commit, self._commits.last(target, commit.source))
        if recorded or table.index.live.is_of(before[1], target):
            raise error
        log.info("%s: somebody else has changed it: %s", table.name, _reason(error))
        return self._ready(table, target)

    def _load(self, table: _Table) -> Any:
        """The target as it is now. Refused if another driver has taken over since."""
        target = self._maintenance.load(table.name)
        refuse_replaced(table.name, generation(target), table.fenced)
        return target

    def _ready(self, table: _Table, target: Any) -> Ready | None:
        """The target, and its files. None: the index does not cover all of them, or somebody has just added
        equality deletes."""
        index = table.index
        try:
            live = index.live.of(target)
            if not live.deletes.equality and index.is_ready(live):
                return target, live
        except (Unsearchable, OSError) as why:
            log.info("%s: it has no key index now: %s", table.name, one_sentence(why))
        return None

    def _add(
        self,
        target: Any,
        live: Live | None,
        new: _New,
        index: TableKeys[LiveFiles] | None = None,
        marked: Sequence[Marked] = (),
    ) -> None:
        """Commits the files. `live`: the target's files, some rows of which are `marked` as deleted."""
        # Before `newTransaction`, which loads the table again.
        seen = target.currentSnapshot() if live is None else live.of(target)
        transaction = target.newTransaction()
        written: list[str] = []
        with removed_if_refused(target, new.writer.folder.files, written):
            if new.files or marked:
                change = row_delta(self._classes, transaction, seen)
                for one in new.files:
                    change.addRows(self._classes.data_file(target, one.described))
                placed: Placed = {}
                if live is not None and marked:
                    marks = Marks(live.files, live.deletes, [one.found for one in marked])
                    placed = add_vectors(self._classes, target, change, new.writer.folder, marks, written)
                change.set(COMMIT, str(new.commit)).set(SMALL, "true").commit()
                if live is not None and index is not None:
                    staged = transaction.table().currentSnapshot()
                    after = live.after(int(staged.snapshotId()), new.files, placed)
                    index.live.expect(after)
                    index.remember(after, marked)
            self._commits.record(transaction, transaction.table(), new.commit)
            new.late.settle()
            transaction.commitTransaction()
        if index is not None:
            index.committed()


def _reason(error: Py4JJavaError) -> str:
    return str(error.java_exception.getMessage()).partition("\n")[0][:500]


def _locations(new: _New) -> list[str]:
    return [file.location for file in new.files]
