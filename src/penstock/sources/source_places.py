"""Places of a source's log in relay logs. An offset means something in one relay log only; a position of the
source may mean the same in every relay log of it. Whether it does, and where it is, its kind knows
(`SourceKind.places`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from penstock.errors import LogPurged, TransientError
from penstock.model.offset import Offset, SourcePosition
from penstock.relaylog.reader import RelayLog
from penstock.sources.log_start import LogStart


@dataclass(frozen=True)
class SourcePlace:
    """A position in the source's log, and a number of entries behind it. `relay_log` and `offset`: the same
    place in one relay log. `view`: whose entries these are (`Subscribed`). `at_event`: the position is that
    of an event, as Canal writes it. `executed`: the transactions that the source had executed there, as a
    text. `server_uuid`: the source; empty: not known."""

    position: SourcePosition
    entries: int = 0
    executed: str = ""
    server_uuid: str = ""
    server_id: int = 0
    commit_us: int = 0
    relay_log: str = ""
    offset: int = 0
    view: str = ""
    at_event: bool = False

    def __str__(self) -> str:
        return str(self.position)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "position": self.position.to_json()}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> SourcePlace:
        return cls(**{**fields, "position": SourcePosition.from_json(fields["position"])})


class NotReached(TransientError):
    """The relay log has not received this place yet."""


def purged(log: RelayLog, wanted: SourcePlace) -> LogPurged:
    return LogPurged(
        f"The relay log {log.place} begins behind {wanted}.",
        hint="Bring back a relay log that has it, or remove what is stored of the client. It then "
        "begins at the destination's `start`, and misses what is in between.",
    )


class Places(Protocol):
    """Finds places in relay logs of one segment format."""

    def start(self, log: RelayLog, start: LogStart) -> Offset:
        """Where a subscription begins that says so in the source's own way. Raises `ConfigError` for a place
        that the log does not have."""

    def find(self, log: RelayLog, wanted: SourcePlace) -> tuple[Offset, int]:
        """Offset and entries behind it of a place that another server has stored. Raises `NotReached`,
        `LogPurged`, and `ConfigError` if the log cannot tell."""

    def server_id(self, log: RelayLog, offset: Offset) -> int:
        """The number of the server whose log this is. 0: not known."""


class CanalPlaces(Protocol):
    """Positions of a source that Canal can follow, too, as Canal writes them."""

    def to_canal(self, place: SourcePlace) -> dict[str, Any]:
        """The fields of a position in Canal's nodes of ZooKeeper."""

    def of_canal(self, fields: Mapping[str, Any]) -> SourcePlace:
        """The place of such fields. Raises `ValueError` if they are none."""
