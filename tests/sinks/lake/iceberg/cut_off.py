"""Operations of Iceberg's own clients of catalogs, while a peer in front of the catalog answers anything."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from tests.connections.faulty import bounded_memory, subject

from penstock.failures.outages import passes
from penstock.testing.faulty_peer import CLOSED, Fault, FaultyPeer, Moment

ENDLESS_S = 3
MOMENTS: tuple[Moment, ...] = ("answer", "middle")


def is_outage(
    jvm: Any, peer: FaultyPeer, fault: Fault, at: Moment, act: Callable[[], object], *, ends: bool = True
) -> bool:
    """Whether the act fails as in an outage while the fault is played. `ends`: Java's client gives up by
    itself. If it does not, the peer does after three seconds."""
    process = int(jvm.java.lang.ProcessHandle.current().pid())
    peer.play(fault, at=at)
    with subject(f"{fault}, at {at}"):
        with _ending(peer, ends), bounded_memory(process), pytest.raises(Exception) as raised:
            act()
        assert peer.played or not ends
    peer.behave()
    return passes(raised.value)


@contextmanager
def _ending(peer: FaultyPeer, ends: bool) -> Iterator[None]:
    timer = threading.Timer(ENDLESS_S, lambda: peer.play(CLOSED, at="connect"))
    if not ends:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def missed(
    spark: Any, catalog: Any, peer: FaultyPeer, faults: Sequence[Fault], *, unbounded: Sequence[str]
) -> list[tuple[str, str]]:
    """The faults that are no outage in place of an answer, or in its middle, of one operation after another.
    The next commit succeeds, and counts."""
    jvm = spark._jvm
    iceberg, types = jvm.org.apache.iceberg, jvm.org.apache.iceberg.types.Types
    shop = spark.sparkContext._gateway.new_array(jvm.String, 1)
    shop[0] = "shop"
    catalog.createNamespace(iceberg.catalog.Namespace.of(shop))
    columns = jvm.java.util.ArrayList()
    columns.add(types.NestedField.required(1, "id", types.IntegerType.get()))
    table = iceberg.catalog.TableIdentifier.parse("shop.orders")
    made = catalog.createTable(table, iceberg.Schema(columns))
    made.updateProperties().set("commit.status-check.min-wait-ms", "10").commit()

    def commit(number: int) -> Callable[[], object]:
        commit: Callable[[], object] = (
            catalog.loadTable(table).updateProperties().set("number", str(number)).commit
        )
        return commit

    found: list[tuple[str, str]] = []
    for number, (fault, at) in enumerate((fault, at) for fault in faults for at in MOMENTS):
        acts = (commit(2 * number), lambda: catalog.loadTable(table), catalog.listNamespaces)
        if not is_outage(jvm, peer, fault, at, acts[number % 3], ends=fault.name not in unbounded):
            found.append((fault.name, at))
        commit(2 * number + 1)()
        assert catalog.loadTable(table).properties()["number"] == str(2 * number + 1)
    return found
