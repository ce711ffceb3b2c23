"""Deletion vectors of Delta tables. Files beside the data files contain several each, and descriptors in the
log point to them.

Source: Delta's PROTOCOL.md, "Deletion Vector Descriptor Schema" and "Deletion Vector File Storage Format".
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Sequence
from typing import Any

from penstock.sinks.lake.lookup import Unsearchable
from penstock.sinks.lake.vectors import Inline, Vector, framed
from penstock.store.files import Folder

_VERSION = b"\x01"
_FRAME_BYTES = 8
"""Bytes of the length before a vector and of the checksum after it. Delta's sizes do not include them."""

_DIGITS = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_RFC1924 = _DIGITS[:10] + _DIGITS[36:] + _DIGITS[10:36] + b"!#$%&()*+-;<=>?@^_`{|}~"
"""The digits of Python's base 85."""
_Z85 = _DIGITS + b".-:+=^!/*?&<>()[]{}@%$#"

_UUID_LETTERS = 20

Descriptor = dict[str, Any]


def write(folder: Folder, vectors: Sequence[tuple[bytes, int]]) -> list[Descriptor]:
    """Writes a durable file of vectors, each a serialised bitmap and the number of deleted rows. Its name is
    new, so nothing is replaced, and nobody reads it before a commit names it."""
    name = uuid.uuid4()
    found = []
    with folder.files.create(f"{folder.location}/{_file_name(name)}") as file:
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
    return found


def place(folder: Folder, descriptor: Descriptor) -> Vector | Inline:
    """Where the vector of a descriptor is, in the table in `folder`. Raises `Unsearchable` for kinds that are
    not supported."""
    kind, text, size = (descriptor[name] for name in ("storageType", "pathOrInlineDv", "sizeInBytes"))
    if kind == "i":
        return Inline(from_z85(text)[:size])
    if kind != "u" or descriptor.get("offset") is None:
        raise Unsearchable(f"a deletion vector is stored in an unknown way: {kind}")
    prefix, encoded = text[:-_UUID_LETTERS], text[-_UUID_LETTERS:]
    name = _file_name(uuid.UUID(bytes=from_z85(encoded)))
    path = "/".join(part for part in (folder.location, prefix, name) if part)
    return Vector(path, descriptor["offset"], size + _FRAME_BYTES)


def location(folder: Folder, descriptor: Descriptor) -> str:
    """The location of the file with a vector that `write` has returned."""
    placed = place(folder, descriptor)
    assert isinstance(placed, Vector)
    return placed.location


def z85(data: bytes) -> str:
    """Bytes in ZeroMQ's base 85 (RFC 32/Z85). Their number is a multiple of four."""
    return base64.b85encode(data).translate(bytes.maketrans(_RFC1924, _Z85)).decode()


def from_z85(text: str) -> bytes:
    """The bytes for a text that `z85` returned."""
    return base64.b85decode(text.encode().translate(bytes.maketrans(_Z85, _RFC1924)))


def _file_name(name: uuid.UUID) -> str:
    return f"deletion_vector_{name}.bin"
