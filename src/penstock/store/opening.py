"""Opens the store that a URL names."""

from __future__ import annotations

from penstock.store.base import Store
from penstock.store.local import LocalStore
from penstock.store.location import Location
from penstock.store.options import StoreOptions


def open_store(url: str, options: StoreOptions | None = None) -> Store:
    """The store at a URL. Makes no request. Raises `StoreRefused` for a URL that is none of a store.

    The library for object stores is loaded with the first store that needs it: 20 ms that a pipeline on a
    local disk does not spend.
    """
    location = Location.parse(url)
    if location.kind == "local":
        return LocalStore(location)
    from penstock.store.objects import ObjectStore

    return ObjectStore(location, options or StoreOptions())
