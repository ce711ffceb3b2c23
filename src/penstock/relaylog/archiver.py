"""Writes the archive: copies each closed segment of the relay log into a store, then lets go of old ones.

**Steps for one segment**, and why a crash after any of them is harmless: (1) its data, (2) the spool files of
its prepared XA transactions, (3) its index, (4) the manifest with its name, replaced only if it is still the
one that was read. Only (4) counts for readers. Before it, the objects are not listed, and the next attempt
writes the same bytes again under the same names: a closed segment never changes. If the answer to (4) is
lost, the manifest is read again and says what happened. The last segment of the log is left out, because its
next writer may still cut it; after a clean stop it is complete, and archived too.

**Two receivers never mix.** Each receiver has a generation, which is part of the names of the segments that
it makes. Before it archives anything, it puts its own generation, greater than that of the manifest, into the
manifest, with the same condition. A predecessor that still lives finds another generation there at its next
step (4): it has been fenced, adds nothing, and stops. What it put in steps 1 to 3 has names of its own
generation, which no manifest lists: nobody reads it, and the next receiver removes it. It never replaces an
object that is listed: segments older than itself, which both know, are listed already, so it does not put
them. `archive_lease.py` refuses the second receiver, as long as the first one lives.

**The log that a disk had when it was lost** after the archive's end is not in the archive. The next receiver
requests it from the source again, and gives it offsets again, perhaps other ones: segments begin elsewhere.
So `relay.json` records the place (`archive_restore.py`), and a pipeline that has planned lost log is refused.

**Order of removal.** The archive's retention first takes segments out of the manifest, then deletes their
objects. The cache on the disk loses segments only when the manifest lists them, oldest first, so disk and
archive together have no gap. A segment that could not be archived stays, whatever the sizes.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
import uuid
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from penstock.backoff import Backoff, Schedule
from penstock.config import RelayLogConfig
from penstock.disk.replace import sync
from penstock.errors import ConfigError, LeaseHeld, PenstockError, TransientError
from penstock.model.offset import Offset
from penstock.relaylog import consumers, index, retention
from penstock.relaylog.archive import CONSUMERS, FOLDER, MANIFEST, Archive, Archived, Manifest
from penstock.relaylog.archive_lease import ArchiveLease
from penstock.relaylog.index import Entry
from penstock.relaylog.reader import RelayLog
from penstock.relaylog.segment import CONSUMERS_FOLDER, RELAY_FILE, Listing, SegmentName, read_relay
from penstock.relaylog.spool import PREPARED_FOLDER
from penstock.store.base import Store
from penstock.store.errors import ObjectChanged, ObjectExists

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often the folder is looked at for a segment that was closed."""
TIDY_SECONDS = 30.0
"""How often retention and the cache's limit are applied: they read the folder and the consumers' files."""
STOP_SECONDS = 2.5
"""How long a receiver that stops waits for the archive. Less than it has for its end
(`stop_signals.END_S`)."""
RETRY = Schedule(first_s=1, max_s=60, jitter=0.3)
"""Waits after failures, in seconds. The store has retried by itself before, for two minutes."""
_COPY_BYTES = 8 << 20
"""Bytes of a segment in memory while it is put into the store."""
_KEPT_MIN = 2
"""The newest segments, which always stay on the disk: a receiver and its readers work on them."""


class Archiver:
    """Archives the relay log of `folder`, in a thread of its own. `begin` is called with the receiver's
    generation, once it holds the log's lease. Nothing here stops the receiver, except `failure`: the error of
    a receiver that was fenced."""

    def __init__(self, folder: Path, store: Store, config: RelayLogConfig) -> None:
        self.folder = folder
        self.archive = Archive(store)
        self.config = config
        self.failure: PenstockError | None = None
        self.trouble: PenstockError | None = None
        self.end = Offset(0)
        self._generation = 0
        self._manifest: Manifest | None = None
        self._listing = Listing(folder)
        self._consumers: list[dict[str, object]] | None = None
        self._wake = threading.Event()
        self._stopping = False
        self._clean = False
        self._tidied = float("-inf")
        self._thread = threading.Thread(target=self._run, name="relay-log-archiver", daemon=True)

    @cached_property
    def lease(self) -> ArchiveLease:
        return ArchiveLease(self.folder, self.archive.store)

    def begin(self, generation: int) -> None:
        self._generation = generation
        self._thread.start()

    def stop(self, *, clean: bool) -> None:
        """Waits a short time. `clean`: the log's writer has ended after it committed everything."""
        self._clean = clean
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def report(self) -> dict[str, Any]:
        """For `receiver.json`."""
        trouble = self.failure or self.trouble
        return {
            "url": str(self.archive),
            "end": int(self.end),
            "error": None if trouble is None else trouble.message,
        }

    def _run(self) -> None:
        backoff = Backoff(RETRY)
        while True:
            stopping = self._stopping
            try:
                self.lease.keep()
                self.step(last_too=stopping and self._clean)
                self.trouble = None
                backoff.succeeded()
                wait = LOOK_SECONDS
            except LeaseHeld as error:
                self.failure = error
                break
            except (PenstockError, OSError) as error:
                known = error if isinstance(error, PenstockError) else TransientError(str(error))
                if self.trouble is None or known.message != self.trouble.message:
                    log.warning("the relay log's archive has to wait: %s", known)
                self.trouble = known
                wait = backoff.failed()
            if stopping:
                break
            self._wake.wait(wait)
            self._wake.clear()
        with contextlib.suppress(OSError):
            self.lease.release()  # so that the next one can begin at once

    # steps --------------------------------------------------------------------------------------------------

    def step(self, *, last_too: bool = False) -> None:
        """Archives all segments that are not archived yet. `last_too`: no writer will change the last one."""
        if not (self.folder / RELAY_FILE).exists():
            return
        self.lease.hold(self._generation, lambda: self._stopping)
        manifest = self._manifest or self._take_over()
        listed = self._listing.names()
        if any(name.base >= manifest.end for name in (listed if last_too else listed[:-1])):
            relay_log = RelayLog.open(self.folder)  # knows which of them are closed
            for name in relay_log.segments() if last_too else relay_log.segments()[:-1]:
                if name.base >= manifest.end:
                    manifest = self._put(relay_log, name, manifest)
        if last_too:
            self._note_consumers()
        elif time.monotonic() - self._tidied > TIDY_SECONDS:
            self._tidied = time.monotonic()
            self._note_consumers()
            self._expire()
            self.drop_cached(self.config.cache_size)

    def _take_over(self) -> Manifest:
        """Puts this receiver's generation into the manifest. From then on, predecessors are fenced."""
        relay, found = read_relay(self.folder), self.archive.manifest()
        owner = self.lease.owner(self._generation)
        if found is None:
            manifest = Manifest(relay, self._generation, owner)
        else:
            if found.generation >= self._generation and found.owner.get("id") != owner["id"]:
                raise self.lease.held(found.owner)
            check_same_log(self.folder, found, self.archive)
            generation = max(self._generation, found.generation)
            manifest = replace(found, relay=relay, generation=generation, owner=owner)
        self._store(manifest)
        self._sweep()
        return self._current

    @property
    def _current(self) -> Manifest:
        assert self._manifest is not None
        return self._manifest

    def _store(self, manifest: Manifest) -> None:
        """Replaces the manifest that was read. Raises `LeaseHeld` if this receiver was fenced."""
        token, store = uuid.uuid4().hex, self.archive.store
        data = manifest.encode(token)
        try:
            if manifest.version is None:
                version = store.put_if_absent(MANIFEST, data)
            else:
                version = store.put_if_unchanged(MANIFEST, data, seen=manifest.version)
        except (ObjectChanged, ObjectExists):
            self._manifest = None
            found = self.archive.manifest()
            if found is not None and found.owner.get("id") != manifest.owner["id"]:
                raise self.lease.held(found.owner) from None
            raise TransientError("The archive's manifest has changed; it is read again.") from None
        except PenstockError:
            self._manifest = None  # it may have been stored nevertheless
            raise
        self._manifest = replace(manifest, version=version)
        self.end = manifest.end

    def _put(self, relay_log: RelayLog, name: SegmentName, manifest: Manifest) -> Manifest:
        """Steps 1 to 4 of the module's argument."""
        if manifest.segments and name.base != manifest.end:
            raise ConfigError(
                f"The archive {self.archive} ends at offset {manifest.end}, and the relay log {self.folder} "
                f"continues at {name.base}. What lies between is lost.",
                hint="Give this relay log an archive of its own: `relay_log.archive`.",
            )
        entries = relay_log.entries_of(name)
        if entries[-1].end != entries[-1].committed:
            return manifest  # its next writer will cut it
        size = entries[-1].committed - name.base
        path = self.folder / name.file
        self._upload(path, size, self.archive.data_key(name))
        self._put_spool(name, entries)
        compacted = index.compact(entries, self.config.span_size, name.format)
        self.archive.store.put(self.archive.index_key(name), index.encode(compacted))
        self._store(manifest.with_segment(Archived(name, size, path.stat().st_mtime)))
        return self._current

    def _upload(self, path: Path, size: int, key: str) -> None:
        with open(path, "rb") as file, self.archive.store.upload(key) as upload:
            left = size
            while left > 0:
                data = file.read(min(left, _COPY_BYTES))
                if not data:
                    raise TransientError(f"{path} is shorter than its index says.")
                upload.write(data)
                left -= len(data)

    def _put_spool(self, name: SegmentName, entries: list[Entry]) -> None:
        """The events of XA transactions that are prepared at the segment's end. Those that have ended since
        then may be gone: a later segment has their rows."""
        needed: dict[str, int] = {}
        for one in index.prepared_at_end(entries):
            needed[one.file] = max(needed.get(one.file, 0), one.start + one.length)
        for file, size in needed.items():
            with contextlib.suppress(FileNotFoundError):
                path = self.folder / PREPARED_FOLDER / file
                self._upload(path, size, f"{self.archive.spool_folder(name)}/{file}")

    def _note_consumers(self) -> None:
        """Records the consumers in the archive, so that retention respects them even if the disk is lost on
        which they are registered."""
        known = consumers.described(self.folder)
        if known != self._consumers:
            self.archive.store.put(CONSUMERS, json.dumps(known).encode())
            self._consumers = known

    # removal ------------------------------------------------------------------------------------------------

    def _expire(self) -> None:
        """Deletes segments that no consumer needs any more and that are too old or too many."""
        manifest = self._current
        with consumers.exclusive(self.folder / CONSUMERS_FOLDER) as alone:
            if not alone:
                return
            known = [(one.name, one.bytes, one.closed) for one in manifest.segments]
            newest, size, _ = retention.list_sizes(self.folder)[-1]
            end = Offset(newest.base + size)
            passed = retention.passed_by_all(consumers.offsets(self.folder), end)
            gone = set(retention.expendable(known, passed=passed, now=time.time(), config=self.config))
            if gone:
                self._store(manifest.without(gone))
        for name in gone:
            self._delete(name)

    def _delete(self, name: SegmentName) -> None:
        store = self.archive.store
        spool = [one.key for one in store.objects(self.archive.spool_folder(name))]
        store.delete_many([self.archive.index_key(name), *spool, self.archive.data_key(name)])

    def _sweep(self) -> None:
        """Removes objects that the manifest does not list: of crashes, and of fenced receivers."""
        listed = {one.name for one in self._current.segments}
        store = self.archive.store
        found = [one.key for folder in (FOLDER, PREPARED_FOLDER) for one in store.objects(folder)]
        named = [(key, SegmentName.parse(f"{Path(key.split('/')[1]).stem}.index")) for key in found]
        store.delete_many(key for key, name in named if name is not None and name not in listed)

    def drop_cached(self, bytes_max: int) -> None:
        """Removes archived segments from the disk until the closed ones have at most `bytes_max`."""
        manifest = self._manifest
        if manifest is None:
            return
        archived = {one.name for one in manifest.segments}
        first = manifest.segments[0].name.base if manifest.segments else Offset(0)
        segments = retention.list_sizes(self.folder)[:-_KEPT_MIN]
        total = sum(size for _, size, _ in segments)
        gone = []
        for name, size, _ in segments:
            expired = name.base < first  # retention has deleted it from the archive
            if not expired and (name not in archived or total <= bytes_max):
                break
            gone.append(name)
            total -= size
        for name in gone:
            for file in (name.index, name.file):
                (self.folder / file).unlink(missing_ok=True)
        if gone:
            sync(self.folder)


def check_same_log(folder: Path, manifest: Manifest, archive: Archive) -> None:
    """Raises `ConfigError` if the relay log on the disk does not continue what is archived."""
    here = read_relay(folder)
    if here["uuid"] != manifest.relay["uuid"]:
        raise ConfigError(
            f"The archive {archive} belongs to another relay log: its uuid is {manifest.relay['uuid']}, that "
            f"of {folder} is {here['uuid']}.",
            hint="Give each relay log an archive of its own: `relay_log.archive`.",
        )
    relay_log = RelayLog.open(folder)
    segments = relay_log.segments()
    if not manifest.segments or not segments:
        return
    known = {one.name.base: one.name for one in manifest.segments}
    other = [name for name in segments if known.get(name.base, name) != name]
    follows = manifest.end == relay_log.end or manifest.end in {name.base for name in segments}
    if other or not follows:
        raise ConfigError(
            f"The relay log {folder} (offsets {segments[0].base} to {relay_log.end}) does not "
            f"continue its archive {archive}, which ends at {manifest.end}: another receiver has gone on "
            "from there, or an older copy of the folder was restored.",
            hint=f"Move {folder} away. The receiver then goes on from the archive.",
            path=str(folder),
        )
