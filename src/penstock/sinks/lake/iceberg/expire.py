"""Expires old snapshots, and deletes files that only they used some time later.

Every commit rewrites the list of all snapshots, and small commits make several a second. So only some minutes
of snapshots can be kept. A query over a large table may take longer, and reads the files of the snapshot with
which it started. Iceberg would delete these files together with the snapshot. Here their names are written to
a list in the table's directory, and a later call deletes them.

Iceberg has two ways to find files that are no longer needed. The one that it chooses itself (incremental
cleanup) looks at files that expired snapshots removed. It deletes a file of deletion vectors once the first
vector in it is removed, although other vectors in it may still be needed, and it misses other files. The
second way compares with the files of the remaining snapshots. Iceberg uses it if snapshots are expired by id,
which is done here.

If the process is killed before the list is complete, files are left that no snapshot and no list names.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JJavaError

from penstock.sinks.lake.iceberg.branch import OnBranch
from penstock.sinks.lake.iceberg.catalog import may_remove_files
from penstock.sinks.lake.iceberg.files import Classes, closeable_items, java_items
from penstock.sinks.lake.iceberg.options import IcebergOptions

log = logging.getLogger(__name__)

FOLDER = "expired"
"""Directory of the lists, in the table's directory. The name of a list starts with its time in
milliseconds."""
VECTORS = ".puffin"
"""Suffix of files with deletion vectors, also of those that Spark writes."""


def expire(classes: Classes, target: Any, options: IcebergOptions) -> None:
    """Expires snapshots by the options `snapshots_age`, `snapshots_max` and `snapshots_keep`, and deletes
    files by `files_age`."""
    now_ms = int(time.time() * 1000)
    expired = _expired(target, options, now_ms) if may_remove_files(target) else []
    if expired:
        change = target.expireSnapshots()
        for number in expired:
            change.expireSnapshotId(number)
        collected, note = classes.collector()
        # Without these two, defaults of the table would expire other snapshots as well.
        change.expireOlderThan(0).retainLast(options.snapshots_keep).deleteWith(note)
        # It reads the manifests of all snapshots. With one thread per core, small commits wait for a second.
        thread = classes.one_thread()
        try:
            change.planWith(thread).commit()
        finally:
            thread.shutdown()
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
            target.io().deleteFile(location)  # last: after a kill, the list is worked off again


def _expired(target: Any, options: IcebergOptions, now_ms: int) -> list[int]:
    """Ids of the snapshots to expire. A snapshot with a tag or branch is kept."""
    snapshots = list(target.snapshots())[::-1]
    newest_first = [(one.timestampMillis(), one.snapshotId()) for one in snapshots]
    before_ms = now_ms - options.snapshots_age
    if len(newest_first) > options.snapshots_max:
        before_ms = max(before_ms, newest_first[options.snapshots_max][0])
    named = {reference.snapshotId() for reference in target.refs().values()}
    if isinstance(target, OnBranch):
        named |= _unpublished(target, {one.snapshotId(): one.parentId() for one in snapshots}, options)
    rest = newest_first[options.snapshots_keep :]
    return [number for moment_ms, number in rest if moment_ms < before_ms and number not in named]


def _unpublished(target: OnBranch, parents: Mapping[int, int | None], options: IcebergOptions) -> set[int]:
    """The snapshots of the branch since that of main, without which Iceberg would not fast-forward main. At
    most `snapshots_max`."""
    main, at = target.refs().get("main"), target.currentSnapshot()
    if main is None or at is None:
        return set()  # main will begin with the branch's newest snapshot
    found: list[int] = []
    number = at.snapshotId()
    while number is not None and number != main.snapshotId():
        found.append(number)
        number = parents.get(number)
    if len(found) > options.snapshots_max:
        log.warning(
            "%s: its branch %s has more than %d commits that main lacks (`sink.snapshots_max`). Older "
            "ones expire, and then main cannot be fast-forwarded any more: use `set_current_snapshot` with "
            "`ref` once, and publish more often.",
            target.name(), target.branch, options.snapshots_max,
        )  # fmt: skip
    return set(found[: options.snapshots_max])


def _unneeded(classes: Classes, target: Any, names: Sequence[str]) -> list[str]:
    """The files in a list that no snapshot needs. Lists that earlier versions of Penstock wrote come from the
    incremental cleanup, so they may contain files that are needed.

    Only files with deletion vectors can be. One commit added all vectors of such a file, and that commit is
    expired or has a tag. So it is enough to look at the first snapshot of each unbroken series, and at those
    with a tag.
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
            needed |= {one.location() for one in closeable_items(entries)}
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
        log.warning("%s is incomplete: the files that it lists are not deleted.", location)
        return []
    finally:
        stream.close()
    return found


def _lists(target: Any) -> Iterator[tuple[int, str]]:
    """The lists that exist: time in milliseconds, and location."""
    try:
        found = [
            one.location() for one in java_items(target.io().listPrefix(f"{target.location()}/{FOLDER}/"))
        ]
    except Py4JJavaError as error:
        if "FileNotFound" in str(error.java_exception):
            return  # no list has ever been written
        raise
    for location in found:
        moment, _, rest = location.rpartition("/")[2].partition("-")
        if moment.isdigit() and rest.endswith(".json"):
            yield int(moment), location
