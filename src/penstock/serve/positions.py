"""What the clients of a destination have acknowledged, in memory or in a file."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from penstock.disk.replace import replace_file
from penstock.errors import ConfigError, TransientError
from penstock.model.offset import Offset
from penstock.serve.batches import AnyPlace, Place

log = logging.getLogger(__name__)
FORMAT = 1


@dataclass(frozen=True)
class Subscribed:
    """A client: the place behind what it has acknowledged, and the filter that it asked for. `view`: the
    digest of the view whose entries the place counts; empty: not known."""

    place: AnyPlace
    filter: str = ""
    view: str = ""

    def counted_by(self, view: str) -> Subscribed:
        """The client, whose entries are those of this view now. Inside of a transaction, another one has
        other entries: then the transaction comes again."""
        same = self.view in ("", view)
        return Subscribed(self.place if same else self.place.outside, self.filter, view)


class PlaceForm(Protocol):
    """How places of a destination are stored: by the ids of its relay logs."""

    def stored(self, place: AnyPlace) -> dict[str, Place]: ...

    def restored(self, places: Mapping[str, Place], /) -> AnyPlace | None:
        """A stored place. None: it belongs to other relay logs."""


Clients = Mapping[str, Subscribed]
"""The clients of a destination, by id."""


def make_folder(folder: Path) -> None:
    """Creates the folder for positions. Raises `ConfigError`."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(f"The directory {folder} of positions cannot be made: {error.strerror}.") from error


class Replaced(TransientError):
    """Another server serves this destination."""


class Positions(Protocol):
    def load(self, destination: str) -> dict[str, Subscribed]:
        """The stored positions of a destination. Raises `ConfigError` if they cannot be read, or belong to
        another log."""

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
    before anybody is told that an acknowledgement is stored, and may be damaged by a power loss.
    `NAME.safe.json` is written about once a second, and survives it. `forms`: by destination, how its places
    are stored.

    In an event loop, `NAME.json` is written at its next turn, so that what several clients acknowledge in one
    turn is one write."""

    def __init__(self, folder: Path, forms: Mapping[str, PlaceForm]) -> None:
        self._folder = folder
        self._forms = forms
        self._pending: dict[str, Clients] = {}
        """Positions that are not in `NAME.json` yet, by destination."""
        self._written: asyncio.Future[None] | None = None
        """Done when `_pending` is written."""

    def _path(self, destination: str, *, safe: bool = False) -> Path:
        return self._folder / f"destination-{destination}{'.safe' if safe else ''}.json"

    def load(self, destination: str) -> dict[str, Subscribed]:
        path = self._path(destination)
        if not path.exists():
            return {}
        try:
            clients = _read(path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            try:
                clients = _read(self._path(destination, safe=True))
                log.warning("%s is damaged (%s); using the positions of a second before", path, error)
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                raise ConfigError(
                    f"The positions in {path} cannot be read: {error}.",
                    hint="Remove the file. Its clients then begin at the destination's `start`.",
                ) from error
        found = {}
        for name, (places, filter, view) in clients.items():
            place = self._forms[destination].restored(places)
            if place is not None:
                found[name] = Subscribed(place, filter, view)
        if len(found) < len(clients):
            raise ConfigError(
                f"The positions in {path} are of another relay log.",
                hint="Give this server the relay log that it had, or remove the file. Its clients then begin "
                "at the destination's `start`.",
            )
        return found

    def store(self, destination: str, clients: Clients, *, durable: bool) -> None:
        if durable:
            replace_file(self._path(destination, safe=True), self._data(destination, clients), durable=True)
            return
        self._pending[destination] = clients
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._write()
            return
        if self._written is None:
            self._written = loop.create_future()
            loop.call_soon(self._write_in_loop, self._written)

    def _write(self) -> None:
        """Writes the positions. If it raises `OSError`, the next call writes them again."""
        for destination, clients in list(self._pending.items()):
            replace_file(self._path(destination), self._data(destination, clients), durable=False)
            del self._pending[destination]

    def _write_in_loop(self, written: asyncio.Future[None]) -> None:
        self._written = None
        try:
            self._write()
        except OSError as error:
            written.set_exception(error)
            written.exception()  # somebody may wait for it, or nobody
            log.error("positions cannot be stored: %s", error)
        else:
            written.set_result(None)

    def _data(self, destination: str, clients: Clients) -> bytes:
        form = self._forms[destination]
        places = {name: form.stored(one.place) for name, one in clients.items()}
        logs = sorted({log_id for one in places.values() for log_id in one})
        document = {
            "format": FORMAT,
            "relay_log": logs[0] if len(logs) == 1 else logs,
            "updated": time.time(),
            "clients": {
                name: {**_fields(places[name]), "filter": one.filter, "view": one.view}
                for name, one in clients.items()
            },
        }
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()

    async def settled(self, destination: str) -> None:
        """Returns once the positions that were stored before would survive this process. Also raises
        `OSError`."""
        if self._written is None and self._pending:  # it has failed before
            self._write()
        elif self._written is not None:
            await asyncio.shield(self._written)


def _fields(places: Mapping[str, Place]) -> dict[str, Any]:
    """A place of one log, or of several by their ids."""
    if len(places) > 1:
        return {"places": {log_id: [one.offset, one.entries] for log_id, one in places.items()}}
    [place] = places.values()
    return {"offset": place.offset, "entries": place.entries}


def _read(path: Path) -> dict[str, tuple[dict[str, Place], str, str]]:
    """The places, the filter and the view of each client."""
    document: dict[str, Any] = json.loads(path.read_bytes())
    found = {}
    for name, one in document["clients"].items():
        several = one.get("places") or {str(document["relay_log"]): (one["offset"], one["entries"])}
        places = {str(id_): Place(Offset(int(at)), int(entries)) for id_, (at, entries) in several.items()}
        found[str(name)] = places, str(one["filter"]), str(one.get("view", ""))
    return found
