"""Penstock's figures of the large table: into Arrow, staged, and how much memory that takes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from bench import measure, workload
from bench.load import table, tasks
from bench.load.table import LoadTable
from bench.measure import Figure, NotRun, Outcome, RunFailed
from penstock import __version__
from penstock.errors import PenstockError

TIMEOUT_S = 3600
WAYS = {tasks.TO_ARROW: "arrow", tasks.STAGED: "staged", tasks.KEPT: "kept"}


def figures(load: LoadTable, folder: Path, repeat: int) -> Iterator[Outcome]:
    for connections in tasks.CONNECTIONS:
        task = tasks.load(connections)
        for system in WAYS:
            once = partial(_read, load, folder, system, task, connections=connections)
            yield tried(system, task, partial(measure.median_of, repeat, once))


def memory_figures(load: LoadTable, folder: Path) -> Iterator[Outcome]:
    """Staging a quarter, half and the whole of the table's keys."""
    for divisor in tasks.SHARES:
        task = tasks.memory(divisor)
        once = partial(_read, load, folder, tasks.STAGED, task, connections=2, divisor=divisor)
        yield tried(tasks.STAGED, task, once)


def tried(system: str, task: str, run: Callable[[], Figure]) -> Outcome:
    try:
        return run()
    except (RunFailed, PenstockError) as error:
        return NotRun(system, __version__, task, str(error))


def pipeline_file(load: LoadTable, home: Path, **sections: Any) -> Path:
    """A pipeline with the peers' account; `sections` replace whole sections of the file."""
    document: dict[str, Any] = {
        "name": "load",
        "source": {
            "host": load.server.host, "port": load.server.port, "tls": "disabled",
            "user": workload.PEER_USER, "password": workload.PEER_PASSWORD,
        },
        "tables": [table.TABLE],
        "sink": {"type": "iceberg", "path": str(home / "warehouse")},
        "state": str(home / "state"),
        "spark": {"master": "local[2]"},
        **sections,
    }  # fmt: skip
    path = home / "pipeline.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def _read(
    load: LoadTable, folder: Path, system: str, task: str, *, connections: int, divisor: int = 1
) -> Figure:
    home = Path(tempfile.mkdtemp(dir=folder))
    rows = load.rows // divisor
    ids = rows if divisor > 1 else 0
    try:
        measured = measure.run(
            measure.program(
                "bench.programs.load", pipeline_file(load, home), table.TABLE, connections, WAYS[system],
                ids, home / "chunks",
            ),
            timeout_s=TIMEOUT_S,
        )  # fmt: skip
    finally:
        shutil.rmtree(home)
    check_rows(system, measured.report["changes"], rows)
    report = measured.report
    return measure.figure(
        measured, system=system, version=__version__,
        task=task,
        connections=connections, chunks=report["chunks"], planned_s=report["planned_s"],
    )  # fmt: skip


def check_rows(system: str, rows: int, expected: int) -> None:
    """The server has counted what was to be read; everybody must have read as many."""
    if rows != expected:
        raise RunFailed(f"{system} read {rows:,} rows, the server has {expected:,}")
