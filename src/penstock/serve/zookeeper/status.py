"""Reads from ZooKeeper who serves the destinations of a file, and what their clients have acknowledged."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from penstock.model.offset import SourcePosition
from penstock.serve.settings import ServerConfig
from penstock.serve.source_places import behind_end
from penstock.serve.zookeeper import nodes, stored
from penstock.serve.zookeeper.connection import ZooKeeper

CONNECT_S = 15.0
"""How long the first connection to ZooKeeper may take."""
_LAG = ("behind_seconds", "behind_bytes", "behind_transactions", "outstanding", "address")
"""What the server that serves a destination reports of a client."""


def status_of(config: ServerConfig, end: SourcePosition | None) -> dict[str, Any]:
    """The status of the servers and clients that share a ZooKeeper. `end`: the end of the source's log; None:
    it is not known. Raises `TransientError`."""
    zookeeper = ZooKeeper(config.zookeeper, config.zookeeper_timeout / 1000)
    try:
        zookeeper.start(CONNECT_S)
        return {
            "source_position": None if end is None else str(end),
            "servers": _servers(zookeeper),
            "destinations": {name: _destination(zookeeper, name, end) for name in config.destinations},
        }
    finally:
        zookeeper.close()


def _servers(zookeeper: ZooKeeper) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {one: {} for one in _children(zookeeper, nodes.SERVERS)}
    for address in _children(zookeeper, nodes.OUR_SERVERS):
        found[address] = _document(zookeeper, nodes.our_server(address))
    return found


def _destination(zookeeper: ZooKeeper, name: str, end: SourcePosition | None) -> dict[str, Any]:
    report = _document(zookeeper, nodes.report(name))
    running = _document(zookeeper, nodes.running(name)).get("address")
    known: Mapping[str, Any] = report.get("clients", {}) if report.get("server") == running else {}
    clients: dict[str, Any] = {}
    for client_id, client in stored.clients_of(zookeeper, name).items():
        found: dict[str, Any] = {key: known.get(client_id, {}).get(key) for key in _LAG}
        if client.place is None:
            found |= {"position": None, "wrong": client.wrong}
        else:
            place = client.place.position
            found |= {"position": str(client.place), "committed": client.place.commit_us / 1e6}
            found |= behind_end(place, end)
        clients[client_id] = found | {"filter": client.filter}
    return {
        "server": running,
        "ready": sorted(_children(zookeeper, nodes.members(name))),
        "reported_seconds_ago": round(time.time() - report["at"], 1) if known else None,
        "clients": clients,
    }


def _children(zookeeper: ZooKeeper, path: str) -> list[str]:
    from kazoo.exceptions import NoNodeError

    try:
        return list(zookeeper.answer(zookeeper.client.get_children_async(path)))
    except NoNodeError:
        return []


def _document(zookeeper: ZooKeeper, path: str) -> dict[str, Any]:
    from kazoo.exceptions import NoNodeError

    try:
        return nodes.report_of(zookeeper.answer(zookeeper.client.get_async(path))[0])
    except (NoNodeError, ValueError):
        return {}
