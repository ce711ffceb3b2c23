"""Deletion vectors in a Puffin file. Source: the Puffin specification of Apache Iceberg."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

from penstock.sinks.lake.vectors import Vector, framed
from penstock.store.files import Folder

_FILE_MAGIC = b"PFA1"
_ROW_POSITION = 2147483645
"""Iceberg's field id of the metadata column with a row's position in its file."""


def write(folder: Folder, vectors: Sequence[tuple[str, bytes, int]]) -> tuple[list[Vector], int]:
    """Writes a durable Puffin file with a vector for each data file: the data file's location in Iceberg's
    metadata, the serialised bitmap, and the number of deleted rows. Returns the vectors, which are all in
    one file, and the file's bytes. Nobody reads it before a commit names it."""
    path = folder.new("-deletes.puffin")
    placed, described = [], []
    with folder.files.create(path) as file:
        file.write(_FILE_MAGIC)
        for location, bitmap, count in vectors:
            blob = framed(bitmap)
            placed.append(Vector(path, file.tell(), len(blob)))
            described.append(_described(placed[-1], location, count))
            file.write(blob)
        properties = {"created-by": "penstock"}
        footer = json.dumps({"blobs": described, "properties": properties}).encode()
        file.write(_FILE_MAGIC + footer + struct.pack("<I", len(footer)) + bytes(4) + _FILE_MAGIC)
        size = file.tell()
    return placed, size


def _described(vector: Vector, location: str, count: int) -> dict[str, object]:
    return {
        "type": "deletion-vector-v1",
        "fields": [_ROW_POSITION],
        "snapshot-id": -1,  # that of the commit that adds it
        "sequence-number": -1,
        "offset": vector.offset,
        "length": vector.size,
        "properties": {"referenced-data-file": location, "cardinality": str(count)},
    }
