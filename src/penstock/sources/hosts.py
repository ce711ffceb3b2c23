"""Says from which servers chunks may be read at present."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from penstock.sources.chunks import Host


@dataclass(frozen=True)
class UsableHosts:
    """The servers that may be read from now. If there are none, `reason` says why, and `paused_by` names the
    limit."""

    hosts: tuple[Host, ...]
    reason: str = ""
    paused_by: str = ""


class SnapshotHosts(Protocol):
    """Watches the servers that `snapshot.hosts` and `snapshot.load` name. Only one thread may call `look` and
    `close`."""

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to watch. If not, chunks are read from `followed`."""

    def followed(self) -> Host:
        """The server whose log is followed now. Does not connect."""

    def look(self) -> UsableHosts:
        """Checks all servers once. It is called about once a second while chunks wait. It never raises: an
        error is a reason to wait."""

    def close(self) -> None:
        """Closes all connections. The next `look` opens them again."""

    def hosts_to_json(self) -> list[dict[str, Any]]:
        """Each of `snapshot.hosts` as `host`. `excluded_because`: why it is not read from, or null."""
