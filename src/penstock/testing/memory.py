"""Measures how much memory processes use."""

from __future__ import annotations

from pathlib import Path


def peak_bytes(pid: int) -> int:
    """The most memory that a process has had since it started (`VmHWM` of proc(5)).

    `ru_maxrss` of getrusage(2) is no substitute: a process that was forked counts the memory of its parent,
    which it had before exec(2), as its own.
    """
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
