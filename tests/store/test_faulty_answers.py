"""What answers in place of an object store: it is waited for, and is taken for no object."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.connections.faulty import bounded_memory
from tests.store.conftest import options

from penstock.store.base import Store
from penstock.store.errors import StoreUnavailable
from penstock.store.opening import open_store
from penstock.testing.faulty_peer import ANY_PROTOCOL, HTTP, FaultyPeer

ACTS: dict[str, Callable[[Store], object]] = {
    "get": lambda store: store.get("one"),
    "put": lambda store: store.put_if_absent("one", b"x"),
    "list": lambda store: list(store.objects("")),
}
NOT_SEEN = {("list", "200 with a page")}
"""The library below reads a page without objects as a list without objects."""


@pytest.mark.slow
@pytest.mark.parametrize("act", ACTS)
def test_no_answer_of_something_else_is_taken_for_one_of_a_store(act: str) -> None:
    with FaultyPeer("127.0.0.1", 1) as peer:
        for fault in (*ANY_PROTOCOL, *HTTP):
            if (act, fault.name) in NOT_SEEN:
                continue
            peer.play(fault, at="connect")
            limits = options(f"http://127.0.0.1:{peer.port}", seconds=1, attempts=2, request=0.5)
            store = open_store("s3://lake/x", limits)
            try:
                with bounded_memory(), pytest.raises(StoreUnavailable):
                    ACTS[act](store)
            except BaseException as error:
                raise AssertionError(f"{fault}: {error}") from error
            assert peer.played, fault
