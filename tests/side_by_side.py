"""Which worker runs which file, where files of tests run side by side (`pytest -n`).

A worker starts a Spark of its own with the first file that needs one. That takes 10 CPU seconds, and as many
again until its JVM is warm. So only some workers take such files: one for each core. The others take the
files that do without Spark, which wait much of the time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadFileScheduling

TESTS = Path(__file__).parent
NEEDS_SPARK = re.compile(
    r"\bspark: |\b(place|scenario): (Make|Callable)|\b(tables|changes|group): (Case|Group)\b"
)
"""Finds the files that need Spark: their tests name a fixture that does. A file that is taken for the wrong
kind only costs time."""


@cache
def needs_spark(file: str) -> bool:
    """`file`: relative to the folder above `tests`."""
    path = TESTS.parent / file
    return path.exists() and NEEDS_SPARK.search(path.read_text("utf-8")) is not None


def next_file(files: Iterable[str], worker: int, *, cores: int, workers: int) -> str | None:
    """The first of the files that this worker takes. None: all are for others."""
    files = list(files)
    is_without_spark = cores <= worker < workers  # one that replaces a dead worker takes any file
    for file in files:
        if needs_spark(file) != is_without_spark:
            return file
    return None if is_without_spark or not files else files[0]


class ByNeed(LoadFileScheduling):  # type: ignore[misc]
    """Gives the files in their order, but those that need Spark only to some of the workers."""

    def _assign_work_unit(self, node: Any) -> None:
        worker, cores = int(node.gateway.id.removeprefix("gw")), os.cpu_count() or 1
        file = next_file(self.workqueue, worker, cores=cores, workers=self.numnodes)
        if file is None:
            node.shutdown()
            return
        self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)
