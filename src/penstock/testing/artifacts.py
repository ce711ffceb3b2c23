"""Server binaries and system libraries, unpacked once into the cache that `penstock.artifacts` fills.

An entry is built under a temporary name and renamed when complete, by one process at a time; so an entry that
exists is whole, and any number of callers may ask at once. Nothing here needs root, Docker or a tool beyond
Java (and apt-get for a missing libaio).
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from penstock.artifacts import cache_directory
from penstock.errors import ConfigError, TransientError

_LIBRARY_FOLDERS = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib")
_FETCH_TIMEOUT_S = 600


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
    with open(folder / name, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
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


def _run(command: Sequence[str], what: str, *, cwd: Path | None = None) -> None:
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


def libaio_folder() -> Path | None:
    """The folder to put on LD_LIBRARY_PATH so that `libaio.so.1` is found; None: the system has it."""
    folders = [Path(folder) for folder in _LIBRARY_FOLDERS]
    if any((folder / "libaio.so.1").exists() for folder in folders):
        return None
    return entry("lib/libaio-1", _provide_libaio)


def _provide_libaio(target: Path) -> None:
    # Debian 13 and Ubuntu 24.04 renamed the file (64-bit time_t); on x86-64 it is the same library.
    for folder in _LIBRARY_FOLDERS:
        if (Path(folder) / "libaio.so.1t64").exists():
            (target / "libaio.so.1").symlink_to(Path(folder) / "libaio.so.1t64")
            return
    cure = "Install it: sudo apt-get install libaio1 (libaio1t64 on newer systems), or dnf install libaio."
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise ConfigError("The library libaio.so.1, which MySQL needs, is missing.", hint=cure)
    with tempfile.TemporaryDirectory(prefix="penstock-libaio-") as name:
        work = Path(name)
        _download_deb(work, ("libaio1", "libaio1t64"), cure)
        for deb in work.glob("*.deb"):
            _run(["dpkg-deb", "-x", str(deb), str(work / "root")], f"Unpacking {deb.name}")
        libraries = [
            path for path in work.glob("root/**/libaio.so.1*") if path.is_file() and not path.is_symlink()
        ]
        if not libraries:
            raise ConfigError("The package of libaio holds no libaio.so.1.", hint=cure)
        shutil.copyfile(libraries[0], target / "libaio.so.1")


def _download_deb(work: Path, names: Sequence[str], cure: str) -> None:
    """`apt-get download` of the first package that exists; with package lists of our own if need be."""
    with contextlib.suppress(TransientError):
        return _first_package(work, names, [])
    options = _private_apt(work)
    try:
        _run(["apt-get", *options, "update", "-qq"], "Reading the package lists (apt-get update)", cwd=work)
        _first_package(work, names, options)
    except TransientError as error:
        raise ConfigError(
            f"libaio.so.1, which MySQL needs, is missing. {error.message}", hint=cure
        ) from error


def _first_package(work: Path, names: Sequence[str], options: list[str]) -> None:
    for name in names[:-1]:
        with contextlib.suppress(TransientError):
            return _fetch_package(work, name, options)
    return _fetch_package(work, names[-1], options)


def _fetch_package(work: Path, name: str, options: list[str]) -> None:
    _run(["apt-get", *options, "download", "-qq", name], f"Fetching the package {name}", cwd=work)


def _private_apt(work: Path) -> list[str]:
    """Options that let apt-get keep its lists in `work`, so that it needs no root."""
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (work / folder).mkdir(parents=True)
    (work / "status").touch()
    return [
        "-o", f"Dir::State={work}/state", "-o", f"Dir::Cache={work}/cache",
        "-o", f"Dir::State::status={work}/status", "-o", "Debug::NoLocking=1",
    ]  # fmt: skip
