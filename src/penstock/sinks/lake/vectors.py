"""Deletion vectors: which rows of a data file are deleted, as a roaring bitmap.

Iceberg and Delta store a vector in the same way: the length of magic number and bitmap (big-endian), the
magic number, the bitmap in the portable 64-bit format of the RoaringFormatSpec, and the CRC32 of magic number
and bitmap (big-endian). Source: the Puffin specification of Apache Iceberg (blob type `deletion-vector-v1`),
and Delta's PROTOCOL.md.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import pyarrow.parquet as pq
from pyroaring import BitMap64

from penstock.errors import InternalError
from penstock.store.files import Files

_MAGIC = b"\xd1\xd3\x39\x64"


@dataclass(frozen=True)
class Vector:
    """A deletion vector in a file, at the bytes `[offset, offset + size)`."""

    location: str
    offset: int
    size: int


@dataclass(frozen=True)
class Inline:
    """A deletion vector in the table's log: magic number and bitmap."""

    content: bytes


@dataclass(frozen=True)
class Positions:
    """Files of position deletes that all concern one data file: locations and bytes. Format version 2 of
    Iceberg has these instead of vectors."""

    files: tuple[tuple[str, int], ...]


Deleted = Vector | Inline | Positions
"""Where the positions of a data file's deleted rows are."""


def framed(bitmap: bytes) -> bytes:
    """A bitmap with length, magic number and checksum."""
    content = _MAGIC + bitmap
    return struct.pack(">I", len(content)) + content + struct.pack(">I", zlib.crc32(content))


def read(vector: Deleted, files: Files) -> BitMap64:
    """Positions of the deleted rows, counted from 0. Raises `InternalError` if there is no intact vector."""
    if isinstance(vector, Positions):
        found = BitMap64()
        for location, size in vector.files:
            with pq.ParquetFile(files.source(location, size)) as file:
                found.update(file.read(columns=["pos"]).column(0).to_numpy().tolist())
        return found
    if isinstance(vector, Inline):
        content, whole = vector.content, True
    else:
        blob = files.read(vector.location, vector.offset, vector.size)
        content = blob[4:-4]
        whole = len(blob) == vector.size >= 12 and blob == framed(content[4:])
    if not whole or content[:4] != _MAGIC:
        if isinstance(vector, Inline):
            raise InternalError("A deletion vector in a table's log is damaged.")
        raise InternalError(f"{vector.location} has no intact deletion vector at byte {vector.offset}.")
    return BitMap64.deserialize(content[4:])
