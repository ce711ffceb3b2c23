"""Every error Penstock raises on purpose, by who acts on it.

`PenstockError` carries a one-paragraph message, a `hint` (what to do) and plain attributes, and it
pickles, because errors cross Spark's executors. Row values never enter a message.

| class | who acts | what the pipeline does |
|---|---|---|
| `TransientError` | nobody | retries with back-off |
| `TableError` | the operator, for one table | parks that table, the others go on |
| `ConfigError` | the operator, before start | refuses to start |
| `SourceError` | the operator, for the whole source | stops with exit code 1 |
| `SparkFailed` | the operator: class path, catalog, store, memory | stops with exit code 1 |
| `InternalError` | us | stops; please report |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

START_OVER = (
    "start over: move the pipeline's `state` and relay log away, drop its targets or choose another "
    "sink.namespace, and run it again. It then takes a new snapshot of all tables."
)
"""The end of hints for losses that cannot be repaired."""


class PenstockError(Exception):
    """Base class. `details` are the facts behind the message, ready for `--json`."""

    def __init__(self, message: str, *, hint: str = "", **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.hint, self.details))

    def to_json(self) -> dict[str, Any]:
        return {
            "error": type(self).__name__,
            "message": self.message,
            "hint": self.hint,
            **self.details,
        }


def _rebuild(kind: type[PenstockError], message: str, hint: str, details: dict[str, Any]) -> PenstockError:
    return kind(message, hint=hint, **details)


class TransientError(PenstockError):
    """A passing fault (connection lost, server restarting): the same step is tried again."""


class SourceUnreachable(TransientError):
    """Nobody answers at the source's address."""


class SourceBehind(SourceUnreachable):
    """A replica answers, but it has yet to apply what we hold."""


class TableError(PenstockError):
    """One table cannot go on. Give `table=` (str) and, when known, `offset=` (int) as details."""


class TablesParked(TableError):
    """A run came to its end, but some tables were left behind."""


class ConfigError(PenstockError):
    """What the operator asked for cannot be started: file, option, grant, setting, target."""


class SourceError(PenstockError):
    """The source as a whole cannot be followed any further."""


class LogPurged(SourceError):
    """The source, or the relay log, no longer has the log we need."""


class LogDiverged(SourceError):
    """The source is not, or no longer, the one whose log we hold (reset, restore, lossy failover)."""


class LeaseHeld(ConfigError):
    """Another receiver writes this relay log."""


class RelayLogCorrupt(SourceError):
    """A segment or index of the relay log is damaged. Give `path=` and `offset=`."""


class SparkFailed(PenstockError):
    """Spark, or what it works with (catalog, class path, store, cluster), failed. The message is one
    sentence; the stack trace is in the file that the hint names."""


class InternalError(PenstockError):
    """A broken promise of our own code."""


CLASSES: dict[str, type[PenstockError]] = {
    one.__name__: one
    for one in (
        PenstockError, TransientError, SourceUnreachable, SourceBehind, TableError, TablesParked, ConfigError,
        SourceError, LogPurged, LogDiverged, LeaseHeld, RelayLogCorrupt, SparkFailed, InternalError,
    )
}  # fmt: skip
"""Errors that may be rebuilt from what another process wrote."""

_OWN_FIELDS = ("error", "message", "hint")


def rebuilt(
    fields: Mapping[str, Any],
    classes: Mapping[str, type[PenstockError]],
    *,
    unknown: type[PenstockError],
) -> PenstockError:
    """The error of which `fields` are what `to_json` gave. `unknown`: for a class that `classes` lacks.
    Never raises, whatever `fields` hold."""
    kind, message, hint = (fields.get(name) for name in _OWN_FIELDS)
    made = (classes.get(kind, unknown) if isinstance(kind, str) else unknown)(str(message or ""))
    made.hint = str(hint or "")
    made.details = {str(name): value for name, value in fields.items() if name not in _OWN_FIELDS}
    return made
