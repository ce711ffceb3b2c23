"""Begins a relay log on an empty disk where its archive ends.

Only the last segment is fetched, with its index, its spool files and the list of the log's consumers: a
receiver needs no more, and readers find the other segments in the archive. `relay.json` is written last. It
makes the folder a relay log, so a restore that was killed is made again.

What another disk had after the archive's end is lost. Its offsets will be given again, perhaps to other
events. So `relay.json` records each restore in `forks`: `[offset, id]`, with an id of its own. A pipeline
stores the forks of the log that it plans. Two logs with one uuid are the same up to the first fork that only
one of them has (`lost_after`). After a clean end of the last receiver nothing is behind the archive's end,
and the fork concerns nobody.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.disk.replace import replace_by, replace_file
from penstock.errors import TransientError
from penstock.model.offset import Offset
from penstock.relaylog import consumers
from penstock.relaylog.archive import Archive, Archived, Manifest
from penstock.relaylog.archiver import Archiver, check_same_log
from penstock.relaylog.segment import RELAY_FILE, SegmentName, list_segments
from penstock.relaylog.spool import PREPARED_FOLDER
from penstock.store.base import Store

log = logging.getLogger(__name__)

ENDLESS = Offset(2**63 - 1)

_COPY_BYTES = 8 << 20
"""Bytes in memory while a segment is fetched."""


def prepare(archiver: Archiver, stopping: Callable[[], bool] = lambda: False) -> int:
    """Must be called with the lock of the folder, before the log is recovered. Fetches the end of the
    archive if the folder has no relay log. Returns the generation of the archive's last writer: the caller's
    must be greater. Waits until the archive's lease is free, and leaves it to the archiver to take it.

    Raises `LeaseHeld` while another receiver writes the archive, and `ConfigError` if the folder's log does
    not continue it. Without an answer of the store, a folder with a log is used as it is; an empty one raises
    `TransientError`, because a new log must not be begun beside an archive.
    """
    folder, archive = archiver.folder, archiver.archive
    try:
        if archive.manifest() is None:
            return 0
        archiver.lease.wait_until_free(stopping)
        manifest = archive.manifest()
    except TransientError as error:
        if stopping() or not (folder / RELAY_FILE).exists():
            raise
        log.warning("the relay log's archive cannot be read now: %s", error)
        return 0
    if manifest is None:
        return 0
    if (folder / RELAY_FILE).exists():
        check_same_log(folder, manifest, archive)
    else:
        _restore(folder, archive, manifest)
    return manifest.generation


def _restore(folder: Path, archive: Archive, manifest: Manifest) -> None:
    for path in folder.iterdir():
        if SegmentName.parse(path.name) is not None or path.suffix == ".tmp":
            path.unlink()  # of a restore that was killed
    if manifest.segments:
        _fetch(folder, archive, manifest.segments[-1])
        assert [one.base for one in list_segments(folder)] == [manifest.segments[-1].name.base]
    consumers.restore(folder, archive.consumers(), end=manifest.end)
    forks = [*forks_of(manifest.relay), [int(manifest.end), uuid.uuid4().hex]]
    relay = {**manifest.relay, "forks": forks}
    replace_file(folder / RELAY_FILE, json.dumps(relay, indent=1).encode(), durable=True)
    log.warning(
        "%s has no relay log; it goes on from the archive %s at offset %d", folder, archive, manifest.end
    )


def _fetch(folder: Path, archive: Archive, segment: Archived) -> None:
    name, store = segment.name, archive.store
    spool = folder / PREPARED_FOLDER
    for one in store.objects(archive.spool_folder(name)):
        spool.mkdir(exist_ok=True, mode=0o700)
        _fetch_object(store, one.key, one.size, spool / Path(one.key).name)
    _fetch_object(store, archive.data_key(name), segment.bytes, folder / name.file)
    replace_file(folder / name.index, store.get(archive.index_key(name)).data, durable=True)


def _fetch_object(store: Store, key: str, size: int, path: Path) -> None:
    draft = path.with_name(f"{path.name}.tmp")
    with contextlib.suppress(FileNotFoundError):
        draft.unlink()
    draft.touch(mode=0o600)
    with open(draft, "wb") as file:
        for start in range(0, size, _COPY_BYTES):
            file.write(store.get_range(key, start, min(size, start + _COPY_BYTES)))
    replace_by(path, draft)


def forks_of(relay: dict[str, Any]) -> list[list[Any]]:
    """The forks of a log, in order. `relay`: the content of its `relay.json`."""
    return [list(fork) for fork in relay.get("forks", ())]


def identity_of(relay: dict[str, Any]) -> str:
    """An identity of a log since its last restore. In logs with equal ones, an offset means the same
    place."""
    forks = forks_of(relay)
    return f"{relay['uuid']}+{forks[-1][1]}" if forks else str(relay["uuid"])


def survives(relay: dict[str, Any], identity: str) -> Offset | None:
    """The offset up to which this log has the same bytes as the log with that identity; `ENDLESS`: it is that
    log. None: it is another log."""
    log_id, _, fork = identity.partition("+")
    forks = forks_of(relay)
    known = [str(one[1]) for one in forks]
    if log_id != relay["uuid"] or (fork and fork not in known):
        return None
    since = forks[known.index(fork) + 1 :] if fork else forks
    return Offset(min((int(one[0]) for one in since), default=ENDLESS))


def lost_after(relay: dict[str, Any], *, position: Offset, known: list[list[Any]]) -> Offset | None:
    """The offset after which the log that a pipeline has read was lost. None: nothing that it has read was.
    `relay`: the content of `relay.json`. `position`: how far the pipeline has planned; `known`: the forks of
    the log that it has planned."""
    for here, there in itertools.zip_longest(forks_of(relay), known):
        if here != there:
            offset = min(int(fork[0]) for fork in (here, there) if fork is not None)
            return Offset(offset) if position > offset else None
    return None
