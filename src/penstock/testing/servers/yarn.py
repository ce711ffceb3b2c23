"""A private YARN cluster: Hadoop's own, with a resource manager and two node managers in one process.

Its containers are processes of this machine, so they see its disk. What it shows is YARN's way of starting
executors and of bringing them files.
"""

from __future__ import annotations

from typing import Any

from penstock.testing.servers.hadoop import HadoopServer, spark_jars
from penstock.testing.servers.process import ServerFailed

NODES = 2


class YarnCluster(HadoopServer):
    kind = "yarn"

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which Spark finds the cluster."""
        return {"HADOOP_CONF_DIR": str(self.configuration)}

    @property
    def conf(self) -> dict[str, str]:
        """The `spark.conf` of pipelines on this cluster."""
        return {
            "spark.driver.host": self.host,
            "spark.authenticate": "true",  # YARN makes the secret
            "spark.network.crypto.enabled": "true",
            "spark.io.encryption.enabled": "true",
            "spark.executor.instances": str(NODES),
            "spark.executor.memory": "768m",
            "spark.yarn.am.memory": "384m",
            "spark.yarn.stagingDir": (self.folder / "staging").as_uri(),
            "spark.yarn.jars": f"local:{spark_jars()}/*",  # instead of bringing 300 MB
        }

    def begin(self, jvm: Any) -> None:
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
