"""Which servers chunks may be read from now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from penstock.sources.chunks import Host


@dataclass(frozen=True)
class Sight:
    """`hosts` may be read from now; when there is none, `reason` says why and `paused_by` names the limit."""

    hosts: tuple[Host, ...]
    reason: str = ""
    paused_by: str = ""


class SnapshotHosts(Protocol):
    """Looks at the servers that `snapshot.hosts` and `snapshot.load` name. `look` and `close` serve one
    thread."""

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to look at; if not, chunks are read from `followed`."""

    def followed(self) -> Host:
        """The server whose log is followed now. Asks nothing."""

    def look(self) -> Sight:
        """One glance at all of them, about once a second while chunks wait. Never raises: what goes wrong is
        a reason to wait."""

    def close(self) -> None:
        """Gives connections up. The next `look` opens them again."""

    def hosts_to_json(self) -> list[dict[str, Any]]:
        """Each of `snapshot.hosts` as `host`, and in `unfit` why it is not read from (null: it is fit)."""
