"""A private YARN cluster: Hadoop's own, with a resource manager and two node managers in one process.

Its containers are processes of this machine, so they see its disk. What it shows is YARN's way of starting
executors and of bringing them files.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

from penstock.artifacts.maven import fetch, java
from penstock.testing.servers import private_root
from penstock.testing.servers.process import PrivateServer, ServerFailed

_JARS = (
    "org.apache.hadoop:hadoop-client-minicluster:3.4.2",
    "org.bouncycastle:bcprov-jdk18on:1.78.1",
    "org.bouncycastle:bcpkix-jdk18on:1.78.1",
    "org.bouncycastle:bcutil-jdk18on:1.78.1",
    "javax.xml.bind:jaxb-api:2.3.1",
    "com.sun.xml.bind:jaxb-impl:2.3.1",
    "com.sun.xml.bind:jaxb-core:2.3.0.1",
    "junit:junit:4.13.2",
)
_PINS: dict[str, str] = json.loads(Path(__file__).with_name("yarn_jars.json").read_text("utf-8"))
_SPARKS = ("hadoop-client", "slf4j-api", "jcl-over-slf4j", "log4j", "py4j")
"""What it takes from Spark's own jars."""
_OPENED = ("java.base/java.lang", "java.base/java.util", "java.base/java.nio", "java.base/sun.nio.ch")
NODES = 2


class YarnCluster(PrivateServer):
    kind = "yarn"

    def __init__(self) -> None:
        self._jars = [jar for one in _JARS for jar in fetch(one, pins=_PINS)]
        super().__init__()
        self.configuration = self.folder / "conf"
        self.configuration.mkdir()
        self.start()
        try:
            self._begin()
        except Exception as error:
            reason = f"The private {self.kind} did not start: {error}"  # it is asked for while it runs
            self.close()
            raise ServerFailed(reason) from None

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which Spark finds the cluster."""
        return {"HADOOP_CONF_DIR": str(self.configuration)}

    @property
    def conf(self) -> dict[str, str]:
        """The `spark.conf` of pipelines on this cluster."""
        return {
            "spark.driver.host": self.host,
            "spark.executor.instances": str(NODES),
            "spark.executor.memory": "768m",
            "spark.yarn.am.memory": "384m",
            "spark.yarn.stagingDir": (self.folder / "staging").as_uri(),
            "spark.yarn.jars": f"local:{_spark_jars()}/*",  # instead of bringing 300 MB
        }

    def command(self) -> tuple[list[str], dict[str, str]]:
        """A JVM that waits for `_begin`, so that no Java has to be compiled."""
        own = [jar for name in _SPARKS for jar in sorted(_spark_jars().glob(f"{name}-*.jar"))]
        paths = map(str, (*self._jars, *own))
        opened = [f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED]
        # Its test directories are below the one in which it runs.
        program = [java(), "-Xmx512m", f"-Dtest.build.data={self.folder}/data", *opened]
        program += ["-cp", ":".join(paths), "py4j.GatewayServer", str(self.port)]
        path = f"{sys.base_prefix}/bin:{os.defpath}"
        argv = private_root.with_descendants(program)
        return argv, {"PATH": path, "LC_ALL": "C.UTF-8", "HADOOP_USER_NAME": "penstock"}

    def stop(self) -> None:
        """`unshare` ignores SIGTERM, and the cluster has nothing to save."""
        self.kill9()

    def ready(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), 5):
            return True
        return False

    def _begin(self) -> None:
        from py4j.java_gateway import GatewayParameters, JavaGateway

        # The JVM keeps its objects, although this process forgets them.
        parameters = GatewayParameters(port=self.port, enable_memory_management=False)
        gateway = JavaGateway(gateway_parameters=parameters)
        jvm: Any = gateway.jvm
        configuration = jvm.org.apache.hadoop.yarn.conf.YarnConfiguration()
        for name, value in {
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99",
            "yarn.nodemanager.resource.memory-mb": "4096",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.pmem-check-enabled": "false",
            "yarn.scheduler.minimum-allocation-mb": "128",
            "yarn.scheduler.capacity.root.queues": "default",
            "yarn.scheduler.capacity.root.default.capacity": "100",
            "yarn.scheduler.capacity.maximum-am-resource-percent": "0.5",
            "yarn.minicluster.fixed.ports": "false",
            "yarn.nodemanager.hostname": self.host,
            "yarn.resourcemanager.hostname": self.host,
        }.items():
            configuration.set(name, value)
        cluster = jvm.org.apache.hadoop.yarn.server.MiniYARNCluster("penstock", NODES, 1, 1)
        cluster.init(configuration)
        cluster.start()
        if not cluster.waitForNodeManagersToConnect(60_000):
            raise ServerFailed("its node managers are not ready")
        for name in ("core-site.xml", "yarn-site.xml"):
            out = jvm.java.io.FileOutputStream(str(self.configuration / name))
            cluster.getConfig().writeXml(out)
            out.close()
        gateway.close()


def _spark_jars() -> Path:
    import pyspark  # takes half a second, which tests without it should not wait

    return Path(pyspark.__file__).resolve().parent / "jars"
