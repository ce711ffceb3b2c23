"""Iceberg's own client of REST catalogs, against a peer that answers anything."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.failures.outages import passes
from penstock.testing.faulty_peer import CLOSED, GARBAGE, GARBAGE_HELD, HTTP, RESET, SILENT, Fault, FaultyPeer

UNDERSTOOD = ("200 with {}", "200 with []", "200 with null", "200 with a number", "200 with a text",
              "200 with a wrong type", "200 with a float")  # fmt: skip
"""Java's client ignores what it does not expect in JSON, and has an error of its own for null."""
UNBOUNDED = ("without end", "slow")
"""Java's client has no bound for these."""
FAULTS = [
    one
    for one in (CLOSED, RESET, SILENT, GARBAGE, GARBAGE_HELD, *HTTP)
    if one.name not in UNDERSTOOD and not any(word in one.name for word in UNBOUNDED)
]


@pytest.mark.slow
def test_a_catalog_that_answers_something_else_is_waited_for(spark: Any) -> None:
    jvm, missed = spark._jvm, []

    def asked(peer: FaultyPeer, fault: Fault) -> Exception:
        peer.play(fault, at="connect")
        properties = jvm.java.util.HashMap()
        properties.put("uri", f"http://127.0.0.1:{peer.port}")
        properties.put("rest.client.connection-timeout-ms", "500")
        properties.put("rest.client.socket-timeout-ms", "500")
        properties.put("rest.client.max-retries", "1")
        with pytest.raises(Exception) as raised:
            jvm.org.apache.iceberg.rest.RESTCatalog().initialize("x", properties)
        assert peer.played, fault
        return raised.value

    with FaultyPeer("127.0.0.1", 1) as peer:
        missed = [fault.name for fault in FAULTS if not passes(asked(peer, fault))]
    assert missed == []
