"""The nodes of Canal in ZooKeeper, and what is written into them. Pure.

    /otter/canal/cluster/{host:port}                          a server (ephemeral)
    /otter/canal/destinations/{name}/cluster/{host:port}      a server that can serve it (ephemeral)
    /otter/canal/destinations/{name}/running                  the server that does (ephemeral)
    /otter/canal/destinations/{name}/{client}/cursor          what a client has acknowledged
    /otter/canal/destinations/{name}/{client}/filter          what it has asked for

Canal's clients and servers read these. Our own are beside them:

    /otter/penstock/servers/{host:port}                       a server of ours (ephemeral)
    /otter/penstock/destinations/{name}                       changes whenever a server begins to serve it
    /otter/penstock/reports/{name}                            how far behind its clients are
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.serve.source_places import SourcePlace
from penstock.sources import registry
from penstock.sources.source_places import CanalPlaces

CANAL, OURS = "/otter/canal", "/otter/penstock"
SERVERS = f"{CANAL}/cluster"
OUR_SERVERS = f"{OURS}/servers"

RESERVED = frozenset(("running", "cluster", "parse", "parser", ".", ".."))
"""Names beside the clients of a destination, which no client can have."""
_POSITION = "com.alibaba.otter.canal.protocol.position.LogPosition"


def canals_places() -> CanalPlaces:
    """Those of the source that Canal can follow: its nodes have positions of that."""
    kinds = map(registry.kind, registry.OF_FORMAT.values())
    found: CanalPlaces = next(kind.canal_places for kind in kinds if kind.canal_places is not None)()
    return found


def server(address: str) -> str:
    return f"{SERVERS}/{address}"


def our_server(address: str) -> str:
    return f"{OUR_SERVERS}/{address}"


def destination(name: str) -> str:
    return f"{CANAL}/destinations/{name}"


def members(name: str) -> str:
    return f"{destination(name)}/cluster"


def member(name: str, address: str) -> str:
    return f"{members(name)}/{address}"


def running(name: str) -> str:
    return f"{destination(name)}/running"


def generation(name: str) -> str:
    return f"{OURS}/destinations/{name}"


def report(name: str) -> str:
    return f"{OURS}/reports/{name}"


def client(name: str, client_id: str) -> str:
    return f"{destination(name)}/{client_id}"


def cursor(name: str, client_id: str) -> str:
    return f"{client(name, client_id)}/cursor"


def filter(name: str, client_id: str) -> str:
    return f"{client(name, client_id)}/filter"


def running_data(address: str) -> bytes:
    return _json({"active": True, "address": address})


def running_address(data: bytes) -> tuple[str, bool]:
    """The address of the server, and whether it shall go on: somebody may ask it to give up."""
    found = _object(data)
    return str(found.get("address", "")), bool(found.get("active", True))


def cursor_data(place: SourcePlace, source: tuple[str, int]) -> bytes:
    """A field with the misspelt name that Canal gives it. Canal ignores fields that it does not know."""
    return _json(
        {
            "@type": _POSITION,
            "identity": {"slaveId": -1, "sourceAddress": {"address": source[0], "port": source[1]}},
            "postion": canals_places().to_canal(place),
            "penstock": {
                "server_uuid": place.server_uuid,
                "commit_us": place.commit_us,
                "entries": place.entries,
                "relay_log": place.relay_log,
                "offset": place.offset,
                "view": place.view,
            },
        }
    )


def cursor_place(data: bytes) -> SourcePlace | None:
    """The place that a client has acknowledged. None: it has acknowledged nothing yet. Raises `ValueError`
    for text that is no position."""
    if not data:
        return None
    document = _object(data)
    found, ours = document.get("postion"), document.get("penstock") or {}
    if not isinstance(found, dict):
        raise ValueError("it has no file and position")
    place = canals_places().of_canal(found)
    return replace(
        place,
        entries=int(ours.get("entries", 0)),
        server_uuid=str(ours.get("server_uuid", "")),
        commit_us=int(ours.get("commit_us") or place.commit_us),
        relay_log=str(ours.get("relay_log", "")),
        offset=int(ours.get("offset", 0)),
        view=str(ours.get("view", "")),
        at_event=not ours,
    )


def report_data(report: Mapping[str, Any]) -> bytes:
    return _json(report)


def report_of(data: bytes) -> dict[str, Any]:
    return _object(data)


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _object(data: bytes) -> dict[str, Any]:
    """The JSON object in a node. Raises `ValueError`."""
    try:
        found = json.loads(data)
    except RecursionError:
        raise ValueError("it is too deep") from None
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    return found
