"""How much of a relay log is kept for each registered consumer."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock._core import DecodeError
from penstock.errors import PenstockError
from penstock.model.offset import Offset
from penstock.relaylog.consumers import Registered, registered
from penstock.relaylog.reader import RelayLog


@dataclass(frozen=True)
class Holder:
    """A consumer, the bytes of log after its offset, and the age in seconds of the oldest transaction in them
    (None: there is none, or its age is unknown)."""

    consumer: Registered
    bytes: int
    seconds: float | None

    def to_json(self) -> dict[str, Any]:
        one = self.consumer
        return {
            "id": one.id,
            "name": one.name,
            "kind": one.kind,
            "running": one.alive,
            "offset": int(one.offset),
            "bytes": self.bytes,
            "oldest_seconds": self.seconds,
            "last_seen": one.updated,
            "state": one.place or None,
            "damaged": one.damaged or None,
        }


class Holders:
    """Finds the holders repeatedly for a running pipeline. Caches the commit time found for each offset."""

    def __init__(self, folder: Path, relay_log: RelayLog | None) -> None:
        """`relay_log`: None if it cannot be read; ages and bytes are then not reported."""
        self._folder = folder
        self._log = relay_log
        self._since: dict[Offset, int | None] = {}

    def find(self) -> list[Holder]:
        try:
            consumers = registered(self._folder)
        except OSError:
            return []
        start, end = (self._log.start, self._log.end) if self._log is not None else (Offset(0), Offset(0))
        found = {one.id: max(start, min(one.offset, end)) for one in consumers}
        self._since = {at: self._since_us(at, end) for at in set(found.values())}
        return [Holder(one, end - found[one.id], self._age(found[one.id])) for one in consumers]

    def _since_us(self, at: Offset, end: Offset) -> int | None:
        known = self._since.get(at)
        if known is not None or self._log is None or at >= end:
            return known
        try:
            return self._log.first_commit_us_after(at)
        except (PenstockError, DecodeError, OSError):  # a damaged log is reported by its readers
            return None

    def _age(self, at: Offset) -> float | None:
        since = self._since.get(at)
        return None if since is None else max(0.0, round(time.time() - since / 1e6, 1))
