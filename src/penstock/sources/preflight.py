"""Can this source be captured? What is asked before a pipeline starts, and the form of the answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from penstock.config import PipelineConfig
from penstock.errors import ConfigError, LogPurged

Level = Literal["error", "warning", "ok"]


@dataclass(frozen=True)
class Finding:
    """One answer to "can this source be captured?".

    `check` names the demand (stable, for programs), `message` says what was found in one paragraph, `sql`
    holds the statements that mend it (empty: nothing to mend, or SQL cannot do it), `parks`: the pipeline
    leaves the table alone until it is mended. `partial_rows`: row events of the log
    lack columns, which the targets complete.
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


PURGED = "backlog"
"""The check that finds, as an error, that the source no longer has log which was not received."""


def refuse(findings: Iterable[Finding]) -> None:
    """Raises `ConfigError` with one paragraph per error (`LogPurged` if it is that alone, as a receiver says
    it); no error, no effect."""
    errors = [finding for finding in findings if finding.level == "error"]
    if not errors:
        return
    paragraphs = [finding.message + (f" Cure: {finding.sql}" if finding.sql else "") for finding in errors]
    kind = LogPurged if all(finding.check == PURGED for finding in errors) else ConfigError
    raise kind("\n\n".join(paragraphs), findings=[finding.to_json() for finding in errors])


class Preflight(Protocol):
    """Looks at a source without changing anything there."""

    def check(self, config: PipelineConfig) -> list[Finding]:
        """All that keeps a pipeline with this configuration from working, in the order in which it should be
        mended. What is wrong with the source is a finding, and never raised. `config` names the tables that
        the pipeline captures now, which may be others than those of its file."""

    def check_start(self) -> None:
        """Raises the error with which the receiver would refuse to begin or to go on (`ConfigError`,
        `LogPurged`, `LogDiverged`), or `SourceUnreachable`."""
