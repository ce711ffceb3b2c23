"""A private HBase with its ZooKeeper, in one process. Its data are on the local disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from penstock.testing.servers.hadoop import HadoopServer

_PLACE = "penstock.hbase"
"""Where the JVM keeps the cluster for later calls."""
_PROPERTIES = {
    "hbase.master.port": "0",
    "hbase.regionserver.port": "0",
    "hbase.master.info.port": "-1",
    "hbase.regionserver.info.port": "-1",
    "hbase.master.ipc.address": "127.0.0.1",
    "hbase.regionserver.ipc.address": "127.0.0.1",
    "hbase.server.keyvalue.maxsize": str(64 * 1024**2),
    "hbase.zookeeper.quorum": "127.0.0.1",
    "hbase.unsafe.stream.capability.enforce": "false",  # a local disk promises less than HDFS
}


class HBaseCluster(HadoopServer):
    kind = "hbase"
    jars = (
        "org.apache.hbase:hbase-shaded-testing-util:2.6.3-hadoop3",
        "junit:junit:4.13.2",
        "org.mockito:mockito-core:4.11.0",
        "io.opentelemetry:opentelemetry-api:1.49.0",
        "io.opentelemetry:opentelemetry-context:1.49.0",
        "io.opentelemetry.semconv:opentelemetry-semconv:1.29.0-alpha",
    )
    pins = json.loads(Path(__file__).with_name("hbase_jars.json").read_text("utf-8"))
    from_spark = ("slf4j-api", "jcl-over-slf4j", "log4j", "audience-annotations", "py4j")
    heap = "700m"
    settings: ClassVar[Mapping[str, str]] = {}
    """Further properties."""
    quorum = ""
    """Address of its ZooKeeper."""

    def begin(self, jvm: Any) -> None:
        hbase = jvm.org.apache.hadoop.hbase
        configuration = hbase.HBaseConfiguration.create()
        keeper = hbase.zookeeper.MiniZooKeeperCluster(configuration)
        port = keeper.startup(jvm.java.io.File(str(self.folder / "zookeeper")))
        own = {
            "hbase.rootdir": (self.folder / "data").as_uri(),
            "hbase.tmp.dir": str(self.folder / "tmp"),
            "hbase.zookeeper.property.clientPort": str(port),
        }
        for name, value in {**_PROPERTIES, **own, **self.settings}.items():
            configuration.set(name, value)
        cluster = hbase.MiniHBaseCluster(configuration, 1)
        jvm.java.lang.System.getProperties().put(_PLACE, cluster)
        self.quorum = f"{self.host}:{port}"

    def replace_region_server(self) -> None:
        """Ends the region server as a crash would, and starts another one."""
        with self._gateway() as jvm:
            cluster = jvm.java.lang.System.getProperties().get(_PLACE)
            cluster.abortRegionServer(0)
            cluster.startRegionServer()
            cluster.waitOnRegionServer(0)
