"""Formats each log record as one line, as text or as JSON. Stack traces go to `errors.log`."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

from penstock.failures import error_log as details
from penstock.failures.advice import advise
from penstock.printable import LogFormatter, printable_json

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_SIGNS = ("Traceback (most recent call last)", "\n\tat ", "JVM stacktrace:")


class OneLine(LogFormatter):
    """Formats a record as one line, and writes its stack trace to `errors.log`. `state` returns the
    pipeline's state directory, or None if it is not known."""

    def __init__(self, state: Callable[[], Path | None]) -> None:
        super().__init__(FORMAT)
        self._state = state

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        has_trace = bool(record.exc_info and record.exc_info[0]) or any(sign in message for sign in _SIGNS)
        kept = details.keep_text(super().format(record), self._state()) if has_trace else None
        message = shortened(message)
        if kept is not None:
            message += f" Details are in {kept}."
        plain = logging.makeLogRecord(
            {
                **record.__dict__,
                "msg": message,
                "args": None,
                "exc_info": None,
                "exc_text": None,
                "stack_info": None,
            }
        )
        return super().format(plain)


class JsonLine(OneLine):
    """Formats a record as one JSON object: `time`, `level`, `logger`, `message`."""

    def __init__(self, state: Callable[[], Path | None]) -> None:
        super().__init__(state)
        self._style = logging.PercentStyle("%(message)s")

    def format(self, record: logging.LogRecord) -> str:
        document = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": super().format(record),
        }
        return printable_json(json.dumps(document))


def shortened(message: str) -> str:
    """Returns the message with its stack trace replaced by one sentence. Pure."""
    if not any(sign in message for sign in _SIGNS):
        return " ".join(message.split("\n")).strip()
    advice = advise(message, rows=True)
    return f"{message.partition(chr(10))[0].rstrip()} {advice.message if advice else ''}".strip()
