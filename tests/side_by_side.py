"""Which worker runs which file, where files of tests run side by side (`pytest -n`).

A worker starts a Spark of its own with the first file that needs one. That takes 10 CPU seconds, and as many
again until its JVM is warm. So only some workers take such files: one for each core. The others take the
files that do without Spark, which wait much of the time. A broker of Kafka takes ten CPU seconds, too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cache
from itertools import filterfalse
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadFileScheduling

TESTS = Path(__file__).parent
NEEDS_SPARK = re.compile(
    r"\bspark: |\b(place|scenario|following): (Make|Callable)|\b(tables|changes|group): (Case|Group)\b"
)
"""Finds the files that need Spark: their tests name a fixture that does. A file that is taken for the wrong
kind only costs time."""
NEEDS_KAFKA = re.compile(r"\bkafka: ")


@cache
def text_of(file: str) -> str:
    """`file`: relative to the folder above `tests`."""
    path = TESTS.parent / file
    return path.read_text("utf-8") if path.exists() else ""


def needs_spark(file: str) -> bool:
    return NEEDS_SPARK.search(text_of(file)) is not None


def needs_kafka(file: str) -> bool:
    return not needs_spark(file) and NEEDS_KAFKA.search(text_of(file)) is not None


def next_file(files: Iterable[str], worker: int, *, cores: int, workers: int) -> str | None:
    """The file that this worker takes, usually the first that is for it. None: all are for others.

    Of the workers without Spark, the first one runs the broker of Kafka.
    """
    if not cores <= worker < workers:  # also one that replaces a worker that died
        choices = sorted(files, key=lambda file: not needs_spark(file))
    elif worker == cores:
        choices = sorted(filterfalse(needs_spark, files), key=lambda file: not needs_kafka(file))
    else:
        choices = [file for file in files if not needs_spark(file) and not needs_kafka(file)]
    return choices[0] if choices else None


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
