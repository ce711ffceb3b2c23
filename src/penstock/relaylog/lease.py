"""Ensures one writer per relay log with a lock, and numbers the writers with a generation.

The lock ends with its process, however that ends. The generation is part of every segment's name, so files
that a writer leaves behind cannot be mistaken for those of its successor."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.disk.directory import is_locked
from penstock.disk.lock import take
from penstock.errors import LeaseHeld
from penstock.relaylog.segment import LEASE_FILE, list_segments


class Lease:
    """A lock that this process has from construction to `release`. Raises `LeaseHeld` if another process
    holds it."""

    def __init__(self, folder: Path, prepare: Callable[[], int] = lambda: 0) -> None:
        """`prepare` is called with the lock. It returns the greatest generation that is known elsewhere."""
        self.path = folder / LEASE_FILE
        lock = take(self.path)
        if lock is None:
            raise self._held()
        self._lock = lock
        try:
            self.generation = self._next_generation(folder, prepare())
        except BaseException:
            lock.release()
            raise

    def _held(self) -> LeaseHeld:
        owner = read_owner(self.path)
        by = f" (process {owner['pid']} on {owner['host']})" if owner else ""
        return LeaseHeld(
            f"Another receiver{by} writes the relay log {self.path.parent}.",
            hint="One receiver serves any number of pipelines. Use the running one, or stop it first.",
            path=str(self.path.parent),
            **owner,
        )

    def _next_generation(self, folder: Path, elsewhere: int) -> int:
        seen = [name.generation for name in list_segments(folder)]
        generation = max([int(read_owner(self.path).get("generation", 0)), elsewhere, *seen]) + 1
        owner = {
            "generation": generation,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": time.time(),
        }
        data = json.dumps(owner).encode()
        os.pwrite(self._lock.descriptor, data.ljust(200), 0)
        os.fsync(self._lock.descriptor)
        return generation

    def check(self) -> None:
        """Raises `LeaseHeld` if the lock was lost because its file was replaced."""
        if not self._lock.is_current():
            raise self._held()

    def release(self) -> None:
        self._lock.release()


def is_held(folder: Path) -> bool:
    """Whether a receiver writes the relay log of this folder now."""
    return is_locked(folder / LEASE_FILE)


def read_owner(path: Path) -> dict[str, Any]:
    try:
        owner = json.loads(path.read_bytes() or b"{}")
    except (OSError, ValueError):
        return {}
    return owner if isinstance(owner, dict) else {}
