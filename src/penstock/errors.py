"""Every error Penstock raises on purpose, by who acts on it.

`PenstockError` carries a one-paragraph message, a `hint` (what to do) and plain attributes, and it
pickles, because errors cross Spark's executors. Row values never enter a message.

| class | who acts | what the pipeline does |
|---|---|---|
| `TransientError` | nobody | retries with back-off |
| `TableError` | the operator, for one table | parks that table, the others go on |
| `ConfigError` | the operator, before start | refuses to start |
| `SourceError` | the operator, for the whole source | stops with exit code 1 |
| `InternalError` | us | stops; please report |
"""

from __future__ import annotations

from typing import Any

BEGIN_ANEW = (
    "begin anew: move the pipeline's `state` and relay log away, drop its targets or name another "
    "sink.namespace, and run it again; the tables are then read from their beginning (a new snapshot)."
)
"""The end of hints where what was lost cannot be made up for."""


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


class InternalError(PenstockError):
    """A broken promise of our own code."""
