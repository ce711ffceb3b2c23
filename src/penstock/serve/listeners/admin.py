"""What an operator may ask over HTTP: to stop and start destinations, and for the newest messages."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.failures.log_format import FORMAT
from penstock.serve.destination import Destinations
from penstock.sources.supervisor import LOG_FILE

LINES_MAX = 1000
"""Messages that are kept in memory."""
RECEIVER_BYTES = 64 * 1024
"""Bytes of the receiver's log, from its end."""


class RecentLines(logging.Handler):
    """Keeps the newest messages of this process."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(FORMAT))
        self._lines: deque[str] = deque(maxlen=LINES_MAX)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))

    def newest(self, count: int) -> list[str]:
        return list(self._lines)[-count:] if count > 0 else []


class Admin:
    """What operators can ask over HTTP. `relay_logs`: the folders with the logs of receivers, by the names of
    sources."""

    def __init__(self, destinations: Destinations, relay_logs: Mapping[str, Path]) -> None:
        self._destinations = destinations
        self._relay_logs = relay_logs
        self._lines = RecentLines()
        logging.getLogger("penstock").addHandler(self._lines)

    def close(self) -> None:
        logging.getLogger("penstock").removeHandler(self._lines)

    def stop(self, name: str) -> dict[str, Any]:
        """Stops a destination. Raises `KeyError` for a name that this server does not have."""
        self._destinations.stop(name)
        return {"destination": name, "state": "stopped"}

    def start(self, name: str) -> dict[str, Any]:
        self._destinations.start(name)
        return {"destination": name, "state": "running"}

    def states(self) -> dict[str, str]:
        """For each destination `running`, `stopped`, or the reason that its clients get."""
        return self._destinations.states()

    def logs(self, count: int) -> dict[str, list[str]]:
        found = {"server": self._lines.newest(count)}
        for name, folder in self._relay_logs.items():
            found[f"receiver-{name}" if name else "receiver"] = _last_lines(folder / LOG_FILE, count)
        return found


def _last_lines(path: Path, count: int) -> list[str]:
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - RECEIVER_BYTES))
        return file.read().decode(errors="replace").splitlines()[-count:]
