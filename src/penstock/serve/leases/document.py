"""The object of a destination in a store: who serves it, and what its clients have acknowledged. Pure.

Both are in one object, `destinations/NAME.json`, which is a lease (`store/lease.py`). Each write names the
version that it replaces. So who has taken the destination over has changed the object, and no position of an
earlier server can be written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import ConfigError
from penstock.serve.source_places import SourcePlace
from penstock.store.base import Store
from penstock.store.lease import Holder
from penstock.store.lease import read as read_lease

FORMAT = 1
DAMAGED = "Remove it. The clients of this destination then begin at its `start`."


def key(destination: str) -> str:
    return f"destinations/{destination}.json"


@dataclass(frozen=True)
class StoredClient:
    """A client. `places`: its place in the log of each source, by the source's name."""

    places: Mapping[str, SourcePlace]
    filter: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"filter": self.filter, "places": {name: one.to_json() for name, one in self.places.items()}}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> StoredClient:
        places = {str(name): SourcePlace.from_json(one) for name, one in document["places"].items()}
        return cls(places, str(document["filter"]))


@dataclass(frozen=True)
class Document:
    """What a server writes into the lease of its destination."""

    address: str = ""
    clients: Mapping[str, StoredClient] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        clients = {name: one.to_json() for name, one in self.clients.items()}
        return {"format": FORMAT, "address": self.address, "clients": clients}

    @classmethod
    def of(cls, lease: Holder, url: str) -> Document:
        """What the lease says; an empty document if there is none. Raises `ConfigError` if it is something
        else."""
        try:
            fields = lease.payload or cls().to_json()
            if fields["format"] != FORMAT:
                raise ValueError(f"its format is {fields['format']}, and not {FORMAT}")
            clients = {str(name): StoredClient.from_json(one) for name, one in fields["clients"].items()}
            return cls(str(fields["address"]), clients)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"{url} is not an object of this server: {error!r}.", hint=DAMAGED) from None


def read(store: Store, destination: str) -> tuple[Holder, Document]:
    """The lease of a destination and what it says. Raises `PenstockError`."""
    name = key(destination)
    lease, _ = read_lease(store, name, DAMAGED)
    return lease, Document.of(lease, store.location.url(name))
