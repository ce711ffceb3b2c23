"""Deletion vectors: which rows of a data file are gone, as a roaring bitmap in a Puffin file.

Source: the Puffin specification of Apache Iceberg (file layout, blob type `deletion-vector-v1`) and the
portable 64-bit format of the RoaringFormatSpec.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyroaring import BitMap64

from penstock.errors import InternalError

_FILE_MAGIC = b"PFA1"
_VECTOR_MAGIC = b"\xd1\xd3\x39\x64"
_ROW_POSITION = 2147483645
"""Iceberg's number of the metadata column with a row's position in its file."""


@dataclass(frozen=True)
class Vector:
    """Where a deletion vector stands: bytes `[offset, offset + size)` of a local file."""

    path: str
    offset: int
    size: int


def read(vector: Vector) -> BitMap64:
    """Positions of the rows that are gone, counted from 0."""
    with open(vector.path, "rb") as file:
        file.seek(vector.offset)
        blob = file.read(vector.size)
    content = blob[4:-4]
    whole = len(blob) == vector.size >= 12 and struct.unpack(">I", blob[:4])[0] == len(content)
    if not whole or content[:4] != _VECTOR_MAGIC or zlib.crc32(content) != struct.unpack(">I", blob[-4:])[0]:
        raise InternalError(f"{vector.path} has no deletion vector at byte {vector.offset}.")
    return BitMap64.deserialize(content[4:])


def write(path: Path, vectors: Sequence[tuple[str, bytes, int]]) -> list[Vector]:
    """A durable Puffin file with a vector for each data file: its location as Iceberg names it, the
    serialised bitmap, the number of rows that are gone."""
    placed, described = [], []
    with open(path, "xb") as file:
        file.write(_FILE_MAGIC)
        for location, bitmap, count in vectors:
            content = _VECTOR_MAGIC + bitmap
            blob = struct.pack(">I", len(content)) + content + struct.pack(">I", zlib.crc32(content))
            placed.append(Vector(str(path), file.tell(), len(blob)))
            described.append(_described(placed[-1], location, count))
            file.write(blob)
        properties = {"created-by": "penstock"}
        footer = json.dumps({"blobs": described, "properties": properties}).encode()
        file.write(_FILE_MAGIC + footer + struct.pack("<I", len(footer)) + bytes(4) + _FILE_MAGIC)
        file.flush()
        os.fsync(file.fileno())
    return placed


def _described(vector: Vector, location: str, count: int) -> dict[str, object]:
    return {
        "type": "deletion-vector-v1",
        "fields": [_ROW_POSITION],
        "snapshot-id": -1,  # whichever adds it
        "sequence-number": -1,
        "offset": vector.offset,
        "length": vector.size,
        "properties": {"referenced-data-file": location, "cardinality": str(count)},
    }
