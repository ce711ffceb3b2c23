"""Packs the Python packages that tasks need into one archive, which Spark brings to the workers of a cluster.

What is packed: this Penstock with its core, the packages below with what they require, and packages that
register a sink or a source. Files come from the installed distributions, as their records list them. A
package that is installed from a checkout is packed from its folder there. PySpark is left out, because
workers have that of their Spark. Python itself is left out, too.

The archive's name contains a digest of its content's description, so it is built once and another release of
any package makes another archive. It is deterministic: equal packages give equal bytes. It appears in the
cache under its name when it is complete, or not at all.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import platform
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution, entry_points
from importlib.util import find_spec
from pathlib import Path

from penstock.artifacts.maven import cache_directory, make_in_cache
from penstock.disk import lock
from penstock.disk.digest import sha256_of
from penstock.errors import ConfigError

PACKAGES = (
    "cryptography",
    "numpy",
    "obstore",
    "pyarrow",
    "pydantic",
    "pyroaring",
    "PyMySQL",
    "PyYAML",
    "typing_extensions",
)
"""What Penstock imports in tasks. Its other dependencies are for the driver and the command line."""

DRIVER_ONLY = ("pandas", "psutil", "pyspark", "rich", "typer")
"""The other dependencies. Tests compare both lists with `pyproject.toml`."""

PLUGIN_GROUPS = ("penstock.sinks", "penstock.sources")

PACK_SECONDS = 600
"""How long to wait for another process that packs the same archive. It takes some seconds."""

ARCHIVES_MAX = 4
"""Archives that stay in the cache. Runs keep a link to theirs, so the removal of others harms none."""

COMPRESSION_LEVEL = 1
"""Level for gzip. The highest useful one makes 66 MB of 75 and takes four times as long."""

_FORMAT = 1
_LEFT_OUT = re.compile(
    r"\.dist-info/(?!(METADATA|entry_points\.txt)$)"
    r"|(^|/)(__pycache__|tests|include)/|\.(pyc|pth|pyi|pxd|pyx|h|hpp|cc|c|a)$"
    r"|^pyarrow/(src/|(lib)?_?(arrow_)?(python_)?(flight|s3fs|s3)[._])"
)
"""Sources, headers and tests of packages, and parts of PyArrow that Penstock does not use: a third of it."""


@dataclass(frozen=True)
class File:
    path: Path
    digest: str
    """Tells contents apart. Installed files are not read for it: their package's record has it."""


Files = dict[str, File]
"""What an archive contains, by the names in it."""


def python_version() -> str:
    """The version that workers must have: packages are compiled for it."""
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def archive() -> Path:
    """The path of the archive for this environment. It is packed if it does not exist yet. Raises
    `ConfigError` if a package cannot be packed."""
    files = collect()
    path = cache_directory() / "environments" / f"penstock-py{python_version()}-{_digest(files)}.tar.gz"
    if not path.exists():
        make_in_cache(path.parent)
        with lock.held(path.with_name(path.name + ".lock"), wait_seconds=PACK_SECONDS) as ours:
            if ours is None:
                raise ConfigError(
                    f"Another process has been packing {path} for {PACK_SECONDS} s.",
                    hint="Wait for it, or end it and try again.",
                )
            if not path.exists():
                _pack(files, path)
    os.utime(path)  # the time of its last use, for `_forget`
    _forget(path.parent)
    return path


def collect() -> Files:
    """The files of all packages that tasks need."""
    files: Files = {}
    for package in _closure([*PACKAGES, *plugins()]):
        files |= _files_of(package)
    files |= _folder("penstock")
    return dict(sorted(files.items()))


def plugins() -> list[str]:
    """The distributions that register sinks or sources."""
    found = [entry.dist for group in PLUGIN_GROUPS for entry in entry_points(group=group)]
    return sorted({one.metadata["Name"] for one in found if one is not None} - {"penstock"})


def _closure(names: Iterable[str]) -> list[Distribution]:
    """The named distributions and all that they require, without those that only the driver needs."""
    left_out = {_canonical(name) for name in (*DRIVER_ONLY, "penstock", "py4j")}
    waiting, found = list(names), dict[str, Distribution]()
    while waiting:
        name = waiting.pop()
        key = _canonical(name)
        if key in found or key in left_out:
            continue
        try:
            found[key] = distribution(name)
        except PackageNotFoundError:
            if name in PACKAGES:
                raise ConfigError(
                    f"The package {name} is not installed, so it cannot be brought to the workers.",
                    hint="Install Penstock again: pip install penstock",
                ) from None
            continue  # required only on other platforms
        requires = (one.partition(";") for one in found[key].requires or ())
        waiting += [
            re.split(r"[^\w.-]", one.strip(), maxsplit=1)[0]
            for one, _, marker in requires
            if "extra" not in marker
        ]
    return [found[key] for key in sorted(found)]


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _files_of(package: Distribution) -> Files:
    name = package.metadata["Name"]
    listed = package.files
    if listed is None:
        raise ConfigError(
            f"The package {name} has no list of its files, so it cannot be brought to the workers.",
            hint="Install Penstock with pip into a virtual environment, or set `spark.environment: none` and "
            "install it on the workers.",
        )
    files = {}
    for one in listed:
        inside = one.as_posix()
        if ".." in one.parts or one.is_absolute() or _LEFT_OUT.search(inside):
            continue
        path = Path(str(package.locate_file(one)))
        if path.is_file():
            files[inside] = _file(path, one.hash.value if one.hash is not None else None)
    if all(".dist-info/" in inside for inside in files):
        return _from_checkout(package) | files
    return files


def _from_checkout(package: Distribution) -> Files:
    """The packages of an editable installation, whose record lists only a reference to them."""
    modules = {
        entry.module.partition(".")[0] for entry in package.entry_points if entry.group in PLUGIN_GROUPS
    }
    return {name: path for module in sorted(modules) for name, path in _folder(module).items()}


def _folder(module: str) -> Files:
    """All files of a package that is found on the module path."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return {}
    origin = Path(spec.origin)
    if origin.name != "__init__.py":
        return {origin.name: _file(origin)}
    root = origin.parent
    return {
        inside: _file(path)
        for path in root.rglob("*")
        if path.is_file() and not _LEFT_OUT.search(inside := path.relative_to(root.parent).as_posix())
    }


def _file(path: Path, digest: str | None = None) -> File:
    return File(path, digest or sha256_of(path))


def _digest(files: Files) -> str:
    digest = hashlib.sha256(f"{_FORMAT} {python_version()} {platform.machine()}\n".encode())
    for name, file in files.items():
        digest.update(f"{name} {file.digest} {file.path.stat().st_size}\n".encode())
    return digest.hexdigest()[:16]


def _pack(files: Files, target: Path) -> None:
    """Called with the archive's lock, so what other processes began is theirs no more."""
    for left in target.parent.glob(f".{target.name}-*"):
        left.unlink(missing_ok=True)
    descriptor, made = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    try:
        with (
            os.fdopen(descriptor, "wb") as file,
            gzip.GzipFile("", "wb", COMPRESSION_LEVEL, file, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for member, path in _members(files):
                with path.open("rb") as content:
                    tar.addfile(member, content)
        Path(made).chmod(0o644)
        Path(made).replace(target)
    except BaseException:
        Path(made).unlink(missing_ok=True)
        raise


def _members(files: Files) -> Iterator[tuple[tarfile.TarInfo, Path]]:
    """The files as members of an archive, without owners and times, so that archives do not differ between
    machines."""
    for name, file in files.items():
        member = tarfile.TarInfo(name)
        member.size = file.path.stat().st_size
        member.mode = 0o644
        yield member, file.path


def _forget(folder: Path) -> None:
    """Removes the archives that were not used for longest."""
    by_age = sorted(folder.glob("*.tar.gz"), key=lambda path: path.stat().st_mtime)
    for old in by_age[:-ARCHIVES_MAX]:
        old.unlink(missing_ok=True)
        old.with_name(old.name + ".lock").unlink(missing_ok=True)
