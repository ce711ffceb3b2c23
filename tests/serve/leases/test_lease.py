"""A lease in a store, as several servers use it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.store.conftest import options

from penstock.serve.leases.document import Document, StoredClient, key
from penstock.serve.leases.lease import Lease
from penstock.serve.positions import Replaced
from penstock.serve.source_places import SourcePlace
from penstock.store.base import Store, Version
from penstock.store.errors import StoreUnavailable
from penstock.store.opening import open_store
from penstock.testing.servers.s3 import Moto

TIMEOUT_S = 0.4


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "local":
        yield open_store((tmp_path / "shared").as_uri())
        return
    with Moto() as server:
        server.make_bucket("lake")
        yield open_store("s3://lake/serve", options(server.url))


def clients(position: int) -> dict[str, StoredClient]:
    place = SourcePlace("binlog.000001", position, gtids="a:1-5", offset=7, relay_log="x")
    return {"1001": StoredClient({"": place}, r"shop\..*")}


def taken(store: Store, address: str) -> tuple[Lease, int]:
    lease = Lease(store, "shop", address, TIMEOUT_S)
    found = lease.look()
    assert lease.is_free(found)
    generation = lease.take(found)
    assert generation is not None
    return lease, generation


def test_positions_are_found_by_the_server_that_takes_over(store: Store) -> None:
    one, generation = taken(store, "one:1")
    assert generation == 1 and one.alive(1)
    one.write(clients(100))
    two = Lease(store, "shop", "two:1", TIMEOUT_S)
    assert not two.is_free(two.look())
    time.sleep(TIMEOUT_S)  # what the lease lasts
    found = two.look()
    assert two.is_free(found) and found.clients == clients(100) and not one.alive(1)
    assert two.take(found) == 2


def test_a_server_that_was_replaced_can_write_no_position(store: Store) -> None:
    one, _ = taken(store, "one:1")
    one.write(clients(100))
    time.sleep(TIMEOUT_S)
    two = Lease(store, "shop", "two:1", TIMEOUT_S)
    two.look()
    time.sleep(TIMEOUT_S)
    found = two.look()
    assert two.take(found) == 2
    with pytest.raises(Replaced, match="two:1"):
        one.write(clients(200))
    assert not one.alive(1) and two.look().clients == clients(100)


def test_a_lease_that_is_renewed_is_never_free(store: Store) -> None:
    one, _ = taken(store, "one:1")
    two = Lease(store, "shop", "two:1", TIMEOUT_S)
    ends = time.monotonic() + 3 * TIMEOUT_S
    while time.monotonic() < ends:
        one.write(clients(1))
        assert not two.is_free(two.look())


def test_of_two_servers_that_take_it_at_once_one_has_it(store: Store) -> None:
    one, _ = taken(store, "one:1")
    one.write({}, stopped=True)
    servers = [Lease(store, "shop", f"{number}:1", TIMEOUT_S) for number in range(4)]
    found = [each.look() for each in servers]
    assert all(each.is_free(seen) for each, seen in zip(servers, found, strict=True))  # it was given up
    generations = [each.take(seen) for each, seen in zip(servers, found, strict=True)]
    assert sorted(filter(None, generations)) == [2]


class Unheard:
    """A store whose answer to the next conditional put is lost."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.loses = False

    def put_if_unchanged(self, name: str, data: bytes, *, seen: Version) -> Version:
        version = self._store.put_if_unchanged(name, data, seen=seen)
        if self.loses:
            self.loses = False
            raise StoreUnavailable("The answer was lost.")
        return version

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_a_write_whose_answer_was_lost_is_recognised(store: Store) -> None:
    unheard = Unheard(store)
    lease, _ = taken(unheard, "one:1")  # type: ignore[arg-type]
    unheard.loses = True
    with pytest.raises(StoreUnavailable):
        lease.write(clients(100))
    lease.write(clients(200))
    assert Document.from_bytes(store.get(key("shop")).data).clients == clients(200)
    assert lease.alive(1)


class Late(Unheard):
    """A store that gets some conditional puts late: after the request that follows, and without an answer."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.late: list[tuple[str, bytes]] = []
        self.delays = 0

    def put_if_unchanged(self, name: str, data: bytes, *, seen: Version) -> Version:
        if self.delays:
            self.delays -= 1
            self.late.append((name, data))
            raise StoreUnavailable("There was no answer.")
        if self.late:  # the first of them arrives before this one
            self._store.put_if_unchanged(self.late[0][0], self.late.pop(0)[1], seen=seen)
        return self._store.put_if_unchanged(name, data, seen=seen)


def test_a_server_goes_on_however_many_of_its_writes_reach_the_store_late(store: Store) -> None:
    late = Late(store)
    lease, _ = taken(late, "one:1")  # type: ignore[arg-type]
    late.delays = 3
    for position in (100, 200, 300):
        with pytest.raises(StoreUnavailable):
            lease.write(clients(position))
    lease.write(clients(400))
    assert not late.late and lease.alive(1)
    assert Document.from_bytes(store.get(key("shop")).data).clients == clients(400)


def test_a_server_serves_at_once_if_the_answer_to_its_taking_over_was_lost(store: Store) -> None:
    one, _ = taken(store, "one:1")
    one.write(clients(100), stopped=True)
    unheard = Unheard(store)
    two = Lease(unheard, "shop", "two:1", 3600)  # type: ignore[arg-type]
    found = two.look()
    unheard.loses = True
    with pytest.raises(StoreUnavailable):
        two.take(found)
    three = Lease(store, "shop", "three:1", 3600)
    assert not three.is_free(three.look())
    found = two.look()
    assert found.address == "two:1" and not found.stopped
    assert two.is_free(found) and two.take(found) == 3 and two.alive(3)
