from __future__ import annotations

import signal
from pathlib import Path

from pyspark import SparkConf

from penstock.spark import jvm


def test_sigterm_to_all_processes_leaves_the_jvm_to_the_pipeline(tmp_path: Path) -> None:
    with (tmp_path / "output").open("wb") as output:
        gateway = jvm.launch(SparkConf(loadDefaults=False), output)
    process = gateway.proc
    process.send_signal(signal.SIGTERM)
    pid = gateway.jvm.java.lang.ProcessHandle.current().pid()
    ignored = Path(f"/proc/{pid}/status").read_text().split("SigIgn:")[1].split()[0]
    assert int(ignored, 16) & 1 << signal.SIGTERM - 1
    assert process.poll() is None
    gateway.close()
    process.stdin.close()
    assert process.wait(60) is not None
