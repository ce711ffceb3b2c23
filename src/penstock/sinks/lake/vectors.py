"""Deletion vectors: which rows of a data file are gone, as a roaring bitmap.

Iceberg and Delta frame one in the same way: the length of what follows (big-endian), a magic number, the
bitmap in the portable 64-bit format of the RoaringFormatSpec, and the CRC32 of the last two (big-endian).
Source: the Puffin specification of Apache Iceberg (blob type `deletion-vector-v1`), Delta's PROTOCOL.md.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from pyroaring import BitMap64

from penstock.errors import InternalError

_MAGIC = b"\xd1\xd3\x39\x64"


@dataclass(frozen=True)
class Vector:
    """Where a deletion vector stands: bytes `[offset, offset + size)` of a local file."""

    path: str
    offset: int
    size: int


@dataclass(frozen=True)
class Inline:
    """A deletion vector that stands in the table's log: magic number and bitmap."""

    content: bytes


def framed(bitmap: bytes) -> bytes:
    content = _MAGIC + bitmap
    return struct.pack(">I", len(content)) + content + struct.pack(">I", zlib.crc32(content))


def read(vector: Vector | Inline) -> BitMap64:
    """Positions of the rows that are gone, counted from 0."""
    if isinstance(vector, Inline):
        content, whole = vector.content, True
    else:
        with open(vector.path, "rb") as file:
            file.seek(vector.offset)
            blob = file.read(vector.size)
        content = blob[4:-4]
        whole = len(blob) == vector.size >= 12 and blob == framed(content[4:])
    if not whole or content[:4] != _MAGIC:
        if isinstance(vector, Inline):
            raise InternalError("What stands in a table's log is no deletion vector.")
        raise InternalError(f"{vector.path} has no deletion vector at byte {vector.offset}.")
    return BitMap64.deserialize(content[4:])
