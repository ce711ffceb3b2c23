"""Digests of files of any size."""

from __future__ import annotations

import hashlib
from pathlib import Path

_BYTES = 1 << 20
"""Bytes of a file that are in memory at once."""


def sha256_of(path: Path) -> str:
    """As hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_BYTES):
            digest.update(piece)
    return digest.hexdigest()
