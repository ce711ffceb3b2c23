"""Which input is a signal, and how it is accepted: the same for all channels."""

from __future__ import annotations

import json
import logging
from typing import Any

from penstock.errors import ConfigError
from penstock.signals.commands import DATA_BYTES_MAX, DATA_DEPTH_MAX, check_id
from penstock.state import StateStore

log = logging.getLogger(__name__)

WARNINGS_MAX = 20
"""Warnings about invalid input per poll, so that it cannot fill the log. The rest is only counted."""


def accept(
    state: StateStore, signal_id: Any, kind: Any, data: Any, channel: str, *, limited: bool = True
) -> bool:
    """Stores a signal; False if its id is known already. Raises `ConfigError` if it is not a signal at all.
    Its type and data are checked when the pipeline processes it. `limited`: raises `SignalsWait` while too
    many signals are waiting."""
    check(signal_id, kind, data)
    return state.send(signal_id, kind, data, channel, limited=limited)


class InvalidInput:
    """Logs input that is not a signal, at most `WARNINGS_MAX` times, so that nobody can fill the log."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._count = 0

    def warn(self, place: str, why: str) -> None:
        self._count += 1
        if self._count <= WARNINGS_MAX:
            log.warning("%s: %s is not a signal: %s", self._where, place, why)

    def end(self) -> None:
        if self._count > WARNINGS_MAX:
            log.warning("%s: %d more entries are not signals", self._where, self._count - WARNINGS_MAX)


def check(signal_id: Any, kind: Any, data: Any) -> None:
    """Raises `ConfigError` for input that is not a signal. What passes can be stored and read by any JSON
    reader: it is UTF-8 and its nesting is bounded."""
    check_id(signal_id)
    if not isinstance(kind, str) or not 0 < len(kind) <= 100:
        raise ConfigError("A signal's type must be a text of 1 to 100 characters.")
    if not isinstance(data, dict):
        raise ConfigError("A signal's data must be a JSON object.")
    if not _is_shallow(data):
        raise ConfigError(f"A signal's data is nested more than {DATA_DEPTH_MAX} levels deep.")
    try:
        f"{signal_id}{kind}".encode()
        size = len(json.dumps(data, ensure_ascii=False, allow_nan=False).encode())
    except (TypeError, ValueError):
        raise ConfigError(
            "A signal holds a value that JSON in UTF-8 cannot represent, such as NaN or half a character."
        ) from None
    if size > DATA_BYTES_MAX:
        raise ConfigError(f"A signal's data is longer than {DATA_BYTES_MAX} bytes.")


def _is_shallow(data: Any) -> bool:
    level = [data]
    for _ in range(DATA_DEPTH_MAX):
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list | tuple)
        ]
        if not level:
            return True
    return False
