"""Binlog files of a server, for the tests of the decoders."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from tests.core import alltypes

from penstock import _core
from penstock.model.schema import TableId, TableSchema
from penstock.sources.mysql.catalog import read_table
from penstock.testing.servers import DatabaseServer

QUERY, TABLE_MAP, GTID = 2, 19, 33
ROWS = frozenset({23, 24, 25, 30, 31, 32})


@dataclass(frozen=True)
class Event:
    offset: int
    kind: int
    end: int


def events(path: str) -> list[Event]:
    """Where the events of a file are, by their headers."""
    with open(path, "rb") as file:
        data = file.read()
    found, offset = [], 4
    while offset < len(data):
        kind, size = data[offset + 4], struct.unpack_from("<I", data, offset + 9)[0]
        found.append(Event(offset, kind, offset + size))
        offset += size
    return found


def schema_of(server: DatabaseServer, table: str) -> TableSchema:
    with server.connect() as connection:
        schema = read_table(connection, TableId.parse(table))
    assert schema is not None
    return schema


def log_of(server: DatabaseServer) -> tuple[str, int]:
    """The newest binlog file and its size."""
    path = server.binlog_files()[-1]
    return str(path), path.stat().st_size


def decode(server: DatabaseServer, schema: TableSchema, **options: Any) -> pa.Table:
    path, size = log_of(server)
    return decode_range(schema, path, 0, size, **options)


def decode_range(schema: TableSchema, path: _core.File, start: int, end: int, **options: Any) -> pa.Table:
    decoder = _core.RangeDecoder(schema.to_json(), path, 0, start, end, **options)
    batches = list(decoder)
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == decoder.schema
    return pa.Table.from_batches(batches, decoder.schema)


def select(
    server: DatabaseServer, sql: str, settings: Sequence[str] = alltypes.SELECT_SESSION
) -> list[tuple[Any, ...]]:
    """Rows as the server prints them: texts, bytes or None."""
    with server.connect(conv={}) as connection, connection.cursor() as cursor:
        for statement in settings:
            cursor.execute(statement)
        cursor.execute(sql)
        return list(cursor.fetchall())
