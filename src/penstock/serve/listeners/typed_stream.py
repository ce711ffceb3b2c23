"""Batches of one table with typed columns, as messages of a stream of Arrow Flight. A stream has one schema.
It ends with a message that says so when the next rows have another one, and the next stream begins with
them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from penstock.errors import ConfigError
from penstock.model.schema import TableId
from penstock.serve.batches import Block, Place
from penstock.serve.destination import Destination
from penstock.serve.log.source_log import SourceLog
from penstock.serve.log.typed_scan import TypedEntry, schema_of
from penstock.serve.log.view import View

Message = tuple[pa.RecordBatch, bytes]


_END = json.dumps({"ends": "schema"}).encode()


def is_end(about: bytes) -> bool:
    """Whether the stream ends behind the message with this metadata."""
    return about == _END


def filter_of(table: str) -> str:
    """The filter for one table. Raises `ConfigError`."""
    database, _, name = table.partition(".")
    if not database or not name or "," in table:
        raise ConfigError("`table` is the name of one table, as database.table.")
    return rf"{re.escape(database)}\.{re.escape(name)}"


def schema_of_stream(destination: Destination, table: str, blocks: list[Block]) -> pa.Schema:
    """The schema of a stream that begins with these blocks. Without rows, that of the table behind them;
    without blocks, now. Raises `ConfigError`."""
    log = destination.log
    if not isinstance(log, SourceLog):
        raise ConfigError(f"{destination.name} merges several sources, and typed columns are those of one.")
    schema = first_schema(blocks)
    if schema is not None:
        return schema
    name = TableId.parse(table)
    place = blocks[-1].place if blocks else log.end
    assert isinstance(place, Place)
    found = log.served.definition(name, place.offset)
    if found is None or name not in destination.options.tables:
        raise ConfigError(f"{destination.name} has no table {table[:130]}.")
    return schema_of(View.of(destination.options, destination.options.tables, "arrow"), found)


def first_schema(blocks: list[Block]) -> pa.Schema | None:
    """The schema of the first rows. None: there are none."""
    for entry in _entries(blocks):
        if entry.rows:
            return entry.rows[0].schema
    return None


def messages(blocks: list[Block], schema: pa.Schema, batch: int, place: str) -> Iterator[Message]:
    """The messages of a batch, which has one schema. `place`: behind it. If the stream has another schema,
    the only message says that it ends."""
    entries = list(_entries(blocks))
    nothing = pa.RecordBatch.from_pylist([], schema)
    if first_schema(blocks) not in (None, schema):
        yield nothing, _END
        return
    found: list[tuple[pa.RecordBatch, dict[str, Any]]] = []
    for one in entries:
        found += [(rows, {}) for rows in one.rows]
        if one.statement is not None:
            found.append((nothing, {"statement": one.statement}))
    for number, (rows, about) in enumerate(found, 1):
        more = number < len(found)
        yield rows, json.dumps({"batch": batch, "position": place, "more": more, **about}).encode()


def _entries(blocks: list[Block]) -> Iterator[TypedEntry]:
    for block in blocks:
        for data in block.entries():
            yield TypedEntry.read(data)
