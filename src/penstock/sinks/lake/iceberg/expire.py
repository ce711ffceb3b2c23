"""Old snapshots are forgotten at once, and what only they named is removed some time later.

Every commit writes down all snapshots of its table, and small commits make several a second, so only some
minutes of them can be kept. A query over a large table may take longer, and reads the files of the snapshot
that it began with. Iceberg would remove these together with the snapshot; here their names are written down
in the table's own directory, and a later call removes them.

Iceberg has two ways to find what nobody needs any more. The one it chooses by itself (incremental cleanup)
goes by the files that expired snapshots removed. It takes a file of deletion vectors for removed when the
first of its vectors is, though vectors of other data files are still in it, and it misses other files. The
other one compares with what the remaining snapshots hold. It is taken where snapshots are expired by number.

A process that is killed between the two, or while it writes the list, leaves files that nothing names, as a
killed writer does.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from py4j.protocol import Py4JJavaError

from penstock.sinks.lake.iceberg.files import Classes, each, listed
from penstock.sinks.lake.iceberg.registration import IcebergOptions

log = logging.getLogger(__name__)

FOLDER = "expired"
"""In the table's directory: a file for each time, named by when that was (milliseconds)."""
VECTORS = ".puffin"
"""How names of files with deletion vectors end, also of those that Spark writes."""


def expire(classes: Classes, target: Any, options: IcebergOptions) -> None:
    """Snapshots older than the configured age go, and those beyond the configured number, but for the newest
    ones."""
    now_ms = int(time.time() * 1000)
    expired = _expired(target, options, now_ms)
    if expired:
        change = target.expireSnapshots()
        for number in expired:
            change.expireSnapshotId(number)
        collected, note = classes.collector()
        # Without these two, defaults of the table would expire others as well.
        change.expireOlderThan(0).retainLast(options.snapshots_keep).deleteWith(note).commit()
        target.refresh()
        if not classes.lists_files(target.io()):
            for name in collected:
                target.io().deleteFile(name)
            return
        if len(collected):
            _write(target, f"{now_ms}-{uuid.uuid4()}.json", list(collected))
    if not classes.lists_files(target.io()):
        return
    for moment_ms, location in _lists(target):
        if moment_ms <= now_ms - options.files_age:
            for name in _unneeded(classes, target, _read(target, location)):
                target.io().deleteFile(name)
            target.io().deleteFile(location)  # last: what is cut off here is done again


def _expired(target: Any, options: IcebergOptions, now_ms: int) -> list[int]:
    """Numbers of the snapshots that go. One that has a name (a tag, a branch) stays."""
    newest_first = [(one.timestampMillis(), one.snapshotId()) for one in target.snapshots()][::-1]
    before_ms = now_ms - options.snapshots_age
    if len(newest_first) > options.snapshots_max:
        before_ms = max(before_ms, newest_first[options.snapshots_max][0])
    named = {reference.snapshotId() for reference in target.refs().values()}
    rest = newest_first[options.snapshots_keep :]
    return [number for moment_ms, number in rest if moment_ms < before_ms and number not in named]


def _unneeded(classes: Classes, target: Any, names: Sequence[str]) -> list[str]:
    """Of the files in a list: those that no snapshot needs. Lists of earlier versions were made by the
    incremental cleanup.

    Only files with deletion vectors can be needed still. Their vectors were added by one commit, which is
    expired or has a name (a tag), so a vector that any remaining snapshot holds is held by the first of an
    unbroken row of them, or by one that has a name.
    """
    if not any(name.endswith(VECTORS) for name in names):
        return list(names)
    remaining = {one.snapshotId(): one for one in target.snapshots()}
    named = {reference.snapshotId() for reference in target.refs().values()}
    first = {number for number, one in remaining.items() if one.parentId() not in remaining}
    needed: set[str] = set()
    for number in first | (named & remaining.keys()):
        for manifest in remaining[number].deleteManifests(target.io()):
            entries = classes.delete_manifest(manifest, target.io(), target.specs())
            needed |= {one.location() for one in each(entries)}
    return [name for name in names if name not in needed]


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
