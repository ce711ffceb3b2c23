"""The directories a pipeline works in: made when missing, refused with a reason, held by one process."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import ConfigError


def make(path: Path, option: str, *, mode: int = 0o777) -> None:
    """`option` is where the pipeline file names it. Raises `ConfigError`."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=mode)
    except (FileExistsError, NotADirectoryError) as error:
        raise ConfigError(
            f"`{option}` is {path}, but {error.filename} is a file.", hint="Give it a directory of its own."
        ) from None
    except OSError as error:
        raise ConfigError(
            f"`{option}` is {path}, which cannot be made: {error.strerror}.",
            hint="Give it a directory that this account may write.",
        ) from error


def sync(path: Path) -> None:
    """What a file or a directory holds is durable when this returns."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Holds the state directory. The lock goes with the process, however it ends."""
    try:
        (path / "lock").touch()
    except OSError as error:
        raise ConfigError(
            f"The `state` directory {path} cannot be written: {error.strerror}.",
            hint="Give `state` a directory that this account may write.",
        ) from error
    with open(path / "lock", "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(
                f"Another process runs the pipeline whose state is {path}.",
                hint="Stop it first, or give this pipeline a `state` of its own.",
            ) from None
        yield


def is_held(path: Path) -> bool:
    """Whether some process runs the pipeline of this state directory now."""
    try:
        with open(path / "lock", "a") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return (path / "lock").exists()
    return False
