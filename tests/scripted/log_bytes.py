"""The bytes of a script's log, in the binlog format as far as scripts need it.

The core decodes the segments of a relay log, and this is the one format that it knows. The events are made
from the definition of the format, without any of the project's code.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence

from tests.scripted.script import Row

from penstock.model.schema import Column, TableSchema

QUERY, ROTATE, FORMAT, XID, TABLE_MAP, WRITE, UPDATE, DELETE, GTID, PREVIOUS_GTIDS = (
    2, 4, 15, 16, 19, 30, 31, 32, 33, 35,
)  # fmt: skip
ARTIFICIAL = 0x20
MAGIC = b"\xfebin"
_HEADER_BYTES, _CHECKSUM_BYTES = 19, 4
_POST_HEADERS = bytes(
    [56, 13, 0, 8, 0, 18, 0, 4, 4, 4, 4, 18, 0, 0, 98, 0, 4, 26, 8, 0, 0, 0, 8, 8, 8, 2, 0, 0, 0, 10, 10, 10,
     42, 42, 0, 18, 52, 0, 10, 40, 0]
)  # fmt: skip
_TYPES = {"bigint": 8, "varchar": 15}
_CHARACTER_BYTES = 4


def event(kind: int, body: bytes, start: int, *, second: int = 0, flags: int = 0) -> bytes:
    """One event that begins at byte `start` of the log."""
    length = _HEADER_BYTES + len(body) + _CHECKSUM_BYTES
    head = struct.pack("<IBIIIH", second, kind, 1, length, start + length, flags)
    return head + body + struct.pack("<I", zlib.crc32(head + body))


def head_of_log() -> bytes:
    """The beginning of the log: magic, FORMAT_DESCRIPTION and an empty PREVIOUS_GTIDS."""
    description = struct.pack("<H50sIB", 4, b"8.0.15", 0, _HEADER_BYTES) + _POST_HEADERS + b"\x01"
    log = MAGIC
    log += event(FORMAT, description, len(log))
    return log + event(PREVIOUS_GTIDS, bytes(8), len(log))


def rotate(file: str, position: int) -> bytes:
    """The first event of a connection, which names the position that follows."""
    return event(ROTATE, struct.pack("<Q", position) + file.encode(), 0, flags=ARTIFICIAL)


def events(log: bytes) -> Iterator[bytes]:
    """The events in a part of a log."""
    while log:
        length = int.from_bytes(log[9:13], "little")
        yield log[:length]
        log = log[length:]


def packets(events: Iterable[bytes]) -> bytes:
    """The events as packets of the protocol. All of them are short."""
    payloads = [b"\x00" + one for one in events]
    return b"".join(struct.pack("<I", len(one))[:3] + b"\x00" + one for one in payloads)


def gtid(server: uuid.UUID, number: int) -> bytes:
    clock = struct.pack("<Bqq", 2, number - 1, number)
    return (
        b"\x01" + server.bytes + struct.pack("<Q", number) + clock + number.to_bytes(7, "little") + bytes(5)
    )


def query(sql: str, database: str = "") -> bytes:
    name = database.encode()
    return struct.pack("<IIBHH", 1, 0, len(name), 0, 0) + name + b"\x00" + sql.encode()


def table_map(number: int, schema: TableSchema) -> bytes:
    database, table = schema.table.database.encode(), schema.table.table.encode()
    columns = schema.columns
    metadata = b"".join(struct.pack("<H", _bytes_max(one)) for one in columns if one.type == "varchar")
    body = struct.pack("<Q", number)[:6] + struct.pack("<H", 1)
    body += bytes([len(database)]) + database + b"\x00" + bytes([len(table)]) + table + b"\x00"
    body += bytes([len(columns)]) + bytes(_TYPES[one.type] for one in columns)
    return body + bytes([len(metadata)]) + metadata + _bits([one.nullable for one in columns])


def rows(number: int, schema: TableSchema, images: Sequence[Row], *, update: bool, last: bool) -> bytes:
    """The body of a row event. `update`: each image before is followed by the image after."""
    columns = schema.columns
    present = _bits([True] * len(columns))
    body = struct.pack("<Q", number)[:6] + struct.pack("<HH", int(last), 2)
    body += bytes([len(columns)]) + present + (present if update else b"")
    return body + b"".join(_image(columns, row) for row in images)


def _image(columns: Sequence[Column], row: Row) -> bytes:
    values = [_value(one, value) for one, value in zip(columns, row, strict=True) if value is not None]
    return _bits([value is None for value in row]) + b"".join(values)


def _value(column: Column, value: object) -> bytes:
    if column.type == "bigint":
        return struct.pack("<q", value)
    text = str(value).encode()
    return struct.pack("<B" if _bytes_max(column) < 256 else "<H", len(text)) + text


def _bytes_max(column: Column) -> int:
    assert column.length is not None
    return column.length * _CHARACTER_BYTES


def _bits(flags: Sequence[bool]) -> bytes:
    """The flags as a bit field. The first flag is the lowest bit."""
    number = sum(1 << place for place, flag in enumerate(flags) if flag)
    return number.to_bytes((len(flags) + 7) // 8, "little")
