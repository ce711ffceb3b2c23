"""Files of position deletes, which format version 2 has instead of deletion vectors: one for each data file.

A file that concerns one data file only can be replaced when more rows of it are deleted, and goes when the
data file is rewritten. A file for many data files would cost fewer requests, but readers of each of these
would have to read it, and such files would accumulate.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from penstock.sinks.files import FIELD_ID, FileWriter, WrittenFile, side_by_side
from penstock.sinks.lake.iceberg.manifests import FILE_PATH, POSITION, Content
from penstock.store.files import Folder

_FIELDS = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={FIELD_ID: str(FILE_PATH)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={FIELD_ID: str(POSITION)}),
    ]
)


def write(folder: Folder, deleted: Sequence[tuple[Content, bytes]]) -> list[Content]:
    """Writes files of position deletes. `deleted`: data files, each with the serialised bitmap of all its
    deleted rows. Nobody reads them before a commit names them."""
    writer = FileWriter(folder, _FIELDS, "zstd")
    writes = [partial(_write, writer, file, bitmap) for file, bitmap in deleted]
    found = side_by_side(folder.files, writes, threads=folder.files.readers)
    return [
        _described(file, one) for (file, _), several in zip(deleted, found, strict=True) for one in several
    ]


def _write(writer: FileWriter, file: Content, bitmap: bytes) -> list[WrittenFile]:
    positions = pa.array(np.array(BitMap64.deserialize(bitmap), np.int64))
    paths = pa.repeat(pa.scalar(file.location), len(positions))
    return list(writer.files([pa.RecordBatch.from_arrays([paths, positions], schema=_FIELDS)]))


def _described(data: Content, deletes: WrittenFile) -> Content:
    """A file of position deletes as Iceberg's JSON describes it. It has the partition of its data file."""
    path: dict[str, Any] = {"keys": [FILE_PATH], "values": [data.location.encode().hex()]}
    described = {
        "spec-id": data.described["spec-id"],
        "content": "POSITION_DELETES",
        "file-path": deletes.location,
        "file-format": "PARQUET",
        "partition": data.described["partition"],
        "file-size-in-bytes": deletes.size,
        "record-count": deletes.rows,
        "lower-bounds": path,
        "upper-bounds": path,
        "split-offsets": list(deletes.row_groups),
        "referenced-data-file": data.location,
    }
    return Content(described, data.sequence)
