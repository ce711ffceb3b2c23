"""The checks of a source before a pipeline starts, and the form of their results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from penstock.config import PipelineConfig
from penstock.errors import ConfigError, LogPurged

Level = Literal["error", "warning", "ok"]


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    check: its name, which programs can rely on. message: what was found, in one paragraph. sql: statements
    that fix it; empty if there is nothing to fix, or if SQL cannot do it. parks: the pipeline parks the table
    until the problem is fixed. partial_rows: row events in the log lack columns, and the targets complete
    them.
    """

    level: Level
    check: str
    subject: str
    message: str
    sql: str = ""
    parks: bool = False
    partial_rows: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "level": self.level,
            "check": self.check,
            "subject": self.subject,
            "message": self.message,
            "sql": self.sql,
            "parks": self.parks,
        }


def unusable_host(address: str, message: str) -> Finding:
    """For one of `snapshot.hosts`."""
    more = "Chunks are read from the other hosts. While there is none, the snapshot waits."
    return Finding("warning", "snapshot_hosts", address, f"{message} {more}")


PURGED = "backlog"
"""The check that fails if the source has deleted log that was not received yet."""


def refuse(findings: Iterable[Finding]) -> None:
    """Raises `ConfigError` with one paragraph per error. If every error is about deleted log, raises
    `LogPurged`, as a receiver does. Without errors it does nothing."""
    errors = [finding for finding in findings if finding.level == "error"]
    if not errors:
        return
    paragraphs = [finding.message + (f" Cure: {finding.sql}" if finding.sql else "") for finding in errors]
    kind = LogPurged if all(finding.check == PURGED for finding in errors) else ConfigError
    raise kind("\n\n".join(paragraphs), findings=[finding.to_json() for finding in errors])


class Preflight(Protocol):
    """Checks a source without changing anything there."""

    def check(self, config: PipelineConfig) -> list[Finding]:
        """Everything that prevents a pipeline with this configuration from working, in the order in which it
        should be fixed. Problems of the source are findings; they are never raised. `config` names the tables
        that the pipeline captures now, which signals may have changed."""

    def check_start(self) -> None:
        """Raises the error with which the receiver would refuse to start or to continue: `ConfigError`,
        `LogPurged`, `LogDiverged` or `SourceUnreachable`."""
