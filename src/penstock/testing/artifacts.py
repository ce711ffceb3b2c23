"""Server binaries, unpacked once into the cache that `penstock.artifacts.maven` fills.

One process at a time builds an entry, under a temporary name, and renames it when it is complete. So an entry
that exists is complete, and any number of callers may ask for it at once. This needs no root, no Docker, and
no tools except Java (and apt-get for Debian packages: `debian.py`).
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

from penstock.artifacts.maven import cache_directory, make_in_cache
from penstock.disk import lock
from penstock.errors import TransientError

_FETCH_TIMEOUT_S = 600
"""Seconds for one command, such as a download of some hundred MB over a slow line."""
_LOCK_SECONDS_MAX = 3600
"""Maximum wait for a lock. Its holder may be downloading and unpacking several files."""


def cache_root() -> Path:
    """Returns the cache folder, and creates it if it is missing. Raises `ConfigError` if that fails."""
    root = cache_directory()
    make_in_cache(root)
    return root


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Takes the cache's lock `name` while the block runs. Waits while another process or thread holds it, and
    raises `TransientError` after `_LOCK_SECONDS_MAX`."""
    folder = cache_root() / "locks"
    folder.mkdir(exist_ok=True)
    with lock.held(folder / name, wait_seconds=_LOCK_SECONDS_MAX) as ours:
        if ours is None:
            raise TransientError(
                f"Another process has held {folder / name} for {_LOCK_SECONDS_MAX} s.",
                hint=f"Find out why it does not continue{lock.by_holder(folder / name)}.",
            )
        yield


def entry(name: str, build: Callable[[Path], None]) -> Path:
    """Returns the cache folder `name`. If it does not exist, `build` fills it first. If `build` fails, the
    folder does not exist afterwards."""
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
    """Runs a command. `what` names its task in messages. Raises `TransientError`, with the end of the output,
    if the command fails or takes too long."""
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
    """Copies the files below `folder` in a jar into `target`, except those whose names end with an entry of
    `leave_out`."""
    with zipfile.ZipFile(jar) as archive:
        for member in archive.infolist():
            name = member.filename.removeprefix(folder)
            if name == member.filename or member.is_dir() or name.endswith(leave_out):
                continue
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, path.open("wb") as file:
                shutil.copyfileobj(source, file, 1 << 20)
