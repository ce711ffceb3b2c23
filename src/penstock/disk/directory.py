"""Creates, protects and locks the directories of a pipeline.

**Permissions.** The state and the relay log contain row values. Their directories have mode 0700, so other
accounts cannot reach the files inside, whatever mode those have (Spark's JVM writes files with its own
umask). The direct entries are protected too. So they stay closed if an operator opens the directory itself,
or if a target is inside it and other accounts may pass through.
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
"""`PASSABLE` lets other accounts open an entry whose name they know, without listing the directory."""


def make(path: Path, option: str) -> None:
    """Creates a directory that only this account can use. Missing parents get mode 0755, so that no other
    account can replace the directory. `option` is its name in the pipeline file, for messages. Raises
    `ConfigError` if the directory cannot be created."""
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
    """Removes the permissions of other accounts from a directory and its direct entries. `option` is its name
    in the pipeline file, for messages. `open_` lists paths in the pipeline file that other accounts may use.
    Raises `ConfigError` if other accounts can read something whose mode this account cannot change."""
    kept = {place.absolute() for place in open_}
    passable = any(place.is_relative_to(path.absolute()) for place in kept)
    closed = _close(path, PASSABLE if passable else PRIVATE, option)
    with os.scandir(path) as entries:
        inside = [Path(entry.path) for entry in entries if not entry.is_symlink()]
    for entry in inside:
        if any(place.is_relative_to(entry.absolute()) for place in kept):
            continue
        # In a closed directory, a file of another account is harmless: nobody else can reach it.
        with contextlib.nullcontext() if passable else contextlib.suppress(ConfigError):
            closed |= _close(entry, PRIVATE, option)
    if closed:
        log.warning(
            "`%s`: other accounts could read %s or a part of it; now only this one can.", option, path
        )


def _close(path: Path, allowed: int, option: str) -> bool:
    """Removes the permissions of other accounts that `allowed` does not include. Returns whether the mode was
    changed."""
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
    """Locks the state directory while the block runs. The lock ends with the process, however the process
    ends. Raises `ConfigError` if another process holds it."""
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
    """Locks the file `path` while the block runs. Yields False if another process holds the lock, otherwise
    True. `option` names the file's directory in messages. Raises `ConfigError` if the file cannot be written
    or locked."""
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
    """Whether a process runs the pipeline of this state directory. Only the lock decides, and it lives
    exactly as long as its process. So clocks, process ids and reports do not matter, and a suspended process
    (SIGSTOP) counts as running."""
    return is_locked(path / "lock")


def is_locked(path: Path) -> bool:
    """Whether a process holds this lock. Raises `ConfigError` if that cannot be determined."""
    try:
        return lock.is_locked(path)
    except OSError as error:
        raise ConfigError(
            f"The lock {path} cannot be checked: {error.strerror}.",
            hint="Run the command as the account that runs the pipeline.",
        ) from error
