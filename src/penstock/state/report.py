"""Reports in the state directory: the progress of a run, and how it ended. They are only read for display: no
decision depends on them."""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.disk.replace import replace_file
from penstock.errors import PenstockError
from penstock.relaylog.status import age_seconds

log = logging.getLogger(__name__)

REPORT_FILE = "status.json"
END_FILE = "ended.json"


def iso(us: int | None) -> str | None:
    if us is None:
        return None
    return datetime.datetime.fromtimestamp(us / 1e6, datetime.timezone.utc).isoformat(timespec="milliseconds")


def replace(path: Path, text: str, draft: Path) -> None:
    """Replaces a report. If that fails, only logs a warning, because a run does not stop for a report.
    `draft`: see `replace_file`."""
    try:
        replace_file(path, text.encode(), durable=False, draft=draft)
    except OSError as error:
        log.warning("the report %s cannot be written: %s", path, error)


def forget_end(state: Path) -> None:
    """Deletes the record of how an earlier run ended."""
    with contextlib.suppress(OSError):
        (state / END_FILE).unlink()


@contextlib.contextmanager
def end_noted(state: Path) -> Iterator[None]:
    """Records the error that ends the run in this block. Without one, there is no record afterwards."""
    try:
        yield
    except (PenstockError, OSError) as error:
        note_end(state, str(error))
        raise
    forget_end(state)


def note_end(state: Path, message: str) -> None:
    """Records that the run is ended by an error or by force, and why. The record stays until a later run
    works."""
    path = state / END_FILE
    document = {"at": iso(int(time.time() * 1e6)), "message": message}
    replace(path, json.dumps(document), path.with_suffix(".tmp"))


def read_end(state: Path) -> dict[str, Any] | None:
    """Returns when and why the last run was ended by an error or by force, or None if it was not."""
    try:
        document = json.loads((state / END_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) and {"at", "message"} <= document.keys() else None


def end_text(ended: dict[str, Any]) -> str:
    """A sentence about what `read_end` returns."""
    return f"The last run ended at {ended['at'][:19]} UTC: {ended['message']}"


def read_status(directory: Path) -> dict[str, Any] | None:
    """Returns the last progress report, however old. None if there is none, because nothing was written yet
    or the run has ended."""
    try:
        document = json.loads((directory / REPORT_FILE).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def forget_status(directory: Path) -> None:
    """Deletes the progress report of a run that has ended or was killed."""
    with contextlib.suppress(OSError):
        (directory / REPORT_FILE).unlink()


def report_age_seconds(document: dict[str, Any]) -> float:
    """Seconds since the process that wrote this report last updated the report or its entry `alive`."""
    alive = document.get("alive")
    return min(age_seconds(document), age_seconds(alive) if isinstance(alive, dict) else math.inf)
