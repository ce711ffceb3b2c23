"""Where in a log a subscription begins, or a new relay log."""

from __future__ import annotations

from datetime import date, datetime, timezone
from typing import Any, ClassVar, Literal

from pydantic import field_validator, model_validator

from penstock.errors import ConfigError
from penstock.model.section import Section


class LogStart(Section):
    """The place in the source's log at which it begins. Give only one of these options.

    A source whose log has places of its own derives a section with them, and registers it
    (`SourceKind.start`).
    """

    shorthands: ClassVar[list[dict[str, Any]]] = [{"enum": ["latest", "earliest"]}]

    at: Literal["latest", "earliest"] | None = None
    """The end of the source's log, or the oldest part that the source still has. `start: latest` is short
    for `start: {at: latest}`."""
    timestamp: str | None = None
    """ISO 8601. Starts with the first transaction committed at or after this time."""

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, value: Any) -> Any:
        return {"at": value} if isinstance(value, str) else value

    @field_validator("timestamp", mode="before")
    @classmethod
    def _from_time(cls, value: Any) -> Any:
        """YAML reads a time without quotes as a time."""
        return value.isoformat() if isinstance(value, date) else value

    @model_validator(mode="after")
    def _one_way(self) -> LogStart:
        ways = self.ways()
        if sum(way is not None for way in ways.values()) != 1:
            names = [name for name in ways if name not in ("at", "timestamp")]
            raise ValueError(f"give one of: {', '.join(['latest', 'earliest', *names, 'timestamp'])}")
        return self

    def ways(self) -> dict[str, Any]:
        """The ways to say where it begins, by name. One of them has a value."""
        return {"at": self.at, "timestamp": self.timestamp}

    def check(self) -> None:
        """Raises `ConfigError` for a start that cannot be a place in any log."""
        if self.timestamp is not None:
            microseconds(self.timestamp)


def microseconds(text: str) -> int:
    """A time as microseconds since 1970. Raises `ConfigError`."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise ConfigError(
            f"`{text}` is no time.", hint="Write it as 2026-11-25T10:00:00Z, without a zone it is UTC."
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
    return int(moment.timestamp() * 1_000_000)
