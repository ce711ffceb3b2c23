"""The sink `opensearch`: a `TableSink` whose rows are documents.

**Why a repeated epoch changes nothing.** A document's version is the row's `_sequence` (external versions).
The server refuses a write or a deletion whose version is not greater than the document's, also for a document
that was deleted minutes ago. So a write that was interrupted is done again, and what it has done already is
refused, which is no error. At its end the commit is recorded in an index of the sink's own (`records.py`).

**Why a late write changes nothing.** Rows are written through an alias that belongs to the driver's
generation and to one backing index (`indexes.py`). A driver that was replaced does not have it any more, and
a request that was made before a `TRUNCATE` finds no index.

**What readers see.** Rows of an epoch appear one by one, at the next refresh of the index. `TRUNCATE` and a
new definition appear as one step.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from penstock.connections.answers import reading
from penstock.errors import ConfigError, DriverReplaced, TransientError
from penstock.model.change import SEQUENCE
from penstock.model.schema import TableId, TableSchema
from penstock.sinks.base import (
    Commit,
    Compacted,
    EvolvedColumn,
    Foreign,
    Missing,
    Narrowing,
    Ours,
    TargetState,
)
from penstock.sinks.collected import batches_of
from penstock.sinks.evolve import Change, changes, key_after, only_adds, refuse_new_names
from penstock.sinks.names import refuse_own_names, source_columns
from penstock.sinks.opensearch.bulk import Bulk, Gone, deletion, put
from penstock.sinks.opensearch.client import Client, Errors
from penstock.sinks.opensearch.evolve import evolved_documents, widens
from penstock.sinks.opensearch.faults import explained
from penstock.sinks.opensearch.indexes import Backing, Indexes, backing_name, made_for, older_than
from penstock.sinks.opensearch.options import OpenSearchOptions
from penstock.sinks.opensearch.records import Record, Records, writer_of
from penstock.sinks.opensearch.rows import operations
from penstock.sinks.opensearch.scan import OpenSearchScan
from penstock.sinks.recorded import Recorded
from penstock.sinks.refusals import (
    at,
    changed_record,
    check_pipeline,
    is_recorded,
    lost_target,
    of_other_pipeline,
    refuse_foreign,
    refuse_replaced,
    refuse_shared,
)
from penstock.sinks.rows import Rows
from penstock.sinks.spark_sql import target_type

VERSION_MIN = {"opensearch": (1, 0), "elasticsearch": (7, 10)}
"""The first releases that know `require_alias`."""


class OpenSearchSink(Recorded):
    """The sink of one pipeline, whose uuid is `pipeline`."""

    def __init__(self, options: OpenSearchOptions, spark: SparkSession, pipeline: str) -> None:
        super().__init__(pipeline)
        self._options = options
        self._spark = spark
        self._client = Client(options)
        self._bulk = Bulk(self._client, options.bulk_bytes)
        self._records = Records(self._client, options.control)
        self._indexes = Indexes(self._client, options.settings)
        self._prepared = False
        """Whether the index of the records is known to be there."""

    # Sink ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        try:
            with self._explained(f"The server {self._options.url} cannot be used"):
                version = self._client.ask("GET", "/", shape={"version": {"number": str}})["version"]
                with reading():
                    number = tuple(map(int, version["number"].split(".")[:2]))
        except TransientError as error:
            raise ConfigError(error.message, hint="Start it, or correct `sink.url`.") from None
        product = version.get("distribution", "elasticsearch")
        if number < VERSION_MIN.get(product, (0, 0)):
            raise ConfigError(
                f"The server {self._options.url} is {product} {version['number']}, which is too old.",
                hint="The sink needs OpenSearch 1.0 or Elasticsearch 7.10, or newer.",
            )

    def open(self, table: TableId) -> TargetState:
        alias = self._options.alias(table)
        with self._explained(f"The target of {table} cannot be looked at", table):
            backing = self._indexes.behind(alias)
            if backing is None:
                return Missing()
            record = self._records.find(self._options.alias(table))
            cure = "Name another `sink.index`, or delete the index if nobody needs it."
            if record is None:
                return Foreign(alias, "an index that Penstock did not create for this table", cure)
            if record.pipeline != self._pipeline:
                return of_other_pipeline(alias, "index", record.pipeline, cure)
            if _is_other(alias, backing, record):
                return Foreign(alias, "an index that was restored or made by somebody else", cure)
            empty = record.empty and self._indexes.is_empty(backing.name)
        return Ours(record.last, source_columns(tuple(record.columns.names)), empty=empty)

    def create(self, schema: TableSchema, arrow: pa.Schema) -> None:
        table, options = schema.table, self._options
        refuse_own_names(schema, self._options.reserved)
        found = self.open(table)
        refuse_foreign(table, found)
        alias = options.alias(table)
        with self._explained(f"The target of {table} cannot be created", table):
            if not self._prepared:
                self._records.make()
                self._prepared = True
            before = self._records.find(alias)
            if not isinstance(found, Missing):
                refuse_shared(table, alias, None if before is None else before.source)
                return
            backing, columns = f"{alias}~{secrets.token_hex(4)}", target_type(arrow)
            record = Record(
                self._pipeline, str(table), backing, columns, schema.key, generation=self._generation,
                place=None if before is None else before.place,
            )  # fmt: skip
            self._put(table, record)
            writer = writer_of(backing, self._generation)
            self._indexes.make(backing, columns, options.fields(table), alias, writer)
            self._seen.pop(table, None)

    def truncate(
        self, table: TableId, commit: Commit, *, sequence: int, timestamp_us: int | None = None
    ) -> bool:
        with self._writing(table, commit) as record:
            if record is None:
                return False
            record = self._renewed(table, record, commit, record.columns, lambda new: None)
            self._commit(table, replace(record, empty=True), commit)
        return True

    def evolve(
        self, table: TableId, columns: Sequence[EvolvedColumn], commit: Commit, *, narrowing: Narrowing
    ) -> bool:
        with self._writing(table, commit) as record:
            if record is None:
                return False
            present = StructType([field for field in record.columns if field.name != SEQUENCE])
            changed = changes(table, present, columns, reserved=self._options.reserved,
                              stored=lambda kind: kind, widens=widens,
                              narrowing=narrowing)  # fmt: skip
            fields = [StructField(one.name, one.kind) for one in changed]
            after = StructType([*fields, StructField(SEQUENCE, LongType())])
            refuse_new_names(table, columns, changed, present, record.key)
            key = key_after(changed, record.key)
            if only_adds(present, changed):
                self._indexes.add_fields(record.backing, after, self._options.fields(table))
            else:
                record = self._renewed(
                    table, record, commit, after,
                    lambda new: self._copy(table, record.backing, new, changed, present),
                )  # fmt: skip
            self._commit(table, replace(record, columns=after, key=key), commit)
        return True

    def close(self) -> None:
        self._client.close()

    # Fencing ------------------------------------------------------------------------------------------------

    def fence(self, table: TableId) -> None:
        with self._explained(f"The target of {table} cannot be fenced", table):
            backing = self._indexes.behind(self._options.alias(table))
            record = self._records.find(self._options.alias(table))
            if backing is None or record is None or record.pipeline != self._pipeline:
                return
            refuse_replaced(table, record.generation, self._generation)
            self._indexes.fence(backing, self._generation)
            self._put(table, replace(record, generation=self._generation))

    # TableSink ----------------------------------------------------------------------------------------------

    def append(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        return self._write(table, rows, (), commit, deletes=False)

    def merge(self, table: TableId, rows: Rows, key: tuple[str, ...], commit: Commit) -> bool:
        return self._write(table, rows, key, commit, deletes=True)

    def _write(
        self, table: TableId, rows: Rows, key: tuple[str, ...], commit: Commit, *, deletes: bool
    ) -> bool:
        with self._writing(table, commit) as record:
            if record is None:
                return False
            if record.empty:  # before the first document: a kill may follow it
                record = self._put(table, replace(record, empty=False))
            for batch in batches_of(rows):
                made = operations(self._client, table, record, batch, rows, key or record.key)
                kept = made if deletes else [one for one in made if one.body is not None]
                self._bulk.send(table, record.writer, kept)
            self._commit(table, record, commit)
        return True

    def delete_older(self, table: TableId, sequence: int, commit: Commit) -> bool:
        with self._writing(table, commit) as record:
            if record is None:
                return False
            for hits in self._indexes.portions(record.backing, older_than(sequence), whole=False):
                old = [deletion(hit["_id"], sequence - 1, same=True) for hit in hits]
                self._bulk.send(table, record.writer, old)
            self._commit(table, record, commit)
        return True

    def _place_and_source(self, table: TableId) -> tuple[str, str | None]:
        with self._explained(f"The target of {table} cannot be looked at", table):
            record = self._records.find(self._options.alias(table))
        return self._options.alias(table), None if record is None else record.source

    def _remove(self, table: TableId) -> None:
        alias = self._options.alias(table)
        with self._explained(f"The target of {table} cannot be removed", table):
            backing = self._indexes.behind(alias)
            if backing is not None:
                for name in self._indexes.left_over(alias, backing.name):
                    self._indexes.remove(name)
                self._indexes.remove(backing.name)
            self._records.remove(self._options.alias(table))
        self._seen.pop(table, None)

    def compact(self, table: TableId) -> Compacted:
        return Compacted(1, 1)  # the server does that by itself

    # Scannable ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def scan(self) -> Iterator[OpenSearchScan]:
        yield OpenSearchScan(
            self._own_record, lambda index: self._indexes.portions(index, {"match_all": {}}, whole=True)
        )

    def _own_record(self, table: TableId) -> Record:
        alias = self._options.alias(table)
        record, backing = self._records.find(alias), self._indexes.behind(alias)
        if record is None or record.pipeline != self._pipeline or record.lost or backing is None:
            raise lost_target(table)
        if _is_other(alias, backing, record) or backing.name != record.backing:
            raise lost_target(table)
        return record

    # --------------------------------------------------------------------------------------------------------

    def _renewed(
        self, table: TableId, record: Record, commit: Commit, columns: StructType, fill: Any
    ) -> Record:
        """Puts a new index behind the alias, which `fill` has filled. Does nothing if this commit has done
        that."""
        alias = self._options.alias(table)
        current = self._indexes.behind(alias)
        if current is None:
            raise lost_target(table)
        if made_for(alias, current.name) != commit.place:
            for name in self._indexes.left_over(alias, current.name):
                self._indexes.remove(name)
            new = backing_name(alias, commit, self._generation)
            self._indexes.make(new, columns, self._options.fields(table))
            fill(new)
            self._indexes.replace(alias, current.name, new, record.generation)
            current = self._indexes.behind(alias) or current
        return replace(record, backing=current.name, uuid=current.uuid)

    def _copy(
        self, table: TableId, old: str, new: str, changed: Sequence[Change], present: StructType
    ) -> None:
        for hits in self._indexes.portions(old, {"match_all": {}}, whole=True):
            sources = [hit["_source"] for hit in hits]
            made = evolved_documents(sources, changed, present, self._spark)
            puts = [put(hit["_id"], one[SEQUENCE], one) for hit, one in zip(hits, made, strict=True)]
            self._bulk.send(table, new, puts, alias=False)

    @contextlib.contextmanager
    def _writing(self, table: TableId, commit: Commit) -> Iterator[Record | None]:
        """The record of the target. None: it has this commit already, so there is nothing to write."""
        check_pipeline(commit, self._pipeline)
        with self._explained(f"Epoch {commit.epoch} was not written to {table}", table):
            record = self._records.find(self._options.alias(table))
            if record is None or record.pipeline != self._pipeline or record.lost:
                raise lost_target(table)
            place = (0, 0) if record.last is None else record.last.place
            if place < self._seen.get(table, (0, 0)):
                self._put(table, replace(record, lost=True))
                raise lost_target(table)
            refuse_replaced(table, record.generation, self._generation)
            try:
                yield None if is_recorded(commit, record.last) else record
            except Gone:
                self._refuse_replaced(table)
                raise lost_target(table) from None

    def _commit(self, table: TableId, record: Record, commit: Commit) -> None:
        if not record.uuid:
            backing = self._indexes.behind(self._options.alias(table))
            record = replace(record, uuid="" if backing is None else backing.uuid)
        self._put(table, replace(record, last=commit))
        self._seen[table] = commit.place

    def _put(self, table: TableId, record: Record) -> Record:
        stored = self._records.put(self._options.alias(table), record)
        if stored is None:
            self._refuse_replaced(table)
            raise changed_record(table)
        return stored

    def _refuse_replaced(self, table: TableId) -> None:
        record = self._records.find(self._options.alias(table))
        if record is not None:
            refuse_replaced(table, record.generation, self._generation)
            if record.pipeline != self._pipeline:
                raise DriverReplaced(f"Another pipeline has taken over the target of {table}.",
                                     table=str(table))  # fmt: skip

    @contextlib.contextmanager
    def _explained(self, what: str, table: TableId | None = None) -> Iterator[None]:
        try:
            yield
        except Errors as error:
            what = at(what, self._options.url)
            raise explained(error, what, table) from None  # the server's text may have values of rows


def _is_other(alias: str, backing: Backing, record: Record) -> bool:
    """Whether the index behind the alias is not the one that this pipeline has put there."""
    if backing.name == record.backing:
        return bool(record.uuid) and backing.uuid != record.uuid
    last = (0, 0) if record.last is None else record.last.place
    return made_for(alias, backing.name) <= last  # else the commit that made it is still to be recorded
