"""Simulates faults for processes under test: a clock that jumps, writes that fail, a power loss.

A small C library (`preload.c`) is compiled with `cc` once and loaded into each process and its children
(LD_PRELOAD). No root is needed.

    with Preloaded(folder) as preloaded:
        environment = preloaded.environment(refused=state, roots=[state])
        ...                                     # start processes with it
        preloaded.step_clock(-3600)
        preloaded.refuse(errno.ENOSPC)          # every write below `state` fails; 0 ends it
        ...                                     # kill the processes
        preloaded.lose_power(dice)              # files below the roots are what fsync has made durable

**Power loss.** At each fsync the library saves a copy of the file's content, or of the directory's entries. A
power loss restores every root from these copies: a file gets the bytes, and a directory the entries, of its
last fsync. Real file systems preserve more than POSIX promises: `Survival` says how much of the rest
survives.

Not covered: what a process writes through a shared mapping without fsync (SQLite's `-shm` file, which is
rebuilt), and programs that do not call fsync through the C library (statically linked ones).
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import random
import shutil
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from typing_extensions import Self

from penstock.testing import artifacts

SOURCE = Path(__file__).with_name("preload.c")

Survival = Literal["strict", "names", "mixed"]
"""What survives a power loss. strict: only what fsync promises. names: the present entries of directories, as
with a journal of metadata, and file contents as of the last fsync. mixed: for each file and each directory,
one or the other at random."""


def missing() -> str:
    """Returns why the library cannot be used on this machine; empty if it can."""
    return "" if shutil.which("cc") else "there is no C compiler (cc)"


def library() -> Path:
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]

    def build(target: Path) -> None:
        command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(target / "preload.so"), str(SOURCE), "-ldl"]
        artifacts.run(command, "Compiling the library for tests")

    return artifacts.entry(f"preload-{digest}", build) / "preload.so"


class Preloaded:
    """Controls the faults of processes that were started with `environment`. `folder` contains the library's
    files and must not be below a root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stored = folder / "stored"
        self.roots: list[Path] = []
        self._words: dict[str, mmap.mmap] = {}

    def __enter__(self) -> Self:
        self.stored.mkdir(parents=True)
        for name in ("clock", "refuse"):
            (self.folder / name).write_bytes(bytes(8))
            with open(self.folder / name, "r+b") as file:
                self._words[name] = mmap.mmap(file.fileno(), 8)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for word in self._words.values():
            word.close()

    def environment(
        self, *, clock: bool = False, refused: Path | None = None, roots: Sequence[Path] = ()
    ) -> dict[str, str]:
        """Returns environment variables for the processes. `clock`: whether their clock can be stepped.
        `refused`: folder in which writes can be made to fail. `roots`: directories for which a power loss can
        be simulated."""
        self.roots = [root.resolve() for root in roots]
        given = {"LD_PRELOAD": str(library())}
        if clock:
            given["PENSTOCK_CLOCK"] = str(self.folder / "clock")
        if refused is not None:
            given |= {
                "PENSTOCK_REFUSE": str(self.folder / "refuse"), "PENSTOCK_REFUSED": str(refused.resolve()),
            }  # fmt: skip
        if roots:
            given["PENSTOCK_STORED"] = str(self.stored)
            given["PENSTOCK_ROOTS"] = ":".join(map(str, self.roots))
        return given

    def step_clock(self, seconds: float) -> None:
        """Sets the difference between the processes' wall clock and the true time, in seconds."""
        self._words["clock"][:] = struct.pack("=q", int(seconds * 1e9))

    def refuse(self, number: int) -> None:
        """Makes writes fail with this errno. With 0 they succeed again."""
        self._words["refuse"][:] = struct.pack("=q", number)

    def lose_power(self, dice: random.Random, survival: Survival = "mixed") -> list[str]:
        """Simulates a power loss. Every process that uses the roots must be dead. Returns a line with the
        path for each loss."""
        return [line for root in self.roots for line in _restore(root, self.stored, dice, survival)]


@dataclass(frozen=True)
class _Kept:
    is_folder: bool
    key: str


def _restore(root: Path, stored: Path, dice: random.Random, survival: Survival) -> list[str]:
    draft = root.with_name(f".{root.name}.power")
    draft.mkdir()
    places = _paths_by_key(root)
    lost: list[str] = []

    def fill(key: str, target: Path, name: str) -> None:
        now = places.get(key)
        before = _synced_entries(stored / f"d-{key}")
        present = {} if now is None else _current_entries(now)
        keeps_names = survival == "names" or (survival == "mixed" and dice.random() < 0.5)
        chosen = present if keeps_names and now is not None else before
        lost.extend(f"{name}/{gone}: its name" for gone in sorted(present.keys() - chosen.keys()))
        for entry, kept in sorted(chosen.items()):
            path = target / entry
            if kept.is_folder:
                path.mkdir()
                fill(kept.key, path, f"{name}/{entry}")
            else:
                content = _content(stored / f"f-{kept.key}", places.get(kept.key), dice, survival)
                path.write_bytes(content)
                if (there := places.get(kept.key)) is not None:
                    shutil.copymode(there, path)
                    if there.stat().st_size != len(content):
                        lost.append(f"{name}/{entry}: {there.stat().st_size - len(content)} bytes")

    fill(_key(root), draft, root.name)
    for entry in list(root.iterdir()):
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    for entry in list(draft.iterdir()):
        entry.rename(root / entry.name)
    draft.rmdir()
    return lost


def _content(kept: Path, now: Path | None, dice: random.Random, survival: Survival) -> bytes:
    durable = kept.read_bytes() if kept.exists() else b""
    if survival != "mixed" or now is None or dice.random() < 0.5:
        return durable
    present = now.read_bytes()
    if present.startswith(durable):  # appended to: a part of it reached the disk
        return present[: dice.randint(len(durable), len(present))]
    return present if dice.random() < 0.5 else durable


def _paths_by_key(root: Path) -> dict[str, Path]:
    found = {_key(root): root}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            found[_key(path)] = path
    return found


def _current_entries(folder: Path) -> dict[str, _Kept]:
    return {path.name: _Kept(path.is_dir(), _key(path)) for path in folder.iterdir()}


def _synced_entries(listing: Path) -> dict[str, _Kept]:
    """Returns the entries of a directory at its last fsync; empty if there was none."""
    if not listing.exists():
        return {}
    found = {}
    for line in listing.read_text("utf-8", "surrogateescape").splitlines():
        kind, key, name = line.split(" ", 2)
        found[name] = _Kept(kind == "d", key)
    return found


_STATX_BASIC_AND_BIRTH = 0xFFF
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW = -100, 0x100


def _key(path: Path) -> str:
    """Returns the inode and its creation time, in the format of the library."""
    buffer = ctypes.create_string_buffer(256)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.statx(_AT_FDCWD, os.fsencode(path), _AT_SYMLINK_NOFOLLOW, _STATX_BASIC_AND_BIRTH, buffer):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    inode = struct.unpack_from("=Q", buffer, 32)[0]
    seconds, nanoseconds = struct.unpack_from("=qI", buffer, 80)
    return f"{inode}-{seconds}-{nanoseconds}"
