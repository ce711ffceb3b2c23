"""`receiver.json`: what the receiver is doing, for `penstock status`, the supervisor and people.

Replaced as a whole about every second, and at each change of state. It is a report, not state: nothing is
resumed from it.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any, Literal

from penstock import errors
from penstock.errors import PenstockError
from penstock.relaylog.segment import STATUS_FILE, replace_file

State = Literal["starting", "connecting", "streaming", "reconnecting", "disk_full", "stopped", "failed"]


class StatusFile:
    def __init__(self, folder: Path, generation: int) -> None:
        self._path = folder / STATUS_FILE
        self.facts: dict[str, Any] = {"pid": os.getpid(), "generation": generation, "state": "starting"}
        self._written = 0.0

    def enter(self, state: State, message: str = "", error: PenstockError | None = None) -> None:
        """A change of state is written at once."""
        self.facts |= {
            "state": state,
            "since": time.time(),
            "message": message,
            "error": None if error is None else error.to_json(),
        }
        self.write()

    @property
    def due(self) -> bool:
        return time.monotonic() - self._written >= 1

    def write(self) -> None:
        self._written = time.monotonic()
        self.facts["updated"] = time.time()
        data = json.dumps(self.facts, ensure_ascii=False, default=str).encode()
        # A full disk must not stop the receiver from waiting for room.
        with contextlib.suppress(OSError):
            replace_file(self._path, data, durable=False)


def read_status(folder: str | Path) -> dict[str, Any]:
    """The last report; empty if there is none."""
    try:
        facts = json.loads((Path(folder) / STATUS_FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def rebuild_error(fields: dict[str, Any]) -> PenstockError:
    """The error that a report holds, as its own class."""
    known = dict(fields)
    kind = getattr(errors, str(known.pop("error", "")), None)
    if not (isinstance(kind, type) and issubclass(kind, PenstockError)):
        kind = errors.SourceError
    return kind(str(known.pop("message", "")), hint=str(known.pop("hint", "")), **known)
