"""A private HDFS: a name node and a data node in one process."""

from __future__ import annotations

from typing import Any

from penstock.testing.servers.hadoop import HadoopServer


class HdfsCluster(HadoopServer):
    kind = "hdfs"
    url = ""
    """The URL of its root, without a slash at its end."""

    def begin(self, jvm: Any) -> None:
        hdfs = jvm.org.apache.hadoop.hdfs
        configuration = hdfs.HdfsConfiguration()
        configuration.set("hdfs.minidfs.basedir", str(self.folder / "data"))
        configuration.set("dfs.permissions.enabled", "false")
        configuration.set("dfs.replication", "1")
        builder = getattr(hdfs, "MiniDFSCluster$Builder")(configuration)
        cluster = builder.numDataNodes(1).build()
        cluster.waitActive()
        self.url = f"hdfs://{self.host}:{cluster.getNameNodePort()}"
