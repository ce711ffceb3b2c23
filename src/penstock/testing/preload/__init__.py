"""What processes are made to believe: a clock that steps, writes that fail, a machine that loses its power.

A small C library (`preload.c`) is compiled with `cc` the first time and put in front of the C library of each
process (LD_PRELOAD), its children included. Nothing here needs root.

    with Preloaded(folder) as preloaded:
        environment = preloaded.environment(refused=state, roots=[state])
        ...                                     # start processes with it
        preloaded.step_clock(-3600)
        preloaded.refuse(errno.ENOSPC)          # every write below `state` fails; 0 ends it
        ...                                     # kill the processes
        preloaded.lose_power(dice)              # files below the roots are what fsync has made durable

**Power loss.** After each fsync the library keeps the file's content, or the directory's entries, aside.
Power loss puts every root back to that: a file has the bytes of its last fsync, a directory the entries of
its last fsync. Real file systems keep more than POSIX promises: `Survival` says how much of the rest stays.

Not covered: what a process writes through a shared mapping without fsync (SQLite's `-shm` file, which is made
anew), and programs that do not call fsync through the C library (statically linked ones).
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
"""strict: only what fsync promised. names: directories as they were, as a journal of metadata has it;
contents as of fsync. mixed: of each file and each directory, by chance, one or the other."""


def missing() -> str:
    """Why it cannot be had here; empty if it can."""
    return "" if shutil.which("cc") else "there is no C compiler (cc)"


def library() -> Path:
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]

    def build(target: Path) -> None:
        command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(target / "preload.so"), str(SOURCE), "-ldl"]
        artifacts.run(command, "Compiling the library for tests")

    return artifacts.entry(f"preload-{digest}", build) / "preload.so"


class Preloaded:
    """`folder`: where what it needs is kept; it must not be below what is watched."""

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
        """Variables for processes. `roots`: directories of which power loss is to be played."""
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
        """The processes' wall clock is so far from the true one."""
        self._words["clock"][:] = struct.pack("=q", int(seconds * 1e9))

    def refuse(self, number: int) -> None:
        """Writes end with this errno; 0: they do not."""
        self._words["refuse"][:] = struct.pack("=q", number)

    def lose_power(self, dice: random.Random, survival: Survival = "mixed") -> list[str]:
        """Every process of the roots must be dead. Returns what was lost, by path."""
        return [line for root in self.roots for line in _restore(root, self.stored, dice, survival)]


@dataclass(frozen=True)
class _Kept:
    is_folder: bool
    key: str


def _restore(root: Path, stored: Path, dice: random.Random, survival: Survival) -> list[str]:
    draft = root.with_name(f".{root.name}.power")
    draft.mkdir()
    places = _places(root)
    lost: list[str] = []

    def fill(key: str, target: Path, name: str) -> None:
        now = places.get(key)
        before = _entries(stored / f"d-{key}")
        present = {} if now is None else _present(now)
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
    if present.startswith(durable):  # appended to: some of it got to the disk
        return present[: dice.randint(len(durable), len(present))]
    return present if dice.random() < 0.5 else durable


def _places(root: Path) -> dict[str, Path]:
    found = {_key(root): root}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            found[_key(path)] = path
    return found


def _present(folder: Path) -> dict[str, _Kept]:
    return {path.name: _Kept(path.is_dir(), _key(path)) for path in folder.iterdir()}


def _entries(listing: Path) -> dict[str, _Kept]:
    """What a directory held at its last fsync: nothing, if there was none."""
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
    """Inode and time of birth, as the library writes them."""
    buffer = ctypes.create_string_buffer(256)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.statx(_AT_FDCWD, os.fsencode(path), _AT_SYMLINK_NOFOLLOW, _STATX_BASIC_AND_BIRTH, buffer):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    inode = struct.unpack_from("=Q", buffer, 32)[0]
    seconds, nanoseconds = struct.unpack_from("=qI", buffer, 80)
    return f"{inode}-{seconds}-{nanoseconds}"
