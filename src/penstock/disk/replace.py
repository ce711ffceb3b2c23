"""Replaces files as a whole: a reader sees the old content or the new, never a mixture."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

PRIVATE = 0o600
"""The mode of a file that only this account may read."""
PUBLIC = 0o666
"""The mode of a file that others may read, as far as the umask lets them."""


def replace_file(
    path: Path, data: bytes, *, durable: bool, draft: Path | None = None, mode: int = PRIVATE
) -> None:
    """Writes `data` to a draft file and renames it to `path`.

    With `durable`, the new content survives a power loss once the function returns. Without it, a power loss
    may bring back the old content or leave an empty file. That is enough for reports, which are written
    again.

    `mode`: the mode of the file, which the umask limits further.

    `draft` is the path of the draft, in the same directory. Two threads that replace one file need different
    drafts. If an error is raised, the old content is unchanged and the draft is removed.
    """
    draft = draft or path.with_name(f"{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
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


def replace_by(path: Path, draft: Path) -> None:
    """Renames a finished draft to `path`: for content that is too large to hold in memory. The new content is
    durable when this returns. Both are on one file system."""
    sync(draft)
    draft.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Makes the content of a file, or the names in a directory, survive a power loss (fsync)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
