"""Measures how much memory processes use."""

from __future__ import annotations

from pathlib import Path


def peak_bytes(pid: int) -> int:
    """The most memory that a process has had since it started (`VmHWM` of proc(5))."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
