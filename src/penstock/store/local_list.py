"""The files below a folder, in the order in which object stores list them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from penstock.store.location import RESERVED, is_key


def walk(folder: Path, prefix: str, after: str) -> Iterator[tuple[str, os.stat_result]]:
    """Files as `(key, status)`, by the UTF-8 bytes of their keys, from the first one after the key `after`.
    `prefix`: the key of the folder, empty for the root. Files whose names cannot be keys are left out.

    A folder sorts as its name with a slash: `a-b` comes before `a/b`, since `-` comes before `/`. Memory
    holds the names of one folder on each level.
    """
    try:
        with os.scandir(folder) as entries:
            found = sorted((_order(entry), entry) for entry in entries if prefix or entry.name != RESERVED)
    except (FileNotFoundError, NotADirectoryError):
        return
    for (_, is_folder), entry in found:
        key = f"{prefix}/{entry.name}" if prefix else entry.name
        if not is_key(key):
            continue
        if is_folder:
            if not _is_past(f"{key}/", after):
                yield from walk(Path(entry.path), key, after)
        elif key.encode() > after.encode():
            try:
                status = entry.stat()
            except FileNotFoundError:  # deleted meanwhile, or a link to nothing
                continue
            if entry.is_file():
                yield key, status


def _order(entry: os.DirEntry[str]) -> tuple[bytes, bool]:
    is_folder = entry.is_dir()
    return os.fsencode(entry.name) + (b"/" if is_folder else b""), is_folder


def _is_past(folder: str, after: str) -> bool:
    """Whether no key of the folder can come after `after`."""
    return not after.startswith(folder) and folder.encode() < after.encode()
