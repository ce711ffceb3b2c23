"""Canal's own Java client, as a process that is told what to do line by line (`java/CanalClient.java`)."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

from typing_extensions import Self

from penstock.artifacts.maven import fetch_all, java

CLIENT = "penstock.testing.CanalClient"
CLIENT_JAR = Path(__file__).with_name("client.jar")
CLIENT_JARS = (
    "com.alibaba.otter:canal.client:1.1.8",
    "com.alibaba.otter:canal.protocol:1.1.8",
    "com.alibaba.otter:canal.common:1.1.8",
    "com.google.protobuf:protobuf-java:3.6.1",
    "commons-lang:commons-lang:2.6",
)
"""The jars of a client that connects to one server without ZooKeeper."""
CLUSTER_JARS = (
    *CLIENT_JARS,
    "com.101tec:zkclient:0.10",
    "org.apache.zookeeper:zookeeper:3.5.6",  # it reaches into what later ones do not have
    "org.apache.zookeeper:zookeeper-jute:3.5.6",
    "org.springframework:spring-core:5.3.9",
    "org.springframework:spring-jcl:5.3.9",
    "com.alibaba.fastjson2:fastjson2:2.0.31",
    "org.apache.commons:commons-lang3:3.7",
    "commons-io:commons-io:2.4",
)
"""The jars of a client that finds its server in ZooKeeper, besides those of PySpark."""
_SPARK_JARS = ("slf4j-api-",)
_SPARK_CLUSTER_JARS = ("slf4j-api-", "guava-", "log4j-1.2-api-", "log4j-api-", "failureaccess-")
SMALL_JVM = ("-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx256m")


class ClientError(Exception):
    """An error that the client's own classes raised."""


class ClientEnded(Exception):
    """The process ended: it was killed, say."""


def class_path(*, cluster: bool = False) -> str:
    """Fetches what is missing."""
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    spark = Path(spec.origin).parent / "jars"
    names = _SPARK_CLUSTER_JARS if cluster else _SPARK_JARS
    of_spark = [str(jar) for jar in sorted(spark.glob("*.jar")) if jar.name.startswith(names)]
    fetched = fetch_all(CLUSTER_JARS if cluster else CLIENT_JARS)
    return ":".join([str(CLIENT_JAR), *map(str, fetched), *of_spark])


class JavaClient:
    """One client in a process of its own. `address`: of a server, or `zookeeper:` and addresses of ZooKeeper,
    divided by commas: the client then finds the server there, also when that changes. Every method raises
    `ClientError` with the client's own message, and `ClientEnded` if the process is gone."""

    def __init__(
        self, address: str, destination: str, *, user: str = "", password: str = "", jvm: Sequence[str] = ()
    ) -> None:
        cluster = address.startswith("zookeeper:")
        host, _, port = address.partition(":") if cluster else address.rpartition(":")
        command = [
            java(),
            *SMALL_JVM,
            *jvm,
            "-cp",
            class_path(cluster=cluster),
            CLIENT,
            host,
            port,
            destination,
        ]
        self.process = subprocess.Popen(
            [*command, user, password],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def connect(self) -> None:
        self._ok("connect")

    def subscribe(self, filter: str = "") -> None:
        self._ok(f"subscribe {filter}")

    def unsubscribe(self) -> None:
        self._ok("unsubscribe")

    def get(self, size: int, milliseconds: int = 2000) -> tuple[int, list[bytes]]:
        """A batch's id, and its entries. The id is -1 if there was nothing in this time. A negative time does
        not wait."""
        answer = self._ask(f"get {size} {milliseconds}").split()
        return int(answer[1]), [base64.b64decode(self._line()) for _ in range(int(answer[2]))]

    def rows(self, size: int, milliseconds: int = 2000) -> tuple[int, list[list[Any]]]:
        """The rows, with a list for each: event, database, table, file, position, and the columns before and
        after the change. Instead of the columns, a statement has its SQL."""
        answer = self._ask(f"rows {size} {milliseconds}").split()
        return int(answer[1]), [json.loads(self._line()) for _ in range(int(answer[2]))]

    def acknowledge(self, batch_id: int) -> None:
        self._ok(f"ack {batch_id}")

    def roll_back(self, batch_id: int = 0) -> None:
        self._ok(f"rollback {batch_id}")

    def disconnect(self) -> None:
        self._ok("disconnect")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                continue

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ok(self, request: str) -> None:
        self._ask(request)

    def _ask(self, request: str) -> str:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise ClientEnded(request) from None
        answer = self._line()
        if answer.startswith("error"):
            raise ClientError(answer.removeprefix("error").strip())
        return answer

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.endswith("\n"):
            raise ClientEnded("its output has ended")
        return line.rstrip("\n")
