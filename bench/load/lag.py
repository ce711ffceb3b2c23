"""What a snapshot of the large table does to a stream that runs beside it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import measure
from bench.load import table, tasks
from bench.load.ours import TIMEOUT_S, check_rows, pipeline_file
from bench.load.table import LoadTable
from bench.measure import Figure, NotRun, Outcome, RunFailed
from bench.programs import lag
from penstock import __version__
from penstock.errors import PenstockError

BEFORE_S = 60
DURING_S = 120


def figures(
    load: LoadTable, folder: Path, *, before_s: float = BEFORE_S, during_s: float = DURING_S
) -> Iterator[Outcome]:
    """Writes to the server, so it comes last."""
    try:
        yield from _figures(load, folder, before_s, during_s)
    except (RunFailed, PenstockError) as error:
        for task in (tasks.LAG_BEFORE, tasks.LAG_DURING):
            yield NotRun(tasks.PIPELINE, __version__, task, str(error))


def _figures(load: LoadTable, folder: Path, before_s: float, during_s: float) -> list[Figure]:
    home = Path(tempfile.mkdtemp(dir=folder))
    load.server.execute(
        f"CREATE TABLE {lag.TICKS} (id INT NOT NULL PRIMARY KEY, sent_us BIGINT NOT NULL)",
        f"INSERT INTO {lag.TICKS} VALUES (-1, 0)",
    )
    file = pipeline_file(load, home, tables=[lag.TICKS])
    try:
        measured = measure.run(
            measure.program("bench.programs.lag", file, table.TABLE, before_s, during_s),
            timeout_s=TIMEOUT_S, sample_ms=200,
        )  # fmt: skip
    finally:
        shutil.rmtree(home, ignore_errors=True)
    report = measured.report
    if report["finished"]:
        check_rows(tasks.PIPELINE, report["rows_at_target"], load.rows)
    found = []
    for task, name in ((tasks.LAG_BEFORE, "before"), (tasks.LAG_DURING, "during")):
        phase = report[name]
        details = {key: value for key, value in phase.items() if key.startswith("lag_")}
        if name == "during":
            details |= {"rows_placed": report["rows_placed"], "finished": report["finished"]}
        timed = measure.replaced(measured, phase)
        found.append(measure.figure(timed, system=tasks.PIPELINE, version=__version__, task=task, **details))
    return found
