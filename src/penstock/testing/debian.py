"""Unpacks programs and libraries from Debian packages, without root and without changing what is installed.

apt-get keeps its state in a temporary folder. For programs of another Debian release, it reads the suite of
that release from the package source of this system, and downloads all dependencies, down to the C library.
The program is then run by the loader among those files (`program`), so the libraries of this system do not
matter.
"""

from __future__ import annotations

import contextlib
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.errors import ConfigError, TransientError
from penstock.testing.artifacts import entry, run

_LIBRARY_FOLDERS = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib")
_ETC_APT = Path("/etc/apt")
_UNUSED = ("usr/share/doc", "usr/share/man", "usr/share/perl", "usr/lib/x86_64-linux-gnu/perl")


def unpack_packages(packages: Sequence[str], target: Path, *, suite: str) -> None:
    """Unpacks packages of a Debian suite, with all their dependencies, into `target`. Raises `ConfigError` if
    this machine cannot use them."""
    _check_tools(f"The package {packages[0]} of Debian {suite}")
    with tempfile.TemporaryDirectory(prefix="penstock-debian-") as name:
        work = Path(name)
        options = [*_private_apt(work), *_only_source(work, suite)]
        run(["apt-get", *options, "update", "-qq"], f"Reading the package lists of Debian {suite}", cwd=work)
        fetch = ["install", "-qq", "-y", "--download-only", "--no-install-recommends", *packages]
        run(["apt-get", *options, *fetch], f"Fetching {', '.join(packages)} of Debian {suite}", cwd=work)
        for deb in sorted((work / "cache/archives").glob("*.deb")):
            run(["dpkg-deb", "-x", str(deb), str(target)], f"Unpacking {deb.name}")
    for folder in _UNUSED:
        shutil.rmtree(target / folder, ignore_errors=True)


def program(root: Path, binary: str, libraries: Sequence[str] = ()) -> list[str]:
    """Returns the command that runs a program of `unpack_packages`, with its own loader and libraries.
    `libraries`: further library folders, relative to `root`."""
    own = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"]  # the second: before Debian 13
    folders = [root / folder for folder in (*own, *libraries)]
    loaders = [root / folder / "ld-linux-x86-64.so.2" for folder in ("usr/lib64", "lib64")]
    loader = next((one for one in loaders if one.exists()), loaders[0])
    return [str(loader), "--library-path", ":".join(map(str, folders)), str(root / binary)]


def libaio_folder() -> Path | None:
    """Returns the folder to put on LD_LIBRARY_PATH so that `libaio.so.1` is found, or None if the system has
    the library."""
    folders = [Path(folder) for folder in _LIBRARY_FOLDERS]
    if any((folder / "libaio.so.1").exists() for folder in folders):
        return None
    return entry("lib/libaio-1", _provide_libaio)


def _check_tools(what: str) -> None:
    tools = [tool for tool in ("apt-get", "dpkg-deb") if shutil.which(tool) is None]
    if tools or platform.machine() != "x86_64":
        raise ConfigError(
            f"{what} cannot be used on this machine: "
            + (f"{' and '.join(tools)} not found." if tools else f"this machine is {platform.machine()}."),
            hint="Run the tests of this server on Debian, x86-64.",
        )


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
            run(["dpkg-deb", "-x", str(deb), str(work / "root")], f"Unpacking {deb.name}")
        libraries = [
            path for path in work.glob("root/**/libaio.so.1*") if path.is_file() and not path.is_symlink()
        ]
        if not libraries:
            raise ConfigError("The package of libaio does not contain libaio.so.1.", hint=cure)
        shutil.copyfile(libraries[0], target / "libaio.so.1")


def _download_deb(work: Path, names: Sequence[str], cure: str) -> None:
    """Downloads the first package that exists. If the package lists of the system do not suffice, fetches
    lists into `work` first."""
    with contextlib.suppress(TransientError):
        return _first_package(work, names, [])
    options = _private_apt(work)
    try:
        run(["apt-get", *options, "update", "-qq"], "Reading the package lists (apt-get update)", cwd=work)
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
    run(["apt-get", *options, "download", "-qq", name], f"Fetching the package {name}", cwd=work)


def _private_apt(work: Path) -> list[str]:
    """Returns options with which apt-get keeps its files in `work`, so that it needs no root, and assumes
    that no package is installed."""
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (work / folder).mkdir(parents=True)
    (work / "status").touch()
    return [
        "-o", f"Dir::State={work}/state", "-o", f"Dir::Cache={work}/cache",
        "-o", f"Dir::State::status={work}/status", "-o", "Debug::NoLocking=1",
        "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=3", "-o", "APT::Keep-Downloaded-Packages=1",
    ]  # fmt: skip


def _only_source(work: Path, suite: str) -> list[str]:
    """Returns options with which apt-get reads only this suite, from the package source of this system."""
    parts = work / "sources"
    parts.mkdir()
    (parts / "suite.sources").write_text(_source_of(suite))
    return ["-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={parts}"]


def _source_of(suite: str) -> str:
    codename = _codename()
    for stanza in _stanzas():
        fields = {name.lower(): value.strip() for name, value in _FIELD.findall(stanza)}
        if codename in fields.get("suites", "").split() and "main" in fields.get("components", "").split():
            lines = [
                "Types: deb",
                f"URIs: {fields['uris'].split()[0]}",
                f"Suites: {suite}",
                "Components: main",
            ]
            if "signed-by" in fields:
                lines.append(f"Signed-By: {fields['signed-by']}")
            return "\n".join(lines) + "\n"
    raise ConfigError(
        f"No package source of Debian {codename} is configured, so none for {suite} can be derived.",
        hint=f"Check {_ETC_APT}/sources.list and {_ETC_APT}/sources.list.d.",
    )


_FIELD = re.compile(r"^([A-Za-z-]+):((?:.*)(?:\n[ \t].*)*)", re.MULTILINE)
_ONE_LINE = re.compile(r"^deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s+(.*)$")


def _codename() -> str:
    with contextlib.suppress(OSError):
        fields = dict(
            line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line
        )
        if fields.get("ID", "").strip('"') == "debian" and "VERSION_CODENAME" in fields:
            return fields["VERSION_CODENAME"].strip('"')
    raise ConfigError(
        "Servers from Debian packages run only on a Debian system.",
        hint="Run the tests of this server on Debian, x86-64.",
    )


def _stanzas() -> Iterator[str]:
    """Yields the package sources of the system as deb822 stanzas. Sources in the one-line format are
    converted."""
    for path in sorted((_ETC_APT / "sources.list.d").glob("*.sources")):
        text = "\n".join(line for line in path.read_text().splitlines() if not line.startswith("#"))
        yield from text.split("\n\n")
    for path in [_ETC_APT / "sources.list", *sorted((_ETC_APT / "sources.list.d").glob("*.list"))]:
        for line in path.read_text().splitlines() if path.is_file() else ():
            if match := _ONE_LINE.match(line.strip()):
                signed = re.search(r"signed-by=(\S+)", match[1] or "")
                yield (
                    f"URIs: {match[2]}\nSuites: {match[3]}\nComponents: {match[4]}"
                    + (f"\nSigned-By: {signed[1]}" if signed else "")
                )
