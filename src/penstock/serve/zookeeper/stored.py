"""Reads what is stored of the clients of a destination."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.serve.source_places import SourcePlace
from penstock.serve.zookeeper import nodes
from penstock.serve.zookeeper.connection import ZooKeeper


@dataclass(frozen=True)
class StoredClient:
    """A client, and where it goes on. `wrong`: why that cannot be read."""

    place: SourcePlace | None
    filter: str = ""
    wrong: str = ""


def clients_of(zookeeper: ZooKeeper, destination: str) -> dict[str, StoredClient]:
    """The clients that have a position. Raises `TransientError` and `KazooException`."""
    from kazoo.exceptions import NoNodeError

    client = zookeeper.client
    try:
        names = zookeeper.answer(client.get_children_async(nodes.destination(destination)))
    except NoNodeError:
        return {}
    asked = {
        name: [client.get_async(path(destination, name)) for path in (nodes.cursor, nodes.filter)]
        for name in names
        if name not in nodes.RESERVED
    }
    found = {}
    for name, answers in asked.items():
        cursor, filter = (_data(zookeeper, one) for one in answers)
        try:
            place = nodes.cursor_place(cursor)
        except (ValueError, TypeError, AttributeError) as error:
            wrong = f"the position in {nodes.cursor(destination, name)} cannot be read: {error}"
            found[name] = StoredClient(None, wrong=wrong)
            continue
        if place is not None:
            found[name] = StoredClient(place, filter.decode(errors="replace"))
    return found


def _data(zookeeper: ZooKeeper, asked: object) -> bytes:
    from kazoo.exceptions import NoNodeError

    try:
        data: bytes = zookeeper.answer(asked)[0]
        return data
    except NoNodeError:
        return b""


def oldest_place(zookeeper: ZooKeeper, destinations: Iterable[str]) -> str | None:
    """The oldest place in the source's log that a client still needs. A new relay log begins there."""
    places = [
        one.place
        for name in destinations
        for one in clients_of(zookeeper, name).values()
        if one.place is not None
    ]
    return str(min(places, key=lambda place: place.position.order)) if places else None
