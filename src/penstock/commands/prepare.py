"""`penstock prepare [SINK…]`: downloads the connectors and makes later starts of Spark faster, for example
in an image."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from penstock.errors import PenstockError
from penstock.failures.advice import advise
from penstock.failures.error_log import keep_text
from penstock.sinks import registry
from penstock.spark import classes
from penstock.spark.jars import jars

_PREPARE_CODE = "import sys; from penstock.spark.classes import prepare; prepare(sys.argv[1])"
"""Each archive needs a new JVM, and a process can only start one."""


def prepare(sinks: list[str], *, as_json: bool) -> None:
    made: dict[str, str] = {}
    for sink in dict.fromkeys(sinks):
        path = classes.archive(jars([registry.kind(sink)]))
        if not path.exists():
            _make(sink, path, quiet=as_json)
        made[sink] = str(path)
    if as_json:
        print(json.dumps(made))


def _make(sink: str, path: Path, *, quiet: bool) -> None:
    console = Console(stderr=True, quiet=quiet)
    with console.status(f"preparing Spark for {sink} (half a minute, once)"):
        done = subprocess.run(
            [sys.executable, "-c", _PREPARE_CODE, sink],
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
    if done.returncode or not path.exists():
        advice = advise(done.stderr, rows=False)
        kept = keep_text(done.stderr, None)
        raise PenstockError(
            f"Spark could not be prepared for {sink}: "
            f"{advice.message if advice is not None else f'the process ended with code {done.returncode}.'}",
            hint=f"{advice.hint if advice is not None else ''} Pipelines run without it, but they take "
            f"longer to start. Details are in {kept}.".strip(),
        )
    console.print(f"prepared: {path} ({path.stat().st_size / 1e6:.0f} MB)")
