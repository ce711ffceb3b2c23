"""The errors that Penstock raises, grouped by who has to act.

`PenstockError` carries a message of one paragraph, a `hint` that says what to do, and details as plain
values. It can be pickled, because Spark's executors send errors to the driver. Messages never contain row
values.

| class | who acts | what the pipeline does |
|---|---|---|
| `TransientError` | nobody | retries with back-off |
| `TableError` | the operator, for one table | parks that table; the others continue |
| `ConfigError` | the operator, before start | refuses to start |
| `SourceError` | the operator, for the whole source | stops with exit code 1 |
| `SparkFailed` | the operator: class path, catalog, store, memory | stops with exit code 1 |
| `InternalError` | the developers | stops; please report |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

START_OVER = (
    "start over: `penstock reset FILE` forgets the state and the relay log, and keeps the targets. The next "
    "run then reads all tables again."
)
"""Ends the hints for losses that cannot be repaired."""


class PenstockError(Exception):
    """Base class. `details` are the facts behind the message, for `--json`."""

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
    """A temporary failure, such as a lost connection or a restarting server. The same step is retried."""


class SourceUnreachable(TransientError):
    """No server answers at the source's address."""


class LoginRefused(SourceUnreachable):
    """The source lets the account not in: its password was changed or has expired, or it is locked. Somebody
    may mend that while a pipeline runs, so a running one waits."""


class SourceBehind(SourceUnreachable):
    """A replica answers, but has not yet applied all transactions that the relay log contains."""


class ChunkOutdated(TransientError):
    """The table's definition is not the one that the chunk was planned with. The caller reads the catalog,
    and plans and reads the chunk again."""


class TableError(PenstockError):
    """One table cannot continue. Details: `table` (str) and, if known, `offset` (int)."""


class TablesParked(TableError):
    """A run with `--once` has ended, but some tables are parked."""


class ConfigError(PenstockError):
    """The pipeline or command cannot start: a file, option, grant, server setting or target is not usable."""


class SourceError(PenstockError):
    """The source as a whole cannot be followed any further."""


class LogPurged(SourceError):
    """The source or the relay log no longer contains the log that the pipeline needs."""


class LogDiverged(SourceError):
    """The source's log does not continue the relay log. The address leads to another server, or the server
    was reset, restored, or lost transactions in a failover."""


class TargetRefused(ConfigError):
    """The target lets the account not in. Refused at the start. Somebody may mend it while a pipeline runs (a
    password that was changed, a certificate that has expired), so a running one waits."""


class GrantMissing(TargetRefused):
    """The account may not do at the target what is needed there. Usually about one table."""


class LeaseHeld(ConfigError):
    """Another receiver writes this relay log."""


class DriverReplaced(ConfigError):
    """Another driver has taken over this pipeline. This one must not write any more."""


class RelayLogCorrupt(SourceError):
    """A segment or index of the relay log is damaged. Details: `path` and `offset`."""


class ChunkCorrupt(RelayLogCorrupt):
    """A staged chunk is damaged or missing. Details: `path`."""


class SparkFailed(PenstockError):
    """Spark, or something that it uses (catalog, class path, store, cluster), failed. The message is one
    sentence. The hint names the file with the stack trace."""


class InternalError(PenstockError):
    """A bug in Penstock."""


CLASSES: dict[str, type[PenstockError]] = {
    one.__name__: one
    for one in (
        PenstockError, TransientError, SourceUnreachable, LoginRefused, SourceBehind, ChunkOutdated,
        TableError, TablesParked, ConfigError, TargetRefused, GrantMissing,
        SourceError, LogPurged, LogDiverged, LeaseHeld, DriverReplaced, RelayLogCorrupt,
        ChunkCorrupt, SparkFailed, InternalError,
    )
}  # fmt: skip
"""The error classes by name, for `rebuilt`."""

_OWN_FIELDS = ("error", "message", "hint")


def rebuilt(
    fields: Mapping[str, Any],
    classes: Mapping[str, type[PenstockError]],
    *,
    unknown: type[PenstockError],
) -> PenstockError:
    """Recreates an error from `fields`, which `to_json` returned in another process. `unknown` is the class
    to use if `classes` does not contain the error's class. Never raises, whatever `fields` contains."""
    kind, message, hint = (fields.get(name) for name in _OWN_FIELDS)
    made = (classes.get(kind, unknown) if isinstance(kind, str) else unknown)(str(message or ""))
    made.hint = str(hint or "")
    made.details = {str(name): value for name, value in fields.items() if name not in _OWN_FIELDS}
    return made
