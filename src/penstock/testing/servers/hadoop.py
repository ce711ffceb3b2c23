"""Private servers of Hadoop: its own clusters for tests, in one JVM."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from penstock.artifacts.maven import fetch, java
from penstock.testing.servers import private_root
from penstock.testing.servers.process import SHORT_LIVED_JVM, PrivateServer, ServerFailed

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
"""Beginnings of the names of jars that it takes from Spark."""
_OPENED = ("java.base/java.lang", "java.base/java.util", "java.base/java.nio", "java.base/sun.nio.ch")


class HadoopServer(PrivateServer):
    """A JVM in which `begin` starts something. `jars`: coordinates of what it needs, `pins`: their SHA-256,
    `from_spark`: jars of Spark's that it needs, too. `heap`: its memory."""

    jars: ClassVar[Sequence[str]] = _JARS
    pins: ClassVar[Mapping[str, str]] = _PINS
    from_spark: ClassVar[Sequence[str]] = _SPARKS
    heap: ClassVar[str] = "512m"

    def __init__(self) -> None:
        self._jars = [jar for one in self.jars for jar in fetch(one, pins=self.pins)]
        super().__init__()
        self.configuration = self.folder / "conf"
        self.configuration.mkdir()
        self.start()
        try:
            with self._gateway() as jvm:
                self.begin(jvm)
        except Exception as error:
            reason = f"The private {self.kind} did not start: {error}"  # it is asked for while it runs
            self.close()
            raise ServerFailed(reason) from None

    def begin(self, jvm: Any) -> None:
        raise NotImplementedError

    def command(self) -> tuple[list[str], dict[str, str]]:
        """A JVM that waits for `begin`, so that no Java has to be compiled."""
        own = [jar for name in self.from_spark for jar in sorted(spark_jars().glob(f"{name}-*.jar"))]
        paths = map(str, (*self._jars, *own))
        opened = [f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED]
        # Its test directories are below the one in which it runs.
        program = [java(), *SHORT_LIVED_JVM, f"-Xmx{self.heap}", f"-Dtest.build.data={self.folder}/data"]
        program += opened
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

    @contextlib.contextmanager
    def _gateway(self) -> Iterator[Any]:
        from py4j.java_gateway import GatewayParameters, JavaGateway

        # The JVM keeps its objects, although this process forgets them.
        parameters = GatewayParameters(port=self.port, enable_memory_management=False)
        gateway = JavaGateway(gateway_parameters=parameters)
        yield gateway.jvm
        gateway.close()


def spark_jars() -> Path:
    import pyspark  # takes half a second, which tests without it should not wait

    return Path(pyspark.__file__).resolve().parent / "jars"
