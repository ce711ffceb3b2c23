"""HBase's own client, against a ZooKeeper and a region server that answer anything."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from pyspark.sql import SparkSession
from tests.connections.faulty import outage, recovers, subject
from tests.sinks.conformance import with_servers
from tests.sinks.conformance.case import Case
from tests.sinks.hbase.test_sink import THREE

from penstock.sinks.hbase.options import HBaseOptions
from penstock.sinks.hbase.registration import HBASE
from penstock.testing.faulty_peer import (
    ANY_PROTOCOL,
    CLOSED,
    ENDLESS,
    GARBAGE,
    SILENT,
    Fault,
    FaultyPeer,
    Moment,
    says,
)
from penstock.testing.servers.hbase import HBaseCluster
from penstock.testing.servers.process import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

TOLD = "127.0.0.2"
"""Where the region server says that it is. There the peer listens."""
_HUGE = struct.pack(">i", 2**31 - 1)
FAULTS = (
    *ANY_PROTOCOL,
    says("an empty frame", struct.pack(">i", 0)),
    says("a negative frame", struct.pack(">i", -5)),
    says("a frame that lies", _HUGE + b"\x08\x01"),
    says("a page", b"HTTP/1.1 400 Bad Request\r\n\r\n<html></html>"),
    Fault("a frame without end", lambda: itertools.chain([_HUGE], itertools.repeat(b"x" * 65536))),
)
OF_ZOOKEEPER: tuple[tuple[Fault, Moment], ...] = (
    (CLOSED, "connect"), (SILENT, "answer"), (GARBAGE, "middle"), (ENDLESS, "connect"),
    *((fault, "answer") for fault in FAULTS[-5:]),
)  # fmt: skip
"""Few, because HBase's client takes ten seconds to give up."""


@contextmanager
def cluster() -> Iterator[tuple[HBaseCluster, FaultyPeer]]:
    """A cluster with a peer in front of its region server."""
    port = free_port()

    class Told(HBaseCluster):
        settings: ClassVar = {
            "hbase.regionserver.port": str(port),
            "hbase.unsafe.regionserver.hostname": TOLD,
        }

    with FaultyPeer("127.0.0.1", port, listen=(TOLD, port)) as peer, closing(Told()) as made:
        yield made, peer


def writer(
    spark: SparkSession, options: HBaseOptions, folder: Path
) -> tuple[Callable[[], None], Callable[[], None]]:
    """Writes the next epoch; the second one over new connections."""
    with_servers.add_jars(spark, options)
    it = Case(spark, replace(HBASE, example=lambda folder: options), folder, THREE).create()
    epochs = itertools.count(1)

    def write() -> None:
        number = next(epochs)
        assert it.merge(number, (1, "a", str(number), False, 10 * number))

    def anew() -> None:
        it.sink.close()
        write()

    return write, anew


def test_whatever_is_answered_at_whatever_moment_is_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    """In the JVM of Spark, whose memory stays bounded."""
    with cluster() as (server, region):
        host, _, port = server.quorum.rpartition(":")
        with FaultyPeer(host, int(port)) as keeper:
            options = HBaseOptions(
                type="hbase",
                quorum=f"127.0.0.1:{keeper.port}",
                timeout=1000,
                properties={"hbase.client.retries.number": "1"},
            )
            write, anew = writer(spark, options, tmp_path)
            anew()
            client = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
            cases: list[tuple[FaultyPeer, Callable[[], None], Fault, Moment]] = [
                *((region, write, fault, "answer") for fault in FAULTS),
                *((region, anew, fault, "connect") for fault in FAULTS),
                *((region, write, fault, "middle") for fault in ANY_PROTOCOL),
                *((keeper, anew, fault, at) for fault, at in OF_ZOOKEEPER),
            ]
            for peer, act, fault, at in cases:
                with subject(f"{fault}, at {at}, of {'ZooKeeper' if peer is keeper else 'a region server'}"):
                    outage(peer, fault, at, act, named=options.quorum, process=client)
                    recovers(act)


def test_with_the_default_limit_an_attempt_ends_in_time(spark: SparkSession, tmp_path: Path) -> None:
    with cluster() as (server, region):
        options = HBaseOptions(type="hbase", quorum=server.quorum)
        write, _ = writer(spark, options, tmp_path)
        client = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
        write()
        for fault in (SILENT, CLOSED, GARBAGE, ENDLESS):
            with subject(fault.name):
                outage(
                    region, fault, "answer", write, named=options.quorum, process=client,
                    seconds_max=1.5 * options.timeout / 1000,
                )  # fmt: skip
                recovers(write)
