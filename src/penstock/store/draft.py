"""The unfinished files of a local store."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from penstock.errors import InternalError
from penstock.store.base import Data
from penstock.store.location import RESERVED

KEPT_SECONDS = 24 * 3600
"""A draft that nobody wrote to for so long belongs to a process that was killed."""

_swept: dict[Path, float] = {}
"""When this process last looked for old drafts in a folder, in seconds of the monotonic clock."""


def drafts_folder(root: Path) -> Path:
    """The folder of drafts, made if it is missing. Old drafts are removed at the first call in a process, and
    once a day."""
    folder = root / RESERVED / "drafts"
    folder.mkdir(parents=True, exist_ok=True)
    now = time.monotonic()
    if now - _swept.get(folder, -KEPT_SECONDS) >= KEPT_SECONDS:
        _swept[folder] = now
        sweep(root, older_seconds=KEPT_SECONDS)
    return folder


def sweep(root: Path, *, older_seconds: float) -> None:
    """Removes the drafts to which nobody wrote for so long."""
    with contextlib.suppress(OSError), os.scandir(root / RESERVED / "drafts") as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if time.time() - entry.stat().st_mtime > older_seconds:
                    Path(entry.path).unlink(missing_ok=True)


class Draft:
    """A file without a name of its own yet. Removed when its `with` block ends, unless it was renamed."""

    def __init__(self, root: Path) -> None:
        self.path = drafts_folder(root) / uuid.uuid4().hex
        self.ended = False
        self._file = open(self.path, "xb", buffering=0)  # noqa: SIM115 - closed by `close` and `remove`

    def write(self, data: Data) -> None:
        if self.ended or self._file.closed:
            raise InternalError("An upload was used after its end.")
        view = memoryview(data).cast("B")
        while view:
            view = view[self._file.write(view) or 0 :]

    def close(self) -> None:
        """The content is durable when this returns."""
        if self.ended or self._file.closed:
            raise InternalError("An upload was used after its end.")
        os.fsync(self._file.fileno())
        self._file.close()

    def make_later_than(self, found: os.stat_result | None) -> None:
        """Gives the file a time after that of the one that it replaces, by the smallest step that file
        systems store."""
        if found is None:
            return
        own = self.path.stat()
        if own.st_mtime_ns <= found.st_mtime_ns:
            os.utime(self.path, ns=(own.st_atime_ns, found.st_mtime_ns + 1_000))

    def remove(self) -> None:
        self.ended = True
        self._file.close()
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()
