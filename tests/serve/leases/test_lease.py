"""A destination's lease with its positions. `tests/store/test_lease.py` has what each lease promises."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.conftest import options

from penstock.errors import ConfigError
from penstock.relaylog.segment_format import position as position_in
from penstock.serve.leases.document import StoredClient, key
from penstock.serve.leases.lease import DestinationLease
from penstock.serve.positions import Replaced
from penstock.serve.source_places import SourcePlace
from penstock.store.base import Store
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
    place = SourcePlace(position_in("binlog.000001", position), executed="a:1-5", offset=7, relay_log="x")
    return {"1001": StoredClient({"": place}, r"shop\..*")}


def taken(store: Store, address: str) -> tuple[DestinationLease, int]:
    lease = DestinationLease(store, "shop", address, TIMEOUT_S)
    found = lease.read()
    assert lease.is_free
    generation = lease.take(found)
    assert generation is not None
    return lease, generation


def test_positions_are_found_by_the_server_that_takes_over(store: Store) -> None:
    one, generation = taken(store, "one:1")
    assert generation == 1 and one.alive(1)
    one.store_clients(clients(100))
    two = DestinationLease(store, "shop", "two:1", TIMEOUT_S)
    two.read()
    assert not two.is_free
    time.sleep(TIMEOUT_S)  # what the lease lasts
    found = two.read()
    assert two.is_free and found.clients == clients(100) and not one.alive(1)
    assert two.take(found) == 2


def test_a_server_that_was_replaced_can_write_no_position(store: Store) -> None:
    one, _ = taken(store, "one:1")
    one.store_clients(clients(100))
    time.sleep(TIMEOUT_S)
    two = DestinationLease(store, "shop", "two:1", TIMEOUT_S)
    two.read()
    time.sleep(TIMEOUT_S)
    found = two.read()
    assert two.take(found) == 2
    with pytest.raises(Replaced, match="two:1"):
        one.store_clients(clients(200))
    assert not one.alive(1) and two.read().clients == clients(100)


@pytest.mark.parametrize(
    "data",
    [
        b"no JSON",
        b'{"format": 2, "generation": 1, "address": "", "stopped": true, "nonce": "", "clients": {}}',
        b'{"format": 1, "generation": 1, "address": "", "stopped": true, "nonce": "", "clients": {"1": 5}}',
    ],
)
def test_another_object_is_named_and_left_alone(store: Store, data: bytes) -> None:
    store.put(key("shop"), data)
    with pytest.raises(ConfigError, match=r"destinations/shop\.json is not") as error:
        DestinationLease(store, "shop", "one:1", TIMEOUT_S).read()
    assert "`start`" in error.value.hint and store.get(key("shop")).data == data


def test_a_document_of_earlier_versions_is_read(store: Store) -> None:
    client = clients(100)["1001"].to_json()
    document = {"format": 1, "generation": 7, "address": "one:1", "stopped": True, "nonce": "f00"}
    store.put(key("shop"), json.dumps({**document, "clients": {"1001": client}}).encode())
    lease, generation = taken(store, "two:1")
    assert generation == 8 and lease.read().clients == clients(100)
