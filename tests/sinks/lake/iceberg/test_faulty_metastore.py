"""Iceberg's own client of a Hive metastore, against a peer that answers anything."""

from __future__ import annotations

from typing import Any

import pytest
from tests.connections.faulty import bounded_memory

from penstock.failures.outages import passes
from penstock.testing.faulty_peer import ANY_PROTOCOL, FaultyPeer


@pytest.mark.slow
def test_a_metastore_that_answers_something_else_is_waited_for(spark: Any) -> None:
    jvm, missed = spark._jvm, []
    process = int(jvm.java.lang.ProcessHandle.current().pid())
    iceberg = jvm.org.apache.iceberg

    def made(port: int) -> Any:
        configuration = jvm.org.apache.hadoop.conf.Configuration()
        configuration.set("hive.metastore.client.socket.timeout", "1s")
        properties = jvm.java.util.HashMap()
        properties.put("uri", f"thrift://127.0.0.1:{port}")
        catalog = iceberg.hive.HiveCatalog()
        catalog.setConf(configuration)
        catalog.initialize("x", properties)
        return catalog

    table = iceberg.catalog.TableIdentifier.parse("shop.orders")
    for fault in ANY_PROTOCOL:
        for act in (lambda one: one.listNamespaces(), lambda one: one.loadTable(table)):
            with FaultyPeer("127.0.0.1", 1) as peer:  # another port: Iceberg keeps connections for each
                peer.play(fault, at="connect")
                with bounded_memory(process), pytest.raises(Exception) as raised:
                    act(made(peer.port))
                assert peer.played, fault
            if not passes(raised.value):
                missed.append((fault.name, str(raised.value)[:1000]))
    assert missed == []
