"""A sink in front of another one, which gets the rows as `transforms` makes them.

To its callers, a target has the columns of its source table and every row of it. So nothing else in a
pipeline knows of transforms: plans, placement, schema changes and recovery are the same with and without
them. That is correct because a transform is a function of one row, which never changes the key:

- What has to happen to a key at the target (it is newer, older, deleted) does not depend on other columns.
- Repeating a write repeats the same rows, and the inner sink recognises its commit as ever.
- A row that `where` leaves out is a deleted one (`transforms/stages.py`).

The name of the target may be another one (`to`): the inner sink knows only this name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from penstock.errors import InternalError, TableError
from penstock.model.change import CHANGE_TYPE
from penstock.model.plan import Move
from penstock.model.schema import Column, TableId, TableSchema
from penstock.model.transforms import Transforms
from penstock.printable import argument
from penstock.secret import Secret
from penstock.sinks.base import (
    ChangeSink,
    Commit,
    Compacted,
    EvolvedColumn,
    Fencing,
    Foreign,
    Narrowing,
    Ours,
    Readable,
    Scan,
    Scannable,
    Sink,
    TableSink,
    TargetState,
    VersionSink,
    adopting,
    change_sink,
    lasting,
    readable,
    table_sink,
    version_sink,
)
from penstock.sinks.rows import Batches, Newer, Rows
from penstock.spark.row_failures import sift
from penstock.spark.scratch import Scratch
from penstock.spark.sql_stages import row_failure
from penstock.spark.transform_chain import Chain
from penstock.state.dead_letters import listing
from penstock.store.folder import StoreFolder
from penstock.transforms.stages import BEFORE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class TransformedSink:
    """What tables and change logs have in common. `untouched`: tables of the pipeline's own, which no rule is
    applied to. `letters`: the folder for lists of rows that fail. `scratch`: for rows that are transformed
    without them; None: no rows are written."""

    def __init__(
        self,
        inner: Sink,
        transforms: Transforms,
        spark: SparkSession,
        secret: Secret,
        *,
        letters: Path,
        scratch: StoreFolder | None = None,
        untouched: Collection[TableId] = (),
    ) -> None:
        self._inner = inner
        self._transforms = transforms
        self._spark = spark
        self._secret = secret
        self._letters = letters
        self._scratch = scratch
        self._untouched = frozenset(untouched)
        self._keys: dict[TableId, tuple[str, ...]] = {}

    def check(self) -> None:
        self._inner.check()

    def close(self) -> None:
        self._inner.close()

    def open(self, table: TableId) -> TargetState:
        found = self._inner.open(self.name_of(table))
        if isinstance(found, Foreign) and self._rules(table):
            return replace(found, adoptable=False)  # its rows were not transformed
        return found

    def knows(self, schema: TableSchema) -> None:
        """Says by which columns the source identifies the rows of a table. Lists of rows that failed show
        them."""
        self._keys[schema.table] = schema.key

    def fits(self, schema: TableSchema, arrow: pa.Schema) -> None:
        """Raises `TableError` if the rules for a table cannot be applied to it."""
        self._chain(schema.table, self._key(schema.key)).target_columns(arrow)

    def create(self, schema: TableSchema, arrow: pa.Schema) -> None:
        if not self._rules(schema.table):
            self._inner.create(replace(schema, table=self.name_of(schema.table)), arrow)
            return
        self.knows(schema)
        chain = self._chain(schema.table, self._key(schema.key))
        fields = chain.target_columns(arrow)
        known = {chain.name_after(one.name): one for one in schema.columns}
        columns = tuple(
            replace(known[name], name=name) if name in known else Column(name, "text")
            for name in fields.names
        )
        key = tuple(chain.name_after(name) for name in schema.key)
        key = key if set(key) <= set(fields.names) else ()  # a change log may leave it out
        self._inner.create(
            replace(schema, table=self.name_of(schema.table), columns=columns, key=key, unique=None), fields
        )

    def truncate(
        self, table: TableId, commit: Commit, *, sequence: int, timestamp_us: int | None = None
    ) -> bool:
        return self._inner.truncate(self.name_of(table), commit, sequence=sequence, timestamp_us=timestamp_us)

    def evolve(
        self, table: TableId, columns: Sequence[EvolvedColumn], commit: Commit, *, narrowing: Narrowing
    ) -> bool:
        target = self.name_of(table)
        if self._rules(table):
            columns = self._evolved(table, columns)
        return self._inner.evolve(target, columns, commit, narrowing=narrowing)

    def _evolved(self, table: TableId, columns: Sequence[EvolvedColumn]) -> list[EvolvedColumn]:
        """The target's columns after a change of its table."""
        in_key = sorted((one for one in columns if one.key), key=lambda one: one.key)
        self._keys[table] = tuple(one.field.name for one in in_key)
        chain = self._chain(table, self._key(self._keys[table]))
        fields = chain.target_columns(pa.schema([one.field for one in columns]))
        found = self._inner.open(self.name_of(table))
        # Unknown: a sink of which nothing remains does not know after a restart what it has created before.
        present = set(found.columns) if isinstance(found, Ours) else None
        sources = {chain.name_after(one.field.name): one for one in columns}
        return [self._origin(table, chain, one, sources.get(one.name), present) for one in fields]

    def _origin(
        self,
        table: TableId,
        chain: Chain,
        one: pa.Field,
        source: EvolvedColumn | None,
        present: set[str] | None,
    ) -> EvolvedColumn:
        if source is None:  # computed
            before = one.name if present is None or one.name in present else None
            return EvolvedColumn(one, before, refills=True)
        before = None if source.before is None else chain.name_after(source.before)
        lacks = before is not None and present is not None and before not in present
        if lacks and not source.refills:
            raise _read_again(table, one.name, "was left out of the target before")
        if source.before is None and source.default is not None and chain.changes_values(source.field.name):
            raise _read_again(table, one.name, "was added with a default, which `transforms` changes")
        return replace(source, field=one, before=before)

    # --------------------------------------------------------------------------------------------------------

    def chain(self, schema: TableSchema) -> Chain | None:
        """The rules for rows of the table. None: there are none."""
        return self._chain(schema.table, schema.key) if self._rules(schema.table) else None

    def _key(self, key: tuple[str, ...]) -> tuple[str, ...]:
        """The columns that rules must leave as they are: a change log finds no rows by them."""
        return key if isinstance(self._inner, TableSink) else ()

    def _rules(self, table: TableId) -> bool:
        return table not in self._untouched and bool(self._transforms.of(table))

    def name_of(self, table: TableId) -> TableId:
        """The name of the table at the target, and in messages."""
        return table if table in self._untouched else self._transforms.target(table)

    def _chain(self, table: TableId, key: tuple[str, ...]) -> Chain:
        return Chain(self._spark, table, self._transforms.of(table), key, self._secret)

    def _write(
        self, chain: Chain, rows: Rows, commit: Commit, write: Callable[[Rows], bool],
        finish: Callable[[Rows], Rows] = lambda rows: rows,
    ) -> bool:  # fmt: skip
        """Writes the rows, or all that do not fail, if failures are listed."""
        try:
            return write(finish(chain.rows(rows)))
        except Exception as error:
            failure = row_failure(chain.table, error)
            if failure is None:
                raise
            if not chain.lists_failures or rows.incomplete is not None:
                raise failure from error
        key = chain.key or self._keys.get(chain.table, ())
        with contextlib.ExitStack() as stack:
            with listing(self._letters, chain.table, commit) as add:
                if rows.driver_side is not None:
                    good = list(sift(chain, rows.driver_side(), key, add))
                    made = self._few(chain, rows, good)
                elif self._scratch is None:
                    raise InternalError("Rows were written through a sink that was opened without `scratch`.")
                else:
                    scratch = Scratch(self._spark, self._scratch)
                    stack.callback(scratch.remove)
                    batches = scratch.batches(rows.frame)
                    made = self._many(chain, rows, sift(chain, batches, key, add), scratch)
            return write(finish(made))

    def _few(self, chain: Chain, rows: Rows, good: list[pa.RecordBatch]) -> Rows:
        def frame() -> DataFrame:
            if not good:
                return chain.frame(rows.frame).limit(0)
            kinds = from_arrow_schema(good[0].schema, prefer_timestamp_ntz=True)
            return self._spark.createDataFrame(pa.Table.from_batches(good), kinds)

        return Rows(frame, Newer(lambda: iter(good)), shard=rows.shard)

    def _many(self, chain: Chain, rows: Rows, good: Batches, scratch: Scratch) -> Rows:
        """The rows in files: they may be more than the driver has memory for."""
        fields = chain.columns(to_arrow_schema(rows.frame.schema))
        return Rows(scratch.keep_batches(good, fields), rows.kind, shard=rows.shard)


class ReadBack(TransformedSink):
    """Stands in front of a sink that can be read back."""

    def version(self, table: TableId) -> str | None:
        return readable(self._inner).version(self.name_of(table))

    def target_id(self, table: TableId) -> str:
        return lasting(self._inner).target_id(self.name_of(table))

    def hold(self, table: TableId) -> str | None:
        return readable(self._inner).hold(self.name_of(table))

    def read(self, table: TableId, version: str | None = None) -> DataFrame:
        return readable(self._inner).read(self.name_of(table), version)


class TransformedTables(TransformedSink):
    """Stands in front of a `TableSink`."""

    def differences(self, schema: TableSchema, arrow: pa.Schema, *, rows: bool) -> list[str]:
        return adopting(self._inner).differences(schema, arrow, rows=rows)

    def adopt(self, schema: TableSchema, arrow: pa.Schema) -> None:
        adopting(self._inner).adopt(schema, arrow)

    def append(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        inner, target = table_sink(self._inner), self.name_of(table)
        if not self._rules(table):
            return inner.append(target, rows, commit)
        chain = self._chain(table, ())
        return self._write(chain, rows, commit, lambda made: inner.append(target, made, commit))

    def merge(self, table: TableId, rows: Rows, key: tuple[str, ...], commit: Commit) -> bool:
        inner, target = table_sink(self._inner), self.name_of(table)
        if not self._rules(table):
            return inner.merge(target, rows, key, commit)
        chain = self._chain(table, key)
        names = chain.key_after
        return self._write(chain, rows, commit, lambda made: inner.merge(target, made, names, commit))

    def delete_older(self, table: TableId, sequence: int, commit: Commit) -> bool:
        return table_sink(self._inner).delete_older(self.name_of(table), sequence, commit)

    def drop(self, table: TableId) -> None:
        table_sink(self._inner).drop(self.name_of(table))

    def clear(self, table: TableId) -> None:
        table_sink(self._inner).clear(self.name_of(table))

    def identity(self, table: TableId) -> str | None:
        """Returns None, because other rules may hold under another name. So a renamed table is read again."""
        return None

    def move(self, moves: Sequence[Move]) -> list[Move]:
        """Moves of a plan that was made without transforms."""
        return table_sink(self._inner).move(moves)

    def compact(self, table: TableId) -> Compacted:
        return table_sink(self._inner).compact(self.name_of(table))

    def begin(self, generation: int) -> None:
        if isinstance(self._inner, Fencing):
            self._inner.begin(generation)

    def fence(self, table: TableId) -> None:
        if isinstance(self._inner, Fencing):
            self._inner.fence(self.name_of(table))


class ReadableTables(TransformedTables, ReadBack):
    """Stands in front of a `TableSink` that can be read back."""


class ScannableTables(TransformedTables):
    """Stands in front of a `TableSink` that can be read only as it is now."""

    @contextlib.contextmanager
    def scan(self) -> Iterator[Scan]:
        assert isinstance(self._inner, Scannable)
        with self._inner.scan() as scan:
            yield _TransformedScan(scan, self.name_of)


@dataclass(frozen=True)
class _TransformedScan:
    inner: Scan
    target: Callable[[TableId], TableId]

    @property
    def isolated(self) -> bool:
        return self.inner.isolated

    def batches(self, table: TableId, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
        return self.inner.batches(self.target(table), fields)


class TransformedVersions(ReadableTables):
    """Stands in front of a `VersionSink`."""

    def write_versions(self, table: TableId, rows: Rows, key: tuple[str, ...], commit: Commit) -> bool:
        inner, target = version_sink(self._inner), self.name_of(table)
        if not self._rules(table):
            return inner.write_versions(target, rows, key, commit)
        chain = self._chain(table, key)
        names = chain.key_after
        return self._write(
            chain, rows, commit, lambda made: inner.write_versions(target, made, names, commit)
        )

    def read_whole(self, table: TableId) -> DataFrame:
        return version_sink(self._inner).read_whole(self.name_of(table))


class TransformedChanges(TransformedSink):
    """Stands in front of a `ChangeSink`."""

    @property
    def before_images(self) -> bool:
        """Conditions need both rows of an update."""
        conditions = any(rule.where is not None for rule in self._transforms.rules)
        return conditions or change_sink(self._inner).before_images

    def write_changes(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        inner, target = change_sink(self._inner), self.name_of(table)

        def finish(made: Rows) -> Rows:
            return made if inner.before_images == self.before_images else _without_before(made)

        if not self._rules(table):
            return inner.write_changes(target, finish(rows), commit)
        chain = self._chain(table, ())
        return self._write(
            chain, rows, commit, lambda made: inner.write_changes(target, made, commit), finish
        )


class ReadableChanges(TransformedChanges, ReadBack):
    """Stands in front of a `ChangeSink` that can be read back."""


def transformed(sink: Sink, transforms: Transforms, spark: SparkSession, secret: Secret, *,
                letters: Path, scratch: StoreFolder | None = None,
                untouched: Collection[TableId] = ()) -> Sink:  # fmt: skip
    """The sink, with transforms in front of it. Without rules, it is the sink itself."""
    if not transforms:
        return sink
    reads = isinstance(sink, Readable)
    if isinstance(sink, VersionSink):
        kind: type[TransformedSink] = TransformedVersions
    elif isinstance(sink, TableSink):
        others = ScannableTables if isinstance(sink, Scannable) else TransformedTables
        kind = ReadableTables if reads else others
    elif isinstance(sink, ChangeSink):
        kind = ReadableChanges if reads else TransformedChanges
    else:
        raise InternalError("Transforms were given to a sink that takes messages.")
    return kind(sink, transforms, spark, secret, letters=letters, scratch=scratch, untouched=untouched)


def _without_before(rows: Rows) -> Rows:
    """The rows without those before updates, which only conditions needed."""
    return rows.changed(
        _drop_before, {}, lambda: rows.frame.where(f"{CHANGE_TYPE} <> '{BEFORE}'"), rows.shard
    )


def _drop_before(batches: Iterable[pa.RecordBatch]) -> Batches:
    for batch in batches:
        yield batch.filter(pc.not_equal(batch.column(CHANGE_TYPE), BEFORE))


def _read_again(table: TableId, column: str, why: str) -> TableError:
    return TableError(
        f"The column {column} of {table} {why}, so the rows at the target lack its values.",
        hint=f"Run `penstock resnapshot FILE {argument(table)}`.",
        table=str(table),
        read_again=True,
    )
