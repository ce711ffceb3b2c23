"""Proves that a store keeps its promises, before something relies on them."""

from __future__ import annotations

import contextlib
import uuid

from penstock.errors import PenstockError
from penstock.store.base import Store
from penstock.store.errors import ObjectChanged, ObjectExists, StoreRefused


def check_conditions(store: Store, *, folder: str = "penstock-check") -> None:
    """Writes, reads and deletes an object below `folder`, also under conditions that must fail.

    Raises `StoreRefused` if the store does not keep conditions: some servers ignore the header and overwrite
    the object. Raises the store's own errors if it cannot be used at all. Leaves nothing behind.
    """
    key = f"{folder}/{uuid.uuid4().hex}"
    first = store.put_if_absent(key, b"1")
    try:
        with contextlib.suppress(ObjectExists):
            store.put_if_absent(key, b"2")
            raise _ignored(store, key)
        second = store.put_if_unchanged(key, b"3", seen=first)
        with contextlib.suppress(ObjectChanged):
            store.put_if_unchanged(key, b"4", seen=first)
            raise _ignored(store, key)
        content = store.get(key)
        if content.data != b"3" or content.info.version != second:
            raise _ignored(store, key)
    finally:
        with contextlib.suppress(PenstockError):
            store.delete(key)


def check_listing(store: Store, *, folder: str = "penstock-check") -> None:
    """Writes, lists and deletes some objects below `folder`. Raises `StoreRefused` if the list is not what
    was written, and the store's own errors. Leaves nothing behind."""
    place = f"{folder}/{uuid.uuid4().hex}"
    keys = [f"{place}/{number}" for number in range(3)]
    try:
        for key in keys:
            store.put(key, b"1")
        found = [info.key for info in store.objects(place)]
        if found != keys:
            raise StoreRefused(
                f"The store {store.location} does not list what was written: {store.location.url(place)}.",
                hint="Use a server whose listings are complete at once, or update it.",
            )
        store.delete_many(keys)
        keys = []
    finally:
        with contextlib.suppress(PenstockError):
            store.delete_many(keys)


def _ignored(store: Store, key: str) -> PenstockError:
    return StoreRefused(
        f"The store {store.location} ignores conditions: it overwrote {store.location.url(key)}.",
        hint="Use a server with conditional writes (If-None-Match and If-Match), or update it.",
    )
