"""What the clients of a destination have acknowledged, in memory or in a file."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from penstock.disk.replace import replace_file
from penstock.errors import ConfigError
from penstock.model.offset import Offset
from penstock.serve.batches import Place

log = logging.getLogger(__name__)
FORMAT = 1


@dataclass(frozen=True)
class Subscribed:
    """A client: the place behind what it has acknowledged, and the filter that it asked for."""

    place: Place
    filter: str = ""


Clients = Mapping[str, Subscribed]
"""By the client's id."""


def make_folder(folder: Path) -> None:
    """Raises `ConfigError`."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(f"The directory {folder} of positions cannot be made: {error.strerror}.") from error


class Positions(Protocol):
    def load(self, destination: str) -> dict[str, Subscribed]:
        """Raises `ConfigError` if they cannot be read, or belong to another log."""

    def store(self, destination: str, clients: Clients, *, durable: bool) -> None:
        """Replaces them, so that they survive a crash of this process. `durable`: stores them elsewhere,
        where they survive a power loss; another thread may do that at the same time."""

    async def settled(self, destination: str) -> None:
        """Returns once what was stored survives a crash of this process. Raises `PenstockError`."""


class InMemory:
    """`Positions` that end with the process."""

    def load(self, destination: str) -> dict[str, Subscribed]:
        return {}

    def store(self, destination: str, clients: Clients, *, durable: bool) -> None:
        pass

    async def settled(self, destination: str) -> None:
        pass


class InFiles:
    """`Positions` with two files for each destination, which are replaced as a whole. `NAME.json` is written
    at each acknowledgement, and may be damaged by a power loss. `NAME.safe.json` is written about once a
    second, and survives it. `log_id`: the relay log that the offsets belong to."""

    def __init__(self, folder: Path, log_id: str) -> None:
        self._folder = folder
        self._log_id = log_id

    def _path(self, destination: str, *, safe: bool = False) -> Path:
        return self._folder / f"destination-{destination}{'.safe' if safe else ''}.json"

    def load(self, destination: str) -> dict[str, Subscribed]:
        path = self._path(destination)
        if not path.exists():
            return {}
        try:
            log_id, clients = _read(path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            try:
                log_id, clients = _read(self._path(destination, safe=True))
                log.warning("%s is damaged (%s); using the positions of a second before", path, error)
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                raise ConfigError(
                    f"The positions in {path} cannot be read: {error}.",
                    hint="Remove the file. Its clients then begin at the destination's `start`.",
                ) from error
        if log_id != self._log_id:
            raise ConfigError(
                f"The positions in {path} are of another relay log.",
                hint="Give this server the relay log that it had, or remove the file. Its clients then begin "
                "at the destination's `start`.",
            )
        return clients

    def store(self, destination: str, clients: Clients, *, durable: bool) -> None:
        document = {
            "format": FORMAT,
            "relay_log": self._log_id,
            "updated": time.time(),
            "clients": {
                name: {"offset": one.place.offset, "entries": one.place.entries, "filter": one.filter}
                for name, one in clients.items()
            },
        }
        data = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
        if durable:
            replace_file(self._path(destination, safe=True), data, durable=True)
        else:
            replace_file(self._path(destination), data, durable=False)

    async def settled(self, destination: str) -> None:
        pass


def _read(path: Path) -> tuple[str, dict[str, Subscribed]]:
    document: dict[str, Any] = json.loads(path.read_bytes())
    clients = {
        str(name): Subscribed(Place(Offset(int(one["offset"])), int(one["entries"])), str(one["filter"]))
        for name, one in document["clients"].items()
    }
    return str(document["relay_log"]), clients
