"""`penstock prepare [SINK|FILE…]`: downloads the connectors and makes later starts of Spark faster, for
example in an image. A pipeline file may need more than its sink does: the jars of its store, the driver of
its catalog."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from penstock import config as configuration
from penstock.artifacts import environment
from penstock.errors import PenstockError
from penstock.failures.advice import advise
from penstock.failures.error_log import keep_text
from penstock.sinks import registry
from penstock.sinks.jars import jars
from penstock.sinks.kind import SinkOptions
from penstock.spark import classes

_PREPARE_CODE = """
import sys
from penstock.commands.prepare import sink_options
from penstock.spark.training_run import prepare
prepare(sink_options(sys.argv[1]))
"""
"""Each archive needs a new JVM, and a process can only start one."""


def prepare(targets: list[str], *, cluster: bool, as_json: bool) -> None:
    """Makes an archive for each target and prints its path. `targets`: names of sinks, and paths of pipeline
    files. `cluster`: packs the Python packages for workers, too."""
    made: dict[str, str] = {}
    if cluster:
        path = environment.archive()
        made["cluster"] = str(path)
        _tell(Console(stderr=True, quiet=as_json), path)
    for target in dict.fromkeys(targets):
        path = classes.archive(jars([sink_options(target)]))
        if not path.exists():
            _make(target, path, quiet=as_json)
        made[target] = str(path)
    if as_json:
        print(json.dumps(made))


def sink_options(target: str) -> SinkOptions:
    """The options of a sink that has this name, or of the pipeline file at this path."""
    if target not in registry.names() and (Path(target).exists() or target.endswith((".yaml", ".yml"))):
        return configuration.load(target).sink
    options: SinkOptions = registry.kind(target).example(Path("unused"))
    return options


def _make(target: str, path: Path, *, quiet: bool) -> None:
    console = Console(stderr=True, quiet=quiet)
    with console.status(f"preparing Spark for {target} (half a minute, once)"):
        done = subprocess.run(
            [sys.executable, "-c", _PREPARE_CODE, target],
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
    if done.returncode or not path.exists():
        advice = advise(done.stderr, rows=False)
        kept = keep_text(done.stderr, None)
        raise PenstockError(
            f"Spark could not be prepared for {target}: "
            f"{advice.message if advice is not None else f'the process ended with code {done.returncode}.'}",
            hint=f"{advice.hint if advice is not None else ''} Pipelines run without it, but they take "
            f"longer to start. Details are in {kept}.".strip(),
        )
    _tell(console, path)


def _tell(console: Console, path: Path) -> None:
    console.print(f"prepared: {path} ({path.stat().st_size / 1e6:.0f} MB)")
