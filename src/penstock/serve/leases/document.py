"""The object of a destination in a store: who serves it, and what its clients have acknowledged. Pure.

Both are in one object, `destinations/NAME.json`, and each write names the version that it replaces. So who
has taken the destination over has changed the object, and no position of an earlier server can be written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.serve.source_places import SourcePlace

FORMAT = 1


def key(destination: str) -> str:
    return f"destinations/{destination}.json"


@dataclass(frozen=True)
class StoredClient:
    """A client. `places`: its place in the log of each source, by the source's name."""

    places: Mapping[str, SourcePlace]
    filter: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"filter": self.filter, "places": {name: asdict(one) for name, one in self.places.items()}}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> StoredClient:
        places = {str(name): SourcePlace(**one) for name, one in document["places"].items()}
        return cls(places, str(document["filter"]))


@dataclass(frozen=True)
class Document:
    """The lease of a destination and its positions, as one object of the store. `generation`: grows with each
    server that begins to serve. `nonce`: differs in each version, so that a server recognises what it has
    written. `stopped`: the server has given the destination up in order."""

    generation: int = 0
    address: str = ""
    stopped: bool = True
    nonce: str = ""
    clients: Mapping[str, StoredClient] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        document = {
            "format": FORMAT,
            "generation": self.generation,
            "address": self.address,
            "stopped": self.stopped,
            "nonce": self.nonce,
            "clients": {name: one.to_json() for name, one in self.clients.items()},
        }
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Document:
        """The document in these bytes. Raises `ValueError` if they are something else."""
        try:
            document = json.loads(data)
            if document["format"] != FORMAT:
                raise ValueError(f"its format is {document['format']}, and not {FORMAT}")
            return cls(
                int(document["generation"]),
                str(document["address"]),
                bool(document["stopped"]),
                str(document["nonce"]),
                {str(name): StoredClient.from_json(one) for name, one in document["clients"].items()},
            )
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"it cannot be read: {error!r}") from None
