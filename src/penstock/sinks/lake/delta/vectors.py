"""Deletion vectors as Delta has them: several in one file beside the data files, told of by descriptors.

Source: Delta's PROTOCOL.md, "Deletion Vector Descriptor Schema" and "Deletion Vector File Storage Format".
"""

from __future__ import annotations

import base64
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.sinks.lake.lookup import Unsearchable
from penstock.sinks.lake.vectors import Inline, Vector, framed

_VERSION = b"\x01"
_FRAME_BYTES = 8
"""Length before the content and checksum after it, which Delta does not count."""

_DIGITS = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_RFC1924 = _DIGITS[:10] + _DIGITS[36:] + _DIGITS[10:36] + b"!#$%&()*+-;<=>?@^_`{|}~"
"""The digits of Python's base 85, in their order."""
_Z85 = _DIGITS + b".-:+=^!/*?&<>()[]{}@%$#"

_UUID_LETTERS = 20

Descriptor = dict[str, Any]


def write(folder: Path, vectors: Sequence[tuple[bytes, int]]) -> list[Descriptor]:
    """A durable file of vectors, each a serialised bitmap and the number of rows that are gone."""
    name = uuid.uuid4()
    found = []
    with open(folder / _file_name(name), "xb") as file:
        file.write(_VERSION)
        for bitmap, count in vectors:
            frame = framed(bitmap)
            found.append({
                "storageType": "u",
                "pathOrInlineDv": z85(name.bytes),
                "offset": file.tell(),
                "sizeInBytes": len(frame) - _FRAME_BYTES,
                "cardinality": count,
            })  # fmt: skip
            file.write(frame)
        file.flush()
        os.fsync(file.fileno())
    return found


def place(folder: Path, descriptor: Descriptor) -> Vector | Inline:
    """Where a vector of the table in `folder` is to be read."""
    kind, text, size = (descriptor[name] for name in ("storageType", "pathOrInlineDv", "sizeInBytes"))
    if kind == "i":
        return Inline(from_z85(text)[:size])
    if kind != "u" or descriptor.get("offset") is None:
        raise Unsearchable(f"a deletion vector is stored in a way that is not known here: {kind}")
    prefix, encoded = text[:-_UUID_LETTERS], text[-_UUID_LETTERS:]
    path = folder / prefix / _file_name(uuid.UUID(bytes=from_z85(encoded)))
    return Vector(str(path), descriptor["offset"], size + _FRAME_BYTES)


def z85(data: bytes) -> str:
    """ZeroMQ's base 85 (RFC 32/Z85) of a multiple of four bytes."""
    return base64.b85encode(data).translate(bytes.maketrans(_RFC1924, _Z85)).decode()


def from_z85(text: str) -> bytes:
    return base64.b85decode(text.encode().translate(bytes.maketrans(_Z85, _RFC1924)))


def _file_name(name: uuid.UUID) -> str:
    return f"deletion_vector_{name}.bin"
