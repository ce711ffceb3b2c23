"""The store of the benchmarks, by our own client, whose promises `tests/store` has."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from bench.light_store import LightStore
from bench.object_store import kind_of

from penstock.store.base import Store
from penstock.store.credentials import GivenKeys, Keys
from penstock.store.errors import ObjectChanged, ObjectExists, ObjectMissing
from penstock.store.opening import open_store
from penstock.store.options import StoreOptions

REQUEST_S = 0.02


@pytest.fixture
def server() -> Iterator[LightStore]:
    with LightStore(REQUEST_S) as server:
        yield server


@pytest.fixture
def store(server: LightStore) -> Store:
    return open_store("s3://lake/x", StoreOptions(GivenKeys(Keys("any", "any")), endpoint=server.url))


def test_it_keeps_what_a_store_promises(store: Store) -> None:
    seen = store.put_if_absent("a/1", b"one")
    with pytest.raises(ObjectExists):
        store.put_if_absent("a/1", b"two")
    newer = store.put_if_unchanged("a/1", b"three", seen=seen)
    with pytest.raises(ObjectChanged):
        store.put_if_unchanged("a/1", b"four", seen=seen)
    assert store.get("a/1").info.version == newer and bytes(store.get_range("a/1", 1, 4)) == b"hre"
    large = bytes(range(256)) * 80_000
    with store.upload("b c/%2") as upload:
        upload.write(large)
    assert store.get("b c/%2").data == large
    assert [one.key for one in store.objects()] == ["a/1", "b c/%2"]
    store.delete_many(["a/1", "b c/%2", "never"])
    assert list(store.objects()) == []
    with pytest.raises(ObjectMissing):
        store.stat("a/1")


def test_each_request_takes_its_time_and_is_counted(server: LightStore, store: Store) -> None:
    store.put("first", b"")
    server.requests.clear()
    began = time.monotonic()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: store.put(str(number), b"x"), range(16)))
    assert time.monotonic() - began >= 2 * REQUEST_S
    assert [kind_of(one) for one in server.requests] == ["PUT"] * 16
