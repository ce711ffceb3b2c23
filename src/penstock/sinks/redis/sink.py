"""The sink `redis`: a `TableSink` whose rows are keys.

**Why a repeated epoch changes nothing.** Redis has no transactions over many batches, so a write is many
calls, each of which is atomic on the server (`scripts.py`). Each row has its `_sequence`, and a call changes
only rows with a smaller one. The last call records the commit in the target's own key. A write that was
interrupted is done again: rows that it has written already stay as they are, and rows that it has deleted
are not there.

**Why a late step changes nothing.** Every call looks at the target's own key first. It refuses a commit that
is recorded, and a driver that was replaced.

**What a server may forget.** A server that was restarted may have lost the last second, or all. The target's
own key is then older than what this sink has recorded, or gone, and the table is parked; at the next start
the target counts as rolled back.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from types import NoneType
from typing import Any

import pyarrow as pa
import redis
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from penstock.connections.answers import STRANGE
from penstock.errors import DriverReplaced, TableError
from penstock.model.change import DELETED, PRESENT, SEQUENCE
from penstock.model.schema import TableId, TableSchema
from penstock.printable import argument
from penstock.sinks.base import (
    FORMAT,
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
from penstock.sinks.evolve import changes, key_after, refuse_new_names
from penstock.sinks.names import refuse_own_names, source_columns
from penstock.sinks.recorded import Recorded
from penstock.sinks.redis import scripts, values
from penstock.sinks.redis.evolve import evolved_hash, evolved_object
from penstock.sinks.redis.faults import explained
from penstock.sinks.redis.options import RedisOptions, escaped
from penstock.sinks.redis.scan import RedisScan
from penstock.sinks.redis.server import check_server, client
from penstock.sinks.refusals import (
    at,
    check_pipeline,
    is_recorded,
    lost_target,
    missing_row,
    of_other_pipeline,
    refuse_foreign,
    refuse_replaced,
    refuse_shared,
)
from penstock.sinks.rows import Rows
from penstock.sinks.spark_sql import target_type

ROWS_MAX = 500
"""Rows of one call: while it runs, the server does nothing else."""
BYTES_MAX = 1024**2
"""About so many bytes of one call, if its rows are fewer."""
_TODO = ":todo"
_KEEP = "Let the server keep its data (appendonly yes). "
"""Advice for a server that loses data when it restarts."""
LOST = "lost"
"""Field of a target's own key. It says that the server has lost changes: nothing is written any more until
the target is created again."""


class RedisSink(Recorded):
    """The sink of one pipeline, whose uuid is `pipeline`."""

    def __init__(self, options: RedisOptions, spark: SparkSession, pipeline: str) -> None:
        super().__init__(pipeline)
        self._options = options
        self._spark = spark
        self._client: Any = client(options)
        self._scripts = {
            name: self._client.register_script(getattr(scripts, name.upper()))
            for name in ("write", "delete", "evolve", "commit", "fence")
        }
        self._guard = threading.Lock()

    # Sink ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        check_server(self._client, self._options)

    def open(self, table: TableId) -> TargetState:
        prefix = self._options.prefix(table)
        with self._explained(f"The target of {table} cannot be looked at", table):
            record = self._record(table)
            if record:
                return self._opened(table, prefix, record)
            if next(self._keys(prefix), None) is None:
                return Missing()
        cure = "Name another `sink.key`, or remove these keys if nobody needs them."
        return Foreign(f"{prefix}*", "keys that Penstock did not write", cure)

    def _opened(self, table: TableId, prefix: str, record: dict[str, str]) -> TargetState:
        if record["pipeline"] != self._pipeline:
            cure = (
                f"Name another `sink.key`, or remove these keys and {self._own(table)} if nobody needs them."
            )
            return of_other_pipeline(f"{prefix}*", "table", record["pipeline"], cure)
        columns = _columns(record)
        return Ours(_last(record), source_columns(tuple(columns.names)), empty=record["empty"] == "1")

    def create(self, schema: TableSchema, arrow: pa.Schema) -> None:
        table = schema.table
        refuse_own_names(schema, self._options.reserved)
        found = self.open(table)
        refuse_foreign(table, found)
        with self._explained(f"The target of {table} cannot be created", table):
            if not isinstance(found, Missing):
                source = self._record(table)["source"]
                refuse_shared(table, self._options.prefix(table), source)
                return
            fields = {
                "pipeline": self._pipeline,
                "source": str(table),
                "format": FORMAT,
                "columns": json.dumps(target_type(arrow).jsonValue()),
                "key": json.dumps(schema.key),
                "generation": str(self._generation),
                "empty": "1",
            }
            self._client.hset(self._own(table), mapping=fields)
            self._seen.pop(table, None)

    def truncate(
        self, table: TableId, commit: Commit, *, sequence: int, timestamp_us: int | None = None
    ) -> bool:
        return self._delete(table, None, commit)

    def evolve(
        self, table: TableId, columns: Sequence[EvolvedColumn], commit: Commit, *, narrowing: Narrowing
    ) -> bool:
        with self._writing(table, commit) as record:
            if record is None:
                return False
            present = StructType([field for field in _columns(record) if field.name != SEQUENCE])
            changed = changes(table, present, columns, reserved=self._options.reserved,
                              stored=lambda kind: kind,
                              widens=lambda old, kind: False, narrowing=narrowing)  # fmt: skip
            before = tuple(json.loads(record["key"]))
            refuse_new_names(table, columns, changed, present, before)
            todo = self._own(table) + _TODO
            mark = f"{commit.epoch}/{commit.step}"
            if record.get("evolving") != mark:
                self._client.delete(todo)
                for names in _portions(self._keys(self._options.prefix(table)), ROWS_MAX):
                    self._client.sadd(todo, *names)
                self._client.hset(self._own(table), "evolving", mark)
            evolved = evolved_object if self._json else evolved_hash
            while names := self._client.srandmember(todo, ROWS_MAX):
                rows = self._read(names)
                lost = [name for name, row in zip(names, rows, strict=True) if not row]
                if lost:  # removed by somebody else
                    self._client.srem(todo, *lost)
                kept = [(name, row) for name, row in zip(names, rows, strict=True) if row]
                made = evolved([row for _, row in kept], changed, present, self._spark)
                arguments = [part for texts in made for part in (len(texts), *texts)]
                self._call("evolve", table, commit, [todo, *[name for name, _ in kept]], arguments)
            key = key_after(changed, before)
            fields = [StructField(one.name, one.kind) for one in changed]
            after = StructType([*fields, StructField(SEQUENCE, LongType())])
            definition = json.dumps(after.jsonValue())
            self._commit(table, commit, "columns", definition, "key", json.dumps(key))
        return True

    def close(self) -> None:
        self._client.close()

    # Fencing ------------------------------------------------------------------------------------------------

    def fence(self, table: TableId) -> None:
        with self._explained(f"The target of {table} cannot be fenced", table):
            answer = self._scripts["fence"](keys=[self._own(table)], args=[self._pipeline, self._generation])
        if answer == b"FENCED":
            self._refuse_replaced(table)

    # TableSink ----------------------------------------------------------------------------------------------

    def append(self, table: TableId, rows: Rows, commit: Commit) -> bool:
        return self.merge(table, rows, (), commit)

    def merge(self, table: TableId, rows: Rows, key: tuple[str, ...], commit: Commit) -> bool:
        with self._writing(table, commit) as record:
            if record is None:
                return False
            key = key or tuple(json.loads(record["key"]))
            for batch in batches_of(rows):
                self._write(table, rows, batch, key, commit)
            self._commit(table, commit, "empty", "0")
        return True

    def _write(
        self, table: TableId, rows: Rows, batch: pa.RecordBatch, key: Sequence[str], commit: Commit
    ) -> None:
        if self._json and rows.incomplete is not None:
            raise TableError(
                f"The source logs parts of rows of {table}, which `sink.value: json` cannot put together.",
                hint="Let the source log whole rows, or set `sink.value: hash`, and run "
                f"`penstock resnapshot FILE {argument(table)}`.",
                table=str(table),
            )
        names = values.key_names(self._options.prefix(table), batch, key)
        acts = _acts(batch, rows, as_json=self._json)
        for part in _fitting(acts):
            arguments = [text for place in part for text in acts[place]]
            self._call("write", table, commit, [names[place] for place in part], arguments)

    def delete_older(self, table: TableId, sequence: int, commit: Commit) -> bool:
        return self._delete(table, sequence, commit)

    def _delete(self, table: TableId, below: int | None, commit: Commit) -> bool:
        with self._writing(table, commit) as record:
            if record is None:
                return False
            for names in _portions(self._keys(self._options.prefix(table)), ROWS_MAX):
                self._call("delete", table, commit, names, ["" if below is None else below])
            self._commit(table, commit, "empty", "1" if below is None else record["empty"])
        return True

    def _place_and_source(self, table: TableId) -> tuple[str, str | None]:
        with self._explained(f"The target of {table} cannot be looked at", table):
            return self._options.prefix(table), self._record(table)["source"]

    def _remove(self, table: TableId) -> None:
        with self._explained(f"The target of {table} cannot be removed", table):
            for names in _portions(self._keys(self._options.prefix(table)), ROWS_MAX):
                self._client.unlink(*names)
            self._client.delete(self._own(table), self._own(table) + _TODO)
        self._seen.pop(table, None)

    def compact(self, table: TableId) -> Compacted:
        return Compacted(1, 1)

    # Scannable ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def scan(self) -> Iterator[RedisScan]:
        yield RedisScan(self._own_columns, self._own_keys, self._read, self._json)

    def _own_columns(self, table: TableId) -> Sequence[str]:
        record = self._record(table)
        if not record or record["pipeline"] != self._pipeline or LOST in record:
            raise lost_target(table, _KEEP)
        return list(_columns(record).names)

    def _own_keys(self, table: TableId) -> Iterator[list[bytes]]:
        return _portions(self._keys(self._options.prefix(table)), ROWS_MAX)

    # --------------------------------------------------------------------------------------------------------

    @property
    def _json(self) -> bool:
        return self._options.value == "json"

    def _own(self, table: TableId) -> str:
        """The target's own key."""
        return f"{self._options.control}:target:{escaped(table.database)}:{escaped(table.table)}"

    def _record(self, table: TableId) -> dict[str, str]:
        found = self._client.hgetall(self._own(table))
        try:
            return {name.decode(): value.decode() for name, value in found.items()}
        except (ValueError, AttributeError):
            raise redis.InvalidResponse(STRANGE) from None

    def _keys(self, prefix: str) -> Iterator[bytes]:
        """The keys that begin with the prefix. Each may come more than once."""
        pattern = "".join(f"\\{one}" if one in "*?[]\\^-" else one for one in prefix) + "*"
        yield from self._client.scan_iter(match=pattern.encode("utf-8", "surrogatepass"), count=1000)

    def _read(self, names: Sequence[bytes]) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        for name in names:
            pipeline.get(name) if self._json else pipeline.hgetall(name)
        found = list(pipeline.execute())
        if not all(isinstance(one, (bytes, NoneType) if self._json else dict) for one in found):
            raise redis.InvalidResponse(STRANGE)
        return found

    @contextlib.contextmanager
    def _writing(self, table: TableId, commit: Commit) -> Iterator[dict[str, str] | None]:
        """The record of the target. None: it has this commit already, so there is nothing to write."""
        check_pipeline(commit, self._pipeline)
        with self._explained(f"Epoch {commit.epoch} was not written to {table}", table):
            record = self._record(table)
            last = _last(record)
            place = (0, 0) if last is None else last.place
            if not record or record["pipeline"] != self._pipeline or LOST in record:
                raise lost_target(table, _KEEP)
            if place < self._seen.get(table, (0, 0)):
                self._client.hset(self._own(table), LOST, "1")
                raise lost_target(table, _KEEP)
            refuse_replaced(table, int(record["generation"]), self._generation)
            yield None if is_recorded(commit, last) else record

    def _call(
        self, name: str, table: TableId, commit: Commit, keys: Sequence[Any], arguments: Sequence[Any]
    ) -> None:
        own: list[Any] = [self._pipeline, self._generation, commit.epoch, commit.step]
        kind = [] if name == "commit" else [self._options.value]
        answer = self._scripts[name](keys=[self._own(table), *keys], args=[*own, *kind, *arguments])
        if answer == b"FENCED":
            self._refuse_replaced(table)
        if answer == b"GONE":
            raise lost_target(table, _KEEP)
        if match := re.fullmatch(rb"LACKS (\d+)", answer):
            raise missing_row(table, int(match[1]))
        if answer not in (b"OK", b"DONE"):
            raise redis.InvalidResponse(STRANGE)

    def _commit(self, table: TableId, commit: Commit, *fields: str) -> None:
        self._call("commit", table, commit, [], fields)
        self._seen[table] = commit.place

    def _refuse_replaced(self, table: TableId) -> None:
        fenced = int(self._record(table).get("generation", "0"))
        refuse_replaced(table, fenced, self._generation)
        raise DriverReplaced(f"Another driver has taken over the target of {table}.", table=str(table))

    @contextlib.contextmanager
    def _explained(self, what: str, table: TableId | None = None) -> Iterator[None]:
        try:
            yield
        except redis.RedisError as error:
            what = at(what, self._options.url)
            raise explained(error, what, table) from None  # the server's text may have values of rows


def _acts(batch: pa.RecordBatch, rows: Rows, *, as_json: bool) -> list[list[Any]]:
    """For each row the arguments of `scripts.WRITE`."""
    names = source_columns(batch.schema.names)
    deleted = batch.column(DELETED).to_pylist() if DELETED in batch.schema.names else [False] * batch.num_rows
    sequences = batch.column(SEQUENCE).to_pylist()
    incomplete = rows.incomplete
    present: list[Any] = [None] * batch.num_rows
    if incomplete is not None:
        present = batch.column(PRESENT).to_pylist()
    made: list[list[Any]]
    if as_json:
        made = [[text] for text in values.objects(batch, names)]
    else:
        made = [list(one) for one in values.hashes(batch, (*names, SEQUENCE))]
    found: list[list[Any]] = []
    for row, texts in enumerate(made):
        if deleted[row]:
            found.append([sequences[row], "delete", 0])
        elif incomplete is None or present[row] is None:
            found.append([sequences[row], "put", len(texts), *texts])
        else:
            held = dict(zip(texts[::2], texts[1::2], strict=True))
            some = []
            for name in names:
                if present[row][incomplete.places[name]] == "1":
                    some += ["set", name, held[name]] if name in held else ["unset", name, ""]
            some += ["set", SEQUENCE, sequences[row]]
            act = "lacks" if incomplete.target_is_complete else "some"
            found.append([sequences[row], act, len(some), *some])
    return found


def _fitting(acts: Sequence[Sequence[Any]]) -> Iterator[list[int]]:
    """The places of rows, in portions for one call."""
    part: list[int] = []
    size = 0
    for place, texts in enumerate(acts):
        needs = sum(len(text) if isinstance(text, (str, bytes)) else 8 for text in texts)
        if part and (len(part) >= ROWS_MAX or size + needs > BYTES_MAX):
            yield part
            part, size = [], 0
        part.append(place)
        size += needs
    if part:
        yield part


def _portions(names: Iterable[bytes], count: int) -> Iterator[list[bytes]]:
    part: list[bytes] = []
    for name in names:
        part.append(name)
        if len(part) == count:
            yield part
            part = []
    if part:
        yield part


def _columns(record: dict[str, str]) -> StructType:
    return StructType.fromJson(json.loads(record["columns"]))


def _last(record: dict[str, str]) -> Commit | None:
    if "epoch" not in record:
        return None
    return Commit(record["pipeline"], int(record["epoch"]), int(record["step"]))
