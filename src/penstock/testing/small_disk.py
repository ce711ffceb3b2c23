"""A small disk for tests, which can be filled: a tmpfs mounted on a folder. Needs root."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

_BALLAST = "ballast"


def missing() -> str:
    """Returns why this machine cannot mount it; empty if it can."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return "mounting needs root"
    return ""


class SmallDisk:
    """A disk of `mib` MiB, mounted on `folder` while the `with` block runs. Creates the folder if it is
    missing."""

    def __init__(self, folder: Path, *, mib: int) -> None:
        self.folder, self._mib = folder, mib

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        size = f"size={self._mib}m,mode=755"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "penstock-test", str(self.folder)], check=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        unmount(self.folder)

    def fill(self, *, left_bytes: int = 0) -> None:
        """Fills the disk until at most about `left_bytes` are free."""
        found = os.statvfs(self.folder)
        with open(self.folder / _BALLAST, "ab", buffering=0) as file, contextlib.suppress(OSError):
            for size in (1 << 20, 1 << 12, 1):
                while os.statvfs(self.folder).f_bavail * found.f_frsize - size >= left_bytes:
                    if file.write(bytes(size)) < size:
                        break

    def free(self) -> None:
        """Deletes what `fill` wrote."""
        with contextlib.suppress(FileNotFoundError):
            (self.folder / _BALLAST).unlink()


def unmount(folder: Path) -> None:
    """Unmounts the folder, even if files in it are still open."""
    done = subprocess.run(["umount", "-l", str(folder)], capture_output=True, text=True, check=False)
    if done.returncode and "not mounted" not in done.stderr:
        raise OSError(errno.EBUSY, done.stderr.strip(), str(folder))
