"""The directories a pipeline works in: made when missing, closed to other accounts, refused with a reason,
and held by one process.

**Who may read them.** Both the state and the relay log hold rows. Their directories have mode 0700, so what
lies in them is closed whatever its own mode is: also files that Spark's JVM writes by the umask of its
process. What stands in them directly is closed too, so that nothing is open if an operator opens the
directory itself, and so that a target may lie inside.
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
"""The second lets others through to what is named in the directory, and does not list it."""


def make(path: Path, option: str) -> None:
    """`option` is where the pipeline file names it. Made for this account alone, its parents so that nobody
    else can exchange it. Raises `ConfigError`."""
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
            f"`{option}` is {path}, which cannot be made: {error.strerror}.",
            hint="Give it a directory that this account may write.",
        ) from error


_DISK_TROUBLE = {
    errno.ENOSPC: "its disk is full",
    errno.EDQUOT: "its quota is used up",
    errno.EROFS: "its disk is read-only",
    errno.EIO: "its disk fails",
}


@contextlib.contextmanager
def disk_trouble_told() -> Iterator[None]:
    """A file that cannot be written is named, with the cure, whoever wrote it: nobody can do more about it
    than to end."""
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK_TROUBLE:
            raise
        name = error.filename2 or error.filename or "A file of the pipeline"
        raise ConfigError(
            f"{name} cannot be written: {_DISK_TROUBLE[error.errno]} ({error.strerror}).",
            hint="Make room on the disk, or make it writable again, then run the pipeline again: it goes on "
            "from where it stood.",
        ) from error


def close_to_others(path: Path, option: str, *, open_: Collection[Path] = ()) -> None:
    """Takes from other accounts what they may do with a directory of ours and with what stands in it.
    `open_`: places that the pipeline file names and that others may use. Raises `ConfigError` if others can
    read what is not ours to close."""
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
    """Whether anything had to be changed."""
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
    """Holds the state directory. The lock goes with the process, however it ends."""
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
    """Holds the lock that is this file, in a directory that `option` names. False: another process has it."""
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
    """Whether some process runs the pipeline of this state directory now. Every command asks this and
    nothing else: the lock lives exactly as long as the process, whatever clocks, process numbers and reports
    say, and also while the process is stopped (SIGSTOP)."""
    return is_locked(path / "lock")


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock that is this file. Raises `ConfigError` if that cannot be told."""
    try:
        return lock.is_locked(path)
    except OSError as error:
        raise ConfigError(
            f"The lock {path} cannot be looked at: {error.strerror}.",
            hint="Run the command as the account that runs the pipeline.",
        ) from error
