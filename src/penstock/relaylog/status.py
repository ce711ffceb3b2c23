"""`receiver.json`: the receiver's current state, for `penstock status`, the supervisor and people.

The file is replaced about every second and whenever the state changes. It is only a report: nothing is
resumed from it."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from penstock import errors
from penstock.disk.replace import replace_file
from penstock.errors import PenstockError
from penstock.relaylog.segment import STATUS_FILE

log = logging.getLogger(__name__)

State = Literal["starting", "connecting", "streaming", "reconnecting", "disk_full", "stopped", "failed"]


class TroubleLog:
    """Log lines about a receiver that waits: once when it begins, when the reason changes, and at the end."""

    def __init__(self) -> None:
        self._told = ""
        self._since = 0.0

    def look(self, report: Mapping[str, Any]) -> None:
        state, message = report.get("state"), str(report.get("message") or "")
        if state in ("reconnecting", "disk_full"):
            self._since = self._since or time.monotonic()
            # How much space is left changes all the time.
            reason = message if state == "reconnecting" else str(state)
            if reason != self._told:
                self._told = reason
                log.warning("the receiver waits: %s", message)
        elif state == "streaming" and self._told:
            log.warning("the receiver goes on after %.0f s", time.monotonic() - self._since)
            self._told, self._since = "", 0.0


class StatusFile:
    def __init__(self, folder: Path, generation: int) -> None:
        self._path = folder / STATUS_FILE
        self.facts: dict[str, Any] = {"pid": os.getpid(), "generation": generation, "state": "starting"}
        self._written = 0.0
        self._trouble = TroubleLog()

    def enter(self, state: State, message: str = "", error: PenstockError | None = None) -> None:
        """Changes the state and writes the file at once."""
        self.facts |= {
            "state": state,
            "since": time.time(),
            "message": message,
            "error": None if error is None else error.to_json(),
        }
        self._trouble.look(self.facts)
        self.write()

    @property
    def is_outdated(self) -> bool:
        return time.monotonic() - self._written >= 1

    def write(self) -> None:
        self._written = time.monotonic()
        self.facts |= stamp()
        data = json.dumps(self.facts, ensure_ascii=False, default=str).encode()
        try:
            replace_file(self._path, data, durable=False)
        except OSError:
            # A full disk must not stop the receiver from waiting for room, nor from saying so: the block that
            # the last report occupies can be written again.
            with contextlib.suppress(OSError), open(self._path, "r+b", buffering=0) as file:
                file.write(data.ljust(os.fstat(file.fileno()).st_size))


def read_status(folder: str | Path) -> dict[str, Any]:
    """The last report; empty if there is none."""
    try:
        facts = json.loads((Path(folder) / STATUS_FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def stamp() -> dict[str, Any]:
    """The time of a report: `updated` for people, `clock` for `age_seconds`."""
    return {"updated": time.time(), "clock": [_boot(), time.monotonic()]}


def age_seconds(report: dict[str, Any]) -> float:
    """The age of a report. Uses this machine's monotonic clock, which nobody can set. For a report from
    another machine, or from before a reboot, uses the wall clock."""
    clock = report.get("clock")
    if isinstance(clock, list) and len(clock) == 2 and clock[0] == _boot() != "":
        return max(0.0, time.monotonic() - float(clock[1]))
    age = time.time() - float(report.get("updated") or 0)
    return age if age >= 0 else math.inf


SILENT_SECONDS = 10.0
"""A streaming receiver reports every second, so an older report is worth mentioning."""


def silence(report: dict[str, Any]) -> str:
    """For people: the age of a streaming receiver's last report; empty if it is recent."""
    age = age_seconds(report) if report.get("state") == "streaming" else 0.0
    return f", last report {age:.0f} s ago" if age > SILENT_SECONDS else ""


@functools.cache
def _boot() -> str:
    """An id of this boot of this machine; empty if the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def rebuild_error(fields: Any) -> PenstockError:
    """The error in a report, as an instance of its class; a `SourceError` if the class is unknown."""
    known = fields if isinstance(fields, dict) else {"message": fields}
    return errors.rebuilt(known, errors.CLASSES, unknown=errors.SourceError)
