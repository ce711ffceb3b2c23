"""Decides which servers chunks may be read from now: what sources share whose tables have replicas.

`look` is called about once a second while chunks wait. Every few seconds it checks which of `snapshot.hosts`
are fit. It never raises: an error is a reason to wait.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from penstock.config import SnapshotConfig
from penstock.errors import PenstockError
from penstock.sources.chunks import Host
from penstock.sources.hosts import UsableHosts

log = logging.getLogger(__name__)

H = TypeVar("H", bound=Host)

JUDGED_EVERY_SECONDS = 5.0
"""How often hosts are judged. It costs several queries on each, and what makes a host unfit seldom
changes."""


class HostSelection(ABC, Generic[H]):
    """`sources.hosts.SnapshotHosts`. A source says how it judges a host."""

    def __init__(self, config: SnapshotConfig) -> None:
        self._config = config
        self._judged: dict[str, H | str] = {}
        self._judged_for = ""
        self._judged_at = 0.0

    @property
    def is_needed(self) -> bool:
        return bool(self._config.hosts)

    @abstractmethod
    def followed(self) -> H: ...

    @abstractmethod
    def _judge(self, followed: H, address: str) -> H | str:
        """How chunks are read from one of `snapshot.hosts`, or why it is not fit. Raises `PenstockError` if
        it does not answer."""

    def _paused(self, followed: H) -> UsableHosts | None:
        """Why no chunk may start, on whatever host."""
        return None

    def _busy(self, host: H) -> str:
        """Why no chunk may start on this host; empty if one may."""
        return ""

    def look(self) -> UsableHosts:
        try:
            return self._look()
        except Exception as error:
            if not isinstance(error, PenstockError):
                log.exception("the load of the servers could not be checked")
            message = error.message if isinstance(error, PenstockError) else str(error)
            return UsableHosts((), message, "load")

    def close(self) -> None:
        self._judged_at = 0.0

    def hosts_to_json(self) -> list[dict[str, Any]]:
        """Each of `snapshot.hosts`, with the reason why it is not read from (null: it is used)."""
        return [
            {"host": address, "excluded_because": found if isinstance(found, str) else None}
            for address, found in list(self._judged.items())
        ]

    def _look(self) -> UsableHosts:
        followed = self.followed()
        if (paused := self._paused(followed)) is not None:
            return paused
        fit = self._fit(followed) if self._config.hosts else [followed]
        if not fit:
            why = "; ".join(f"{name}: {found}" for name, found in self._judged.items())
            return UsableHosts((), f"none of snapshot.hosts can be read from ({why})", "hosts")
        reasons = {host.address: self._busy(host) for host in fit}
        free = tuple(host for host in fit if not reasons[host.address])
        return UsableHosts(free) if free else UsableHosts((), "; ".join(reasons.values()), "threads_running")

    def _fit(self, followed: H) -> list[H]:
        if self._judged_for != followed.address or time.monotonic() - self._judged_at > JUDGED_EVERY_SECONDS:
            for address in self._config.hosts:
                found = self._judged_now(followed, address)
                before = self._judged.get(address)
                if isinstance(found, str) and found != before:
                    log.warning("no chunks are read from %s: %s", address, found)
                elif isinstance(before, str) and not isinstance(found, str):
                    log.info("chunks are read from %s again", address)
                self._judged[address] = found
            self._judged_for, self._judged_at = followed.address, time.monotonic()
        return [found for found in self._judged.values() if not isinstance(found, str)]

    def _judged_now(self, followed: H, address: str) -> H | str:
        try:
            return self._judge(followed, address)
        except PenstockError as error:
            return error.message
