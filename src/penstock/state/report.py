"""The files of a pipeline's state that say how its run goes, and how it ended. They are reports, not state:
nothing is decided by them.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import math
import time
from pathlib import Path
from typing import Any

from penstock.disk.replace import replace_file
from penstock.relaylog.status import age_seconds

log = logging.getLogger(__name__)

REPORT_FILE = "status.json"
END_FILE = "ended.json"


def iso(us: int | None) -> str | None:
    if us is None:
        return None
    return datetime.datetime.fromtimestamp(us / 1e6, datetime.timezone.utc).isoformat(timespec="milliseconds")


def replace(path: Path, text: str, draft: Path) -> None:
    """Nothing stops because a report cannot be written: it is no state."""
    try:
        replace_file(path, text.encode(), durable=False, draft=draft)
    except OSError as error:
        log.warning("the report %s cannot be written: %s", path, error)


def forget_report(state: Path) -> None:
    """The run has ended, not by force."""
    for name in (REPORT_FILE, END_FILE):
        with contextlib.suppress(OSError):
            (state / name).unlink()


def note_end(state: Path, message: str) -> None:
    """The run ends by force: why, until the next one ends."""
    path = state / END_FILE
    document = {"at": iso(int(time.time() * 1e6)), "message": message}
    replace(path, json.dumps(document), path.with_suffix(".tmp"))


def read_end(state: Path) -> dict[str, Any] | None:
    """When and why the last run was ended by force; None: it was not."""
    try:
        document = json.loads((state / END_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def read_status(directory: Path) -> dict[str, Any] | None:
    """What a running pipeline wrote last, however old; None: it has written nothing, or has ended."""
    try:
        document = json.loads((directory / REPORT_FILE).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def forget_status(directory: Path) -> None:
    """Removes the report of a pipeline that was killed."""
    with contextlib.suppress(OSError):
        (directory / REPORT_FILE).unlink()


def report_age_seconds(document: dict[str, Any]) -> float:
    """How long the process that wrote this has said nothing."""
    alive = document.get("alive")
    return min(age_seconds(document), age_seconds(alive) if isinstance(alive, dict) else math.inf)
