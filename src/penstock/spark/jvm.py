"""Starts the JVM of a Spark session, so that it does not end before the pipeline that uses it.

systemd, `timeout` and the like send SIGTERM to a pipeline and to all its child processes at once. A JVM ends
at SIGTERM. Then the pipeline could neither finish its epoch nor close in order, and would report the loss of
its JVM. So the JVM ignores SIGTERM, as PySpark lets it ignore Ctrl-C. It ends when its standard input closes:
when the session is stopped, or its process has ended in whatever way.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import IO, Any

from py4j.java_gateway import JavaGateway
from pyspark import SparkConf, java_gateway

_PYSPARK: Any = java_gateway


def launch(conf: SparkConf, output: IO[bytes]) -> JavaGateway:
    """Starts the JVM with these options. `output` takes what it prints."""
    popen = _PYSPARK.Popen
    _PYSPARK.Popen = _popen  # `popen_kwargs` would not do: PySpark overwrites its `preexec_fn`
    try:
        gateway: JavaGateway = _PYSPARK.launch_gateway(conf, {"stdout": output, "stderr": output})
        return gateway
    finally:
        _PYSPARK.Popen = popen


def _popen(
    command: Sequence[str], *, preexec_fn: Callable[[], None], **options: Any
) -> subprocess.Popen[bytes]:
    def prepare() -> None:
        preexec_fn()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # inherited through `exec`; Java respects it

    return subprocess.Popen(command, preexec_fn=prepare, **options)
