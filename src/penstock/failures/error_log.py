"""Writes stack traces to `logs/errors.log` in the pipeline's state. Only this account may read that file,
because the text of an exception may contain row values.

A failure outside of a pipeline (an unreadable pipeline file, `inspect`, `prepare`) goes to `logs` in the
cache directory. If that cannot be written, it goes to a file in the temporary directory.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from penstock.artifacts.maven import cache_directory

FILE = "errors.log"
FILE_BYTES_MAX = 4 * 1024 * 1024
"""Size of the log in bytes: some dozens of stack traces. A larger file is renamed to errors.log.1 and
replaces the previous one, so that errors cannot fill the disk."""
ENTRY_BYTES_MAX = 1024 * 1024
"""Bytes of one entry. The rest of a longer one is cut off, so that one error cannot replace the
whole file."""


def keep(error: BaseException, state: Path | None, *, more: str = "") -> Path | None:
    """Appends the stack trace of `error`, then the text `more`. Returns the file, or None if nothing could be
    written."""
    text = "".join(traceback.format_exception(error))
    return keep_text(f"{text}\n{more}" if more else text, state)


def keep_text(text: str, state: Path | None) -> Path | None:
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    head = f"==== {moment} process {os.getpid()}: {' '.join(sys.argv[:2])[:200]}\n"
    data = (head + text.rstrip() + "\n\n").encode("utf-8", "replace")[:ENTRY_BYTES_MAX]
    for folder in _folders(state):
        with contextlib.suppress(OSError):
            return _append(folder, data)
    with contextlib.suppress(OSError):
        handle, name = tempfile.mkstemp(prefix="penstock-error-", suffix=".log")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        return Path(name)
    return None


def _folders(state: Path | None) -> Iterator[Path]:
    """Yields the folders to try, in order. A missing state directory is not created: the pipeline has not run
    yet."""
    if state is not None and state.is_dir():
        yield state / "logs"
    yield cache_directory() / "logs"


def _append(folder: Path, data: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / FILE
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > FILE_BYTES_MAX:
            path.replace(path.with_name(f"{FILE}.1"))
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "ab") as file:
        file.write(data)
    return path
