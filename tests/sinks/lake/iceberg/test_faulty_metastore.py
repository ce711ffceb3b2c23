"""Iceberg's own client of a Hive metastore, against a peer that answers anything."""

from __future__ import annotations

from typing import Any

import pytest
from tests.connections.faulty import bounded_memory
from tests.sinks.lake.iceberg import cut_off

from penstock.failures.outages import passes
from penstock.testing.faulty_peer import ANY_PROTOCOL, DRIP, FaultyPeer
from penstock.testing.servers.catalogs import HiveMetastore

UNBOUNDED = (DRIP.name,)


def connect(jvm: Any, port: int, **settings: str) -> Any:
    configuration = jvm.org.apache.hadoop.conf.Configuration()
    configuration.set("hive.metastore.client.socket.timeout", "1s")
    for name, value in settings.items():
        configuration.set(name, value)
    properties = jvm.java.util.HashMap()
    properties.put("uri", f"thrift://127.0.0.1:{port}")
    catalog = jvm.org.apache.iceberg.hive.HiveCatalog()
    catalog.setConf(configuration)
    catalog.initialize("x", properties)
    return catalog


@pytest.mark.slow
def test_a_metastore_that_answers_something_else_is_waited_for(spark: Any) -> None:
    jvm, missed = spark._jvm, []
    process = int(jvm.java.lang.ProcessHandle.current().pid())
    table = jvm.org.apache.iceberg.catalog.TableIdentifier.parse("shop.orders")
    for fault in ANY_PROTOCOL:
        for act in (lambda one: one.listNamespaces(), lambda one: one.loadTable(table)):
            with FaultyPeer("127.0.0.1", 1) as peer:  # another port: Iceberg keeps connections for each
                peer.play(fault, at="connect")
                with bounded_memory(process), pytest.raises(Exception) as raised:
                    act(connect(jvm, peer.port))
                assert peer.played, fault
            if not passes(raised.value):
                missed.append((fault.name, str(raised.value)[:1000]))
    assert missed == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_an_operation_that_is_cut_off_is_waited_for_and_succeeds_later(spark: Any) -> None:
    with HiveMetastore() as server, FaultyPeer(server.host, server.port) as peer:
        settings = {name.removeprefix("hadoop."): one for name, one in server.iceberg_properties.items()}
        settings["hive.metastore.warehouse.dir"] = str(server.warehouse)
        catalog = connect(spark._jvm, peer.port, **settings)
        assert cut_off.missed(spark, catalog, peer, ANY_PROTOCOL, unbounded=UNBOUNDED) == []
