"""A private standalone Spark cluster, made of PySpark's own jars.

Each worker has a file system of its own (`private_root.py`): it sees Java, a Python without packages, Spark,
and an empty folder. It sees neither the driver's disk, nor the checkout and its packages, nor another
worker's folder. So what works here needs no shared disk and nothing installed on the workers. Master, workers
and drivers know each other by a secret, and encrypt what they send.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import psutil
from typing_extensions import Self

from penstock.artifacts.maven import java
from penstock.testing.servers import private_root
from penstock.testing.servers.process import SHORT_LIVED_JVM, PrivateServer, free_port

SPARK_HOME = "/opt-spark"
"""Where workers see Spark."""
FOLDER = "/work"
"""Where workers see their own folder."""
_DEPLOY = "org.apache.spark.deploy"
_EXECUTOR = "CoarseGrainedExecutorBackend"


def spark_home() -> Path:
    import pyspark  # takes half a second, which tests without it should not wait

    return Path(pyspark.__file__).parent.resolve()


def security(secret: str) -> dict[str, str]:
    """The options that master, workers and applications of a cluster must have alike."""
    return {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secret,
        "spark.network.crypto.enabled": "true",
    }


def _write_properties(path: Path, secret: str) -> None:
    path.write_text("".join(f"{name} {value}\n" for name, value in security(secret).items()))
    path.chmod(0o600)


class SparkMaster(PrivateServer):
    kind = "spark-master"

    def __init__(self, secret: str) -> None:
        super().__init__()
        self._page_port = free_port()
        _write_properties(self._properties, secret)
        self.start()

    @property
    def url(self) -> str:
        return f"spark://{self.host}:{self.port}"

    @property
    def _properties(self) -> Path:
        return self.folder / "spark.properties"

    def command(self) -> tuple[list[str], dict[str, str]]:
        program = [
            java(),
            *SHORT_LIVED_JVM,
            "-Xmx256m",
            "-cp",
            f"{spark_home()}/jars/*",
            f"{_DEPLOY}.master.Master",
        ]
        program += ["--host", self.host, "--port", str(self.port), "--webui-port", str(self._page_port)]
        program += ["--properties-file", str(self._properties)]
        # Its page would listen on all addresses.
        return program, {"PATH": os.defpath, "SPARK_LOCAL_IP": self.host}

    def ready(self) -> bool:
        return "New state: ALIVE" in _text(self.log_path)


class SparkWorker(PrivateServer):
    """`host`: a loopback address of its own. Executors of the same host would read each other's files.
    `python`: the folder in which executors find `pythonX.Y`. Default: that of this process's Python,
    without the packages of a virtual environment. None: they find no Python."""

    kind = "spark-worker"

    def __init__(
        self,
        master: str,
        secret: str,
        *,
        host: str,
        cores: int,
        memory: str,
        python: Path | None = Path(sys.base_prefix),
    ) -> None:
        super().__init__()
        self.host = host
        self._master, self._cores, self._memory, self._python = master, cores, memory, python
        for name in ("root", "work"):
            (self.folder / name).mkdir()
        _write_properties(self.work / "spark.properties", secret)
        self.start()

    @property
    def work(self) -> Path:
        """The worker's own folder, as this machine sees it."""
        return self.folder / "work"

    def command(self) -> tuple[list[str], dict[str, str]]:
        home = Path(java()).resolve().parent.parent
        visible = {spark_home(): SPARK_HOME, home: str(home)}
        paths = ["/bin"]
        if self._python is not None:
            visible[self._python] = str(self._python)
            paths.insert(0, f"{self._python}/bin")
        program = [f"{home}/bin/java", *SHORT_LIVED_JVM, "-Xmx256m", "-cp", f"{SPARK_HOME}/jars/*"]
        program += [f"{_DEPLOY}.worker.Worker"]
        program += ["--host", self.host, "--cores", str(self._cores), "--memory", self._memory]
        program += ["--webui-port", str(free_port()), "--work-dir", FOLDER]
        program += ["--properties-file", f"{FOLDER}/spark.properties", self._master]
        environment = {
            "PATH": ":".join(paths),
            "SPARK_HOME": SPARK_HOME,
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_LOCAL_IP": self.host,
            "SPARK_LOCAL_DIRS": f"{FOLDER}/local",
            "LC_ALL": "C.UTF-8",
        }
        root = self.folder / "root"
        argv = private_root.command(program, root=root, read_only=visible, writable={self.work: FOLDER})
        return argv, environment | {"PATH": f"{environment['PATH']}:{os.defpath}"}

    def ready(self) -> bool:
        return "Successfully registered with master" in _text(self.log_path)

    def executors(self) -> list[psutil.Process]:
        """The processes of executors that run now."""
        found = []
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(self.pid).children(recursive=True) if self.pid else []:
                with contextlib.suppress(psutil.Error):
                    if any(_EXECUTOR in part for part in process.cmdline()):
                        found.append(process)
        return found

    def stop(self) -> None:
        """`unshare` ignores SIGTERM, and a worker has nothing to save."""
        self.kill9()


class SparkCluster:
    """A master and its workers. `close` ends all their processes and removes their folders."""

    def __init__(
        self,
        workers: int = 3,
        *,
        cores: int = 1,
        memory: str = "1g",
        python: Path | None = Path(sys.base_prefix),
    ) -> None:
        self._stack = ExitStack()
        self._kind = (cores, memory, python)
        self._secret = secrets.token_hex(32)
        self._started = 0
        self.workers: list[SparkWorker] = []
        with ExitStack() as starting:
            self.master = starting.enter_context(SparkMaster(self._secret))
            for _ in range(workers):
                self.workers.append(starting.enter_context(self._worker()))
            self._stack = starting.pop_all()

    @property
    def url(self) -> str:
        """The `spark.master` of pipelines on this cluster."""
        return self.master.url

    @property
    def conf(self) -> dict[str, str]:
        """The `spark.conf` of pipelines on this cluster: all of it is on one machine."""
        own = {"spark.driver.host": self.master.host, "spark.executor.memory": "768m"}
        return own | security(self._secret) | {"spark.io.encryption.enabled": "true"}

    def add_worker(self) -> SparkWorker:
        worker = self._stack.enter_context(self._worker())
        self.workers.append(worker)
        return worker

    def _worker(self) -> SparkWorker:
        cores, memory, python = self._kind
        self._started += 1
        host = f"127.0.0.{1 + self._started}"
        return SparkWorker(self.url, self._secret, host=host, cores=cores, memory=memory, python=python)

    def executors(self) -> list[psutil.Process]:
        return [process for worker in self.workers for process in worker.executors()]

    def kill_executor(self) -> bool:
        """Kills one executor with SIGKILL. False: none runs."""
        for process in self.executors():
            with contextlib.suppress(psutil.Error):
                process.kill()
                return True
        return False

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""
