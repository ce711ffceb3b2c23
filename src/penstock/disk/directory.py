"""The directories of a pipeline: created if missing, closed to other accounts, refused with a reason, and
locked by one process.

**Permissions.** The state and the relay log contain rows. Their directories have mode 0700, so their content
is closed whatever its own mode is, including files that Spark's JVM writes with the umask of its process.
Direct entries are closed too. So nothing is open if an operator opens the directory itself, and a target may
be inside.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from penstock.disk import lock
from penstock.errors import ConfigError

log = logging.getLogger(__name__)

PRIVATE, PASSABLE = 0o700, 0o711
"""The second mode lets other accounts pass through to a named entry, without listing the directory."""


def make(path: Path, option: str) -> None:
    """Creates a directory for this account alone. Parents are created so that no other account can
    exchange the directory. `option`: its name in the pipeline file. Raises `ConfigError`."""
    try:
        for parent in reversed(path.parents):
            if not parent.exists():
                parent.mkdir(exist_ok=True, mode=0o755)
        path.mkdir(exist_ok=True, mode=PRIVATE)
    except (FileExistsError, NotADirectoryError) as error:
        raise ConfigError(
            f"`{option}` is {path}, but {error.filename} is a file.", hint="Give it a directory of its own."
        ) from None
    except OSError as error:
        raise ConfigError(
            f"`{option}` is {path}, which cannot be created: {error.strerror}.",
            hint="Give it a directory that this account may write.",
        ) from error


_DISK_TROUBLE = {
    errno.ENOSPC: "its disk is full",
    errno.EDQUOT: "its quota is used up",
    errno.EROFS: "its disk is read-only",
    errno.EIO: "its disk fails",
}


@contextlib.contextmanager
def disk_errors_explained() -> Iterator[None]:
    """Converts errors of a full or read-only disk into `ConfigError` with the file's name and a hint."""
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK_TROUBLE:
            raise
        name = error.filename2 or error.filename or "A file of the pipeline"
        raise ConfigError(
            f"{name} cannot be written: {_DISK_TROUBLE[error.errno]} ({error.strerror}).",
            hint="Free space on the disk, or make it writable again. Then start the pipeline again: it "
            "continues where it stopped.",
        ) from error


def close_to_others(path: Path, option: str, *, open_: Collection[Path] = ()) -> None:
    """Removes the rights of other accounts from a directory of ours and its direct entries. `open_`:
    places named by the pipeline file that others may use. Raises `ConfigError` if others can read
    something that this account cannot close."""
    kept = {place.absolute() for place in open_}
    passable = any(place.is_relative_to(path.absolute()) for place in kept)
    closed = _close(path, PASSABLE if passable else PRIVATE, option)
    with os.scandir(path) as entries:
        inside = [Path(entry.path) for entry in entries if not entry.is_symlink()]
    for entry in inside:
        if any(place.is_relative_to(entry.absolute()) for place in kept):
            continue
        # Of somebody else's file in a closed directory nobody else can read anything.
        with contextlib.nullcontext() if passable else contextlib.suppress(ConfigError):
            closed |= _close(entry, PRIVATE, option)
    if closed:
        log.warning(
            "`%s`: other accounts could read %s or a part of it; now only this one can.", option, path
        )


def _close(path: Path, allowed: int, option: str) -> bool:
    """Returns whether anything was changed."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        excess = mode & 0o077 & ~allowed
        if excess:
            path.chmod(mode & ~excess)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ConfigError(
            f"`{option}`: other accounts can read {path}, and this one cannot change that: {error.strerror}.",
            hint=f"Let its owner run `chmod go-rwx {path}`, or give this account a directory of its own.",
            path=str(path),
        ) from error
    return bool(excess)


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Locks the state directory for the block. The lock ends with the process, however that ends."""
    with lock_held(path / "lock", "state") as is_ours:
        if not is_ours:
            raise ConfigError(
                f"Another process runs the pipeline whose state is {path}.",
                hint=f"Stop it first{lock.by_holder(path / 'lock')}, or give this pipeline a `state` of its "
                "own.",
            )
        yield


@contextlib.contextmanager
def lock_held(path: Path, option: str) -> Iterator[bool]:
    """Locks the file `path` for the block, in a directory that `option` names. Yields False if another
    process holds the lock."""
    try:
        found = lock.take(path)
    except OSError as error:
        raise ConfigError(
            f"The `{option}` directory {path.parent} cannot be written or locked: {error.strerror}.",
            hint=f"Give `{option}` a directory that this account may write, on a file system with locks.",
        ) from error
    try:
        yield found is not None
    finally:
        if found is not None:
            found.release()


def is_held(path: Path) -> bool:
    """Whether a process runs the pipeline of this state directory. All commands use this. The lock lives
    exactly as long as its process. So clocks, process numbers and reports do not matter, and a suspended
    process (SIGSTOP) counts as running."""
    return is_locked(path / "lock")


def is_locked(path: Path) -> bool:
    """Whether a process holds this lock. Raises `ConfigError` if that cannot be determined."""
    try:
        return lock.is_locked(path)
    except OSError as error:
        raise ConfigError(
            f"The lock {path} cannot be looked at: {error.strerror}.",
            hint="Run the command as the account that runs the pipeline.",
        ) from error
