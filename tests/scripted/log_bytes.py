"""The bytes of a script's log: records of the segment format `rows`, as far as scripts need them.

They are made from the definition of the format (`core/src/typed_rows`), without any of the project's code.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence

from tests.scripted.script import Row

from penstock.model.schema import Column, TableSchema

BEGIN, DEFINITION, ROWS, STATEMENT, COMMIT, MOVED = b"bdrscm"
INSERT, UPDATE, DELETE = 1, 2, 3


def record(kind: int, place: int, body: bytes = b"") -> bytes:
    head = struct.pack("<IBQ", len(body), kind, place)
    return head + struct.pack("<II", zlib.crc32(head), zlib.crc32(body)) + body


def moved(place: int) -> bytes:
    """The source has everything up to this place of its log."""
    return record(MOVED, place)


def begin(second: int, transaction: str) -> bytes:
    return struct.pack("<q", second * 1_000_000) + transaction.encode()


def statement(database: str, text: str) -> bytes:
    return _name(database) + text.encode()


def definition(number: int, schema: TableSchema) -> bytes:
    said = json.loads(schema.to_json())
    columns = json.dumps({"key": said["key"], "columns": said["columns"]}).encode()
    return struct.pack("<I", number) + _name(schema.table.database) + _name(schema.table.table) + columns


def rows(number: int, schema: TableSchema, kind: int, images: Sequence[Row]) -> bytes:
    """`kind`: for `UPDATE`, each image before is followed by the image after."""
    columns = schema.columns
    present = _bits([True] * len(columns))
    head = struct.pack("<IBH", number, kind, len(columns)) + present * (2 if kind == UPDATE else 1)
    return head + b"".join(_image(columns, row) for row in images)


def _image(columns: Sequence[Column], row: Row) -> bytes:
    values = [_value(one, value) for one, value in zip(columns, row, strict=True) if value is not None]
    return _bits([value is None for value in row]) + b"".join(values)


def _value(column: Column, value: object) -> bytes:
    if column.type == "bigint":
        return struct.pack("<q", value)
    text = str(value).encode()
    return struct.pack("<I", len(text)) + text


def _name(name: str) -> bytes:
    return struct.pack("<H", len(name.encode())) + name.encode()


def _bits(flags: Sequence[bool]) -> bytes:
    """The flags as a bit field. The first flag is the lowest bit."""
    number = sum(1 << place for place, flag in enumerate(flags) if flag)
    return number.to_bytes((len(flags) + 7) // 8, "little")
