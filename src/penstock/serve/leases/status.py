"""Reads from a store who serves the destinations of a file, and what their clients have acknowledged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.model.offset import SourcePosition
from penstock.serve.leases.document import StoredClient, read
from penstock.serve.settings import ServerConfig
from penstock.serve.source_places import behind_end


def status_of(config: ServerConfig, end: SourcePosition | None) -> dict[str, Any]:
    """The status of the servers and clients that share a store. `end`: the end of the source's log; None: it
    is not known. Raises `PenstockError`."""
    url = config.positions.store_url
    assert url is not None
    store = config.store.open(url)
    found: dict[str, dict[str, Any]] = {}
    for name in config.destinations:
        lease, document = read(store, name)
        found[name] = {
            "server": None if lease.stopped else document.address,
            "ready": [],
            "reported_seconds_ago": None,
            "clients": {client_id: _client(one, end) for client_id, one in document.clients.items()},
        }
    servers: Mapping[str, Any] = {one["server"]: {} for one in found.values() if one["server"]}
    return {
        "source_position": None if end is None else str(end),
        "servers": servers,
        "destinations": found,
    }


def _client(client: StoredClient, end: SourcePosition | None) -> dict[str, Any]:
    places = list(client.places.values())
    behind = behind_end(places[0].position, end if len(places) == 1 else None)
    return {
        "position": ", ".join(map(str, places)),
        "committed": min((one.commit_us for one in places), default=0) / 1e6,
        **dict.fromkeys(("behind_seconds", "behind_bytes", "behind_transactions", "outstanding", "address")),
        **behind,
        "filter": client.filter,
    }
