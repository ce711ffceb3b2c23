"""A source that is a script, behind the same seam as every other (`penstock.sources.base`).

It knows nothing of `penstock.sources.mysql`. Its log has the segment format `rows` (`log_bytes.py`); its
statements, catalog, chunks, watermarks, receiver and preflight are its own.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.scripted.receiver import ScriptedReceiver
from tests.scripted.script import (
    AddColumn,
    Definition,
    Drop,
    DropColumn,
    Rewrite,
    Transaction,
    Truncate,
    from_text,
)
from tests.scripted.server import SERVERS, Server
from tests.scripted.windows import ScriptedWindow, ScriptedWindows

from penstock import _core
from penstock.cascades.comparison import Comparison
from penstock.config import PipelineConfig
from penstock.errors import ChunkOutdated, ConfigError, InternalError, TransientError
from penstock.model import plan
from penstock.model.buckets import Buckets, BucketSum, KeyExtent, RangeBuckets
from penstock.model.chunk import Chunk
from penstock.model.offset import SourcePosition
from penstock.model.partial_snapshot import Part
from penstock.model.schema import Column, TableId, TableSchema, TypeOptions
from penstock.model.schema_change import TableEffect
from penstock.relaylog.reader import RelayLog, Statement
from penstock.sources.chunks import ALL_ROWS, ReadResult, ViewChoice
from penstock.sources.hosts import UsableHosts
from penstock.sources.preflight import Finding
from penstock.sources.table_filter import TableFilter


class ScriptedSource:
    """`sources.base.Source`."""

    def __init__(self, config: PipelineConfig, server: Server) -> None:
        self._config = config
        self.server = server
        self.address = server.address
        self.preflight = ScriptedPreflight(self.address)
        self.catalog = ScriptedCatalog(server)
        self.comparisons = ByBytes()
        self.chunks = ScriptedChunks(server)
        self.windows = ScriptedWindows()
        self.row_images = WholeRowImages()

    def receiver(self, file: Path) -> ScriptedReceiver:
        return ScriptedReceiver(self._config, self.server)

    def end_position(self) -> SourcePosition:
        return self.server.end

    def clock_us(self) -> int:
        return time.time_ns() // 1000

    def statements(
        self,
        captured: TableFilter,
        log: RelayLog,
        *,
        types: TypeOptions,
        parks_cascades: bool,
        with_foreign_keys: bool = False,
    ) -> ScriptedStatements:
        return ScriptedStatements()

    def touched(self, statement: Statement, tables: set[TableId]) -> set[TableId]:
        return ScriptedStatements().touched(statement, tables)

    def snapshot_hosts(self, captured: TableFilter, bytes_outside: Callable[[str], int]) -> OneHost:
        return OneHost(self.address)

    @contextmanager
    def read_view(self) -> Iterator[ScriptedView]:
        server = self.server
        now = {table: dict(rows) for table, rows in server.rows.items()}
        yield ScriptedView(ScriptedWindow(server.executed, server.end), now)

    def interrupt(self, reason: str) -> int:
        return 0

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class ScriptedPreflight:
    address: str

    def check(self, config: PipelineConfig) -> list[Finding]:
        return [Finding("ok", "connection", self.address, "A script.")]

    def check_start(self) -> None:
        """Every script can be followed."""


@dataclass(frozen=True)
class ScriptedCatalog:
    server: Server
    fold_case: bool = False
    logs_cascades: bool = True
    reads_tables: bool = True

    def read_tables(self, captured: TableFilter) -> dict[TableId, TableSchema]:
        return {table: schema for table, schema in sorted(self.server.tables.items()) if table in captured}

    def read_table(self, table: TableId) -> TableSchema | None:
        return self.server.tables.get(table)

    def same_definition(self, one: TableSchema | None, other: TableSchema) -> bool:
        return one is not None and (one.columns, one.key) == (other.columns, other.key)

    def unfollowable(
        self, tables: Iterable[TableId], *, cascades: bool, reads: bool
    ) -> dict[TableId, tuple[str, str]]:
        return {}

    def cascade_reason(self, table: TableId) -> tuple[str, str]:
        raise InternalError("A script has no foreign keys.")

    def add_key(self, table: TableId) -> str:
        return f"Give {table} a key in the script"

    def check_condition(self, schema: TableSchema, condition: str) -> None:
        raise ConfigError("A script reads no part of a table by a condition.")

    def key_literal(self, column: Column, value: Any) -> str:
        return str(value)


class ByBytes:
    """`cascades.comparison.Comparisons`."""

    def of(self, column: Column) -> Comparison:
        return "exact"

    def is_case_sensitive(self, column: Column) -> bool:
        return True


class ScriptedStatements:
    """`sources.statements.Statements` for the language of `script.as_text`."""

    def effects(self, statement: Statement, live: dict[TableId, TableSchema]) -> list[TableEffect]:
        said = from_text(statement.sql)
        known = live.get(said.table)
        if known is None:
            return []
        match said:
            case AddColumn(column=column):
                columns = (*known.columns, column)
                return [_evolved(known, columns, f"column {column.name} added")]
            case DropColumn(name=name):
                columns = tuple(one for one in known.columns if one.name != name)
                return [_evolved(known, columns, f"column {name} dropped")]
            case Truncate(table=table):
                return [TableEffect.truncated(table)]
            case Drop(table=table):
                return [TableEffect(table, voids="it was dropped", dropped=True, what="dropped")]
            case Rewrite(table=table):
                why = "rows were changed without row events"
                return [TableEffect(table, voids=why, rereads=why, what="rewritten")]

    def touched(self, statement: Statement, tables: set[TableId]) -> set[TableId]:
        return {from_text(statement.sql).table}


def _evolved(known: TableSchema, columns: tuple[Column, ...], what: str) -> TableEffect:
    before = {column.name for column in known.columns}
    origins = tuple(plan.ColumnOrigin(one.name if one.name in before else None) for one in columns)
    schema = replace(known, columns=columns, version=known.version + 1)
    return TableEffect(known.table, (plan.Evolve(schema, origins),), what=what)


# Chunks


@dataclass(frozen=True)
class ScriptedChunks:
    """`sources.chunks.Chunks`. Keys are numbers, and a bound is a number as text."""

    server: Server

    def find(
        self,
        schema: TableSchema,
        chunk_rows: int,
        executed: str,
        *,
        sized: Callable[[int], None],
        part: Part = ALL_ROWS,
        after: Chunk | None = None,
    ) -> Iterator[Chunk]:
        assert part == ALL_ROWS, "a script is read as a whole"
        if not self.server.has_executed(executed):
            raise TransientError("The script is behind.")
        if schema.table not in self.server.rows:
            raise ChunkOutdated(f"{schema.table} is gone.")
        keys = sorted(self.server.rows[schema.table])
        sized(len(keys))
        if after is not None and after.upper is None:
            return
        lower = None if after is None else after.upper
        number = 0 if after is None else after.number + 1
        begin = 0 if lower is None else int(lower[0])
        for key in [key for key in keys if lower is None or key > begin][chunk_rows::chunk_rows]:
            yield Chunk(schema.table, number, lower, (str(key),))
            lower, number = (str(key),), number + 1
        yield Chunk(schema.table, number, lower, None)

    def close_idle(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class ScriptedHost:
    """`sources.chunks.Host`. `meanwhile`: happens at the server while one of its chunks is read."""

    address: str
    meanwhile: tuple[Transaction | Definition, ...] = ()
    is_replica: bool = False

    def open_reader(self, *, types: TypeOptions, view: ViewChoice | None = None) -> ScriptedReader:
        assert view is None, "no table of a script refers to itself"
        return ScriptedReader(SERVERS[self.address], list(self.meanwhile), types)


@dataclass(frozen=True)
class OneHost:
    """`sources.hosts.SnapshotHosts` for a source that is one server."""

    address: str
    is_needed: bool = False

    def followed(self) -> ScriptedHost:
        return ScriptedHost(self.address)

    def look(self) -> UsableHosts:
        return UsableHosts((self.followed(),))

    def close(self) -> None:
        """Nothing is open."""

    def hosts_to_json(self) -> list[dict[str, Any]]:
        return []


class ScriptedReader:
    """`sources.chunks.ChunkReader`."""

    def __init__(self, server: Server, meanwhile: list[Transaction | Definition], types: TypeOptions) -> None:
        self._server = server
        self._meanwhile = meanwhile
        self._types = types

    def require(self, executed: str) -> None:
        if not self._server.has_executed(executed):
            raise TransientError("The script is behind.")

    def read(self, schema: TableSchema, chunk: Chunk) -> ScriptedRead:
        return ScriptedRead(self._server, self._meanwhile, schema, chunk, self._types)

    def leave(self) -> None:
        """Nothing is open."""

    def close(self) -> None:
        """Nothing is open."""


class ScriptedRead:
    """`sources.chunks.ChunkRead`. The low watermark is what was executed before the rows were read. The high
    one is the end of the log after that."""

    def __init__(
        self,
        server: Server,
        meanwhile: list[Transaction | Definition],
        schema: TableSchema,
        chunk: Chunk,
        types: TypeOptions,
    ) -> None:
        self._server, self._meanwhile = server, meanwhile
        self._schema, self._chunk, self._types = schema, chunk, types
        self._result: ReadResult | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        low = self._server.executed
        present = self._server.tables.get(self._schema.table)
        if present is None or present.columns != self._schema.columns:
            raise ChunkOutdated(f"{self._schema.table} has another definition by now.")
        held = self._server.rows[self._schema.table]
        rows = [held[key] for key in sorted(held) if _is_within(key, self._chunk)]
        for waiting in (self._meanwhile, self._server.meanwhile.get(self._schema.table, [])):
            while waiting:
                self._server.run(waiting.pop(0))
        yield as_batch(self._schema, rows, self._types)
        marks = ScriptedWindow(low, self._server.end).watermarks
        self._result = ReadResult(marks, str(self._server.uuid), len(rows), bytes=max(1, 20 * len(rows)))

    @property
    def result(self) -> ReadResult:
        if self._result is None:
            raise InternalError("The watermarks were asked for before the rows.")
        return self._result


def _is_within(key: int, chunk: Chunk) -> bool:
    above = chunk.lower is None or key >= int(chunk.lower[0])
    return above and (chunk.upper is None or key < int(chunk.upper[0]))


def as_batch(schema: TableSchema, rows: list[Any], types: TypeOptions) -> pa.RecordBatch:
    fields = _core.arrow_schema(schema.to_json(), "rows", types.to_json())
    columns = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(fields)]
    return pa.RecordBatch.from_arrays(columns, schema=fields)


# The rest


class WholeRowImages:
    """`sources.row_images.RowImages` of a log in which every event has the whole row."""

    def omitted(self, schema: TableSchema, types: TypeOptions) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([{}], schema=pa.schema([]))

    def computation(self, schema: TableSchema) -> NoComputation:
        raise InternalError("Rows of a script have all their columns.")


@dataclass(frozen=True)
class NoComputation:
    base: tuple[str, ...] = ()

    def computer(self, types: TypeOptions) -> AbstractContextManager[Any]:
        return nullcontext()


@dataclass(frozen=True)
class ScriptedView:
    """`sources.read_view.ReadView`: rows that were copied at one moment."""

    window: ScriptedWindow
    tables: dict[TableId, dict[Any, tuple[Any, ...]]]

    def extent(self, schema: TableSchema) -> KeyExtent:
        keys = self.tables[schema.table]
        return KeyExtent(min(keys, default=0), max(keys, default=0), len(keys))

    def sums(self, schema: TableSchema, buckets: Buckets, types: TypeOptions) -> dict[int, BucketSum]:
        found: dict[int, BucketSum] = {}
        for key, hashed in self._hashes(schema, types).items():
            [number] = buckets.numbers([key])
            held = found.get(number, BucketSum(0, 0))
            found[number] = BucketSum(held.rows + 1, held.hash + hashed)
        return found

    def batches(self, schema: TableSchema, types: TypeOptions) -> Iterator[pa.RecordBatch]:
        yield as_batch(schema, list(self.tables[schema.table].values()), types)

    def rows(
        self, schema: TableSchema, buckets: Buckets, numbers: Iterable[int], types: TypeOptions
    ) -> dict[str, int]:
        assert isinstance(buckets, RangeBuckets), "keys of a script are numbers"
        wanted = set(numbers)
        hashes = self._hashes(schema, types)
        return {key: hashed for key, hashed in hashes.items() if buckets.numbers([key]) <= wanted}

    def _hashes(self, schema: TableSchema, types: TypeOptions) -> dict[str, int]:
        """The hashes of rows by the text of their key (`model/row_text.py`)."""
        rows = list(self.tables[schema.table].values())
        batch, table = as_batch(schema, rows, types), schema.to_json()
        keys = _core.row_texts(table, batch, schema.key, types.to_json()).to_pylist()
        names = [column.name for column in schema.columns]
        texts = _core.row_texts(table, batch, names, types.to_json()).to_pylist()
        digests = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
        return {key: int(digest[:15], 16) for key, digest in zip(keys, digests, strict=True)}
