"""Old snapshots are forgotten at once, and what only they named is removed some time later.

Every commit writes down all snapshots of its table, and small commits make several a second, so only some
minutes of them can be kept. A query over a large table may take longer, and reads the files of the snapshot
that it began with. Iceberg would remove these together with the snapshot; here their names are written down
in the table's own directory, and a later call removes them.

A process that is killed between the two, or while it writes the list, leaves files that nothing names, as a
killed writer does.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JJavaError

from penstock.config import SinkConfig
from penstock.sinks.iceberg.files import Classes, listed

log = logging.getLogger(__name__)

FOLDER = "expired"
"""In the table's directory: a file for each time, named by when that was (milliseconds)."""


def expire(classes: Classes, target: Any, config: SinkConfig) -> None:
    """Snapshots older than the configured age go, and those beyond the configured number, but for the newest
    ones."""
    now_ms = int(time.time() * 1000)
    before_ms = now_ms - config.snapshots_age
    times = sorted((one.timestampMillis() for one in target.snapshots()), reverse=True)
    if len(times) > config.snapshots_max:
        before_ms = max(before_ms, times[config.snapshots_max])
    change = target.expireSnapshots().expireOlderThan(before_ms).retainLast(config.snapshots_keep)
    if not classes.lists_files(target.io()):
        change.commit()
        return
    names, note = classes.collector()
    change.deleteWith(note).commit()
    if len(names):
        _write(target, f"{now_ms}-{uuid.uuid4()}.json", list(names))
    for moment_ms, location in _lists(target):
        if moment_ms <= now_ms - config.files_age:
            for name in _read(target, location):
                target.io().deleteFile(name)
            target.io().deleteFile(location)  # last: what is cut off here is done again


def _write(target: Any, name: str, names: list[str]) -> None:
    stream = target.io().newOutputFile(f"{target.location()}/{FOLDER}/{name}").create()
    try:
        stream.write(json.dumps(names).encode())
    finally:
        stream.close()


def _read(target: Any, location: str) -> list[str]:
    stream = target.io().newInputFile(location).newStream()
    try:
        found: list[str] = json.loads(bytes(stream.readAllBytes()))
    except ValueError:
        log.warning("%s is cut off: the files that it named stay.", location)
        return []
    finally:
        stream.close()
    return found


def _lists(target: Any) -> Iterator[tuple[int, str]]:
    """Those that are there: since when, and where."""
    try:
        found = [one.location() for one in listed(target.io().listPrefix(f"{target.location()}/{FOLDER}/"))]
    except Py4JJavaError as error:
        if "FileNotFound" in str(error.java_exception):
            return  # nothing has ever been written down
        raise
    for location in found:
        moment, _, rest = location.rpartition("/")[2].partition("-")
        if moment.isdigit() and rest.endswith(".json"):
            yield int(moment), location
