"""A process in a file system of its own, so that it sees nothing of the caller's disk.

`command` wraps a program so that the kernel gives it a new mount and a new process namespace. Its root is
empty but for the machine's programs and libraries, the folders that the caller names, and an empty `/tmp`.
No root account is needed where the kernel lets users make namespaces. The network is the machine's.

Everything in the namespace ends with its first process, and that ends with `unshare`. So a guardian that
kills the process that it started ends them all.
"""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.errors import ConfigError

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt")
_CHROOT = shutil.which("chroot", path=f"{os.defpath}:/usr/sbin:/sbin") or "chroot"
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


def command(
    program: Sequence[str], *, root: Path, read_only: Mapping[Path, str], writable: Mapping[Path, str]
) -> list[str]:
    """Arguments that run `program` with `root`, an empty folder, as the place of its root.

    `read_only`, `writable`: folders of this machine and where the program sees them. `program` is found in
    the new root; it runs in the first folder of `writable`.
    """
    script = "\n".join(
        [
            "set -e",
            f"cd {shlex.quote(str(root))}",
            "mount -t tmpfs -o mode=755 root .",
            f"cd {shlex.quote(str(root))}",  # again: it is the new file system now
            "mkdir -p proc dev tmp && chmod 1777 tmp",
            "mount -t proc proc proc",
            *[f"touch dev/{name} && mount --bind /dev/{name} dev/{name}" for name in _DEVICES],
            *[_system(path) for path in _SYSTEM if os.path.lexists(path)],
            *[_bind(source, target, "-o ro") for source, target in read_only.items()],
            *[_bind(source, target, "") for source, target in writable.items()],
            # Not `exec`: the shell stays as the first process of the namespace and collects orphans.
            f"{_CHROOT} . /bin/sh -c {shlex.quote(_inside(program, next(iter(writable.values()))))}",
            "exit $?",
        ]
    )
    return [*namespaces(), "sh", "-c", script]


def with_descendants(program: Sequence[str]) -> list[str]:
    """Arguments that run `program` so that all its descendants end with it, also those that have left its
    process group. It sees the whole disk."""
    return [*namespaces(), "sh", "-c", f"mount -t proc proc /proc && {shlex.join(program)}; exit $?"]


@functools.cache
def namespaces() -> tuple[str, ...]:
    """The program that makes the namespaces. Raises `ConfigError` if this machine does not allow it."""
    unshare = shutil.which("unshare")
    base = ["--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
    reason = "the program `unshare` is missing"
    for rights in ([], ["--user", "--map-root-user"]) if unshare else ():
        argv = (str(unshare), *rights, *base)
        done = subprocess.run(
            [*argv, "sh", "-c", "mount -t tmpfs none /tmp"], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return argv
        reason = done.stderr.strip() or f"exit code {done.returncode}"
    raise ConfigError(
        f"A private file system for a process cannot be made: {reason}.",
        hint="Run it as root, or where the kernel allows user namespaces.",
    )


def _system(path: str) -> str:
    """Makes one of the machine's folders visible. On many systems some are links into /usr."""
    inside = path.lstrip("/")
    if Path(path).is_symlink():
        return f"ln -s {shlex.quote(str(Path(path).readlink()))} {inside}"
    return f"mkdir -p {inside} && mount --rbind -o ro {path} {inside}"


def _bind(source: Path, target: str, options: str) -> str:
    inside = shlex.quote(target.lstrip("/"))
    return f"mkdir -p {inside} && mount --rbind {options} {shlex.quote(str(source))} {inside}"


def _inside(program: Sequence[str], folder: str) -> str:
    return f"cd {shlex.quote(folder)} && exec {shlex.join(program)}"
