"""Files that are replaced as a whole: whoever reads one sees the old content or the new, never a part."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def replace_file(path: Path, data: bytes, *, durable: bool, draft: Path | None = None) -> None:
    """Writes the content aside and gives it the name, readable for this account alone.

    `durable`: when this returns, the new content survives a loss of power. Otherwise such a loss may bring
    the old content back, or leave an empty file: for reports, which are written again anyway.

    `draft` is where the content is written first, in the same directory. Two threads that replace one file
    need one each. An error leaves the old content, and no draft.
    """
    draft = draft or path.with_name(f"{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
    if durable:
        sync(path.parent)


def sync(path: Path) -> None:
    """The content of a file, or the names in a directory, are durable when this returns."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
