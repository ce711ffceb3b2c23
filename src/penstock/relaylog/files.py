"""The files of a relay log for its readers: those on the disk, and those that only the archive has.

The disk has the newest segments, always without gaps. The archive has closed segments, and may have older
ones that the disk's cache has dropped. So the log is the archive up to the first segment on the disk, and
then the disk. Without a folder, the log is what the archive has.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.config import PipelineConfig
from penstock.errors import ConfigError, RelayLogCorrupt
from penstock.model.offset import Offset, SegmentSource
from penstock.relaylog.archive import Archive, Manifest
from penstock.relaylog.index import Entry, SegmentIndex
from penstock.relaylog.segment import DAMAGED_HINT, RELAY_FILE, Listing, SegmentName, read_relay
from penstock.relaylog.segment_bytes import LocalOrArchived, Part
from penstock.relaylog.status import read_status
from penstock.store.base import Store, Version
from penstock.store.errors import ObjectMissing
from penstock.store.opening import open_store

if TYPE_CHECKING:
    from penstock._core import File

LOOK_SECONDS = 1.0
"""How often a reader without a folder looks whether the archive has grown."""


@dataclass(frozen=True)
class LogPlace:
    """The places of a relay log. At least one of both is set."""

    folder: Path | None
    archive: Store | None = None

    @classmethod
    def of(cls, config: PipelineConfig) -> LogPlace:
        """The relay log of a pipeline. Makes no request."""
        url = config.relay_log.archive_url
        return cls(config.relay_log_path, None if url is None else config.store.open(url))

    @classmethod
    def at(cls, path: str | Path) -> LogPlace:
        """The relay log in a folder, with the archive into which its receiver has put what the folder has no
        more. Or the archive at a URL. Finds credentials in the environment. Makes no request."""
        if isinstance(path, str) and "://" in path:
            return cls(None, open_store(path))
        folder = Path(path)
        archive = read_status(folder).get("archive")
        url = archive.get("url") if isinstance(archive, dict) else None
        return cls(folder, open_store(url) if isinstance(url, str) else None)

    @property
    def or_archive(self) -> LogPlace:
        """This place, or only its archive if this machine has no folder of the log."""
        if self.archive is None or self.folder is None or (self.folder / RELAY_FILE).exists():
            return self
        return LogPlace(None, self.archive)

    @property
    def files(self) -> LogFiles:
        return LogFiles(self)

    def __str__(self) -> str:
        if self.folder is not None:
            return str(self.folder)
        return self.archive.location.url() if self.archive is not None else ""


class LogFiles:
    """Not thread-safe."""

    def __init__(self, place: LogPlace) -> None:
        self.place = place
        self._folder = place.folder
        self._archive = None if place.archive is None else Archive(place.archive)
        self._listing = None if place.folder is None else Listing(place.folder)
        self._manifest: Manifest | None = None
        self._first: SegmentName | None = None
        self._looked = float("-inf")

    def relay(self) -> dict[str, Any]:
        """The content of `relay.json`. Raises `ConfigError` if there is no relay log."""
        if self._folder is not None and (self._archive is None or (self._folder / RELAY_FILE).exists()):
            return read_relay(self._folder)
        self._look()
        if self._manifest is None:
            raise ConfigError(
                f"{self.place} is not a relay log, and there is no archive of one in {self._archive}.",
                hint="Start a receiver with `penstock receive FILE`, or check `relay_log.archive`.",
            )
        return self._manifest.relay

    def names(self) -> list[SegmentName]:
        """All segments, ordered by base."""
        local = self._listing.names() if self._listing is not None else []
        if self._archive is None:
            return local
        first = local[0] if local else None
        known = self._manifest is not None
        if not known or first != self._first or (first is None and self._is_old):
            self._look()
            self._first = first
        archived = [one.name for one in self._manifest.segments] if self._manifest else []
        if first is None:
            return archived
        older = [name for name in archived if name.base < first.base]
        assert self._manifest is not None or not older
        # An archive that ends before the disk begins has a hole, so it is of no use.
        return [*older, *local] if self._manifest and self._manifest.end >= first.base else local

    def look_again(self) -> None:
        """Makes the next `names` look again, so that it finds what retention has deleted from the archive."""
        self._first = None
        self._looked = float("-inf")

    @property
    def _is_old(self) -> bool:
        return time.monotonic() - self._looked > LOOK_SECONDS

    def _look(self) -> None:
        if self._archive is not None:
            self._manifest = self._archive.manifest()
            self._looked = time.monotonic()

    # one segment --------------------------------------------------------------------------------------------

    def path(self, name: SegmentName) -> str:
        """The segment's path, or its URL. For errors and plans; `file` and `source` find the bytes."""
        if self._folder is not None:
            return str(self._folder / name.file)
        assert self._archive is not None
        return self._archive.store.location.url(self._archive.data_key(name))

    def newest(self, name: SegmentName) -> SegmentIndex | ArchivedIndex:
        """The index of a segment that may grow."""
        if self._folder is not None and (self._archive is None or (self._folder / name.index).exists()):
            return SegmentIndex(self._folder, name)
        assert self._archive is not None
        return ArchivedIndex(self._archive, name)

    def entries(self, name: SegmentName) -> list[Entry]:
        """The index of a segment. Raises `FileNotFoundError` if neither the disk nor the archive has it."""
        if self._folder is not None:
            segment = SegmentIndex(self._folder, name)
            try:
                segment.read()
                return segment.entries
            except FileNotFoundError:
                if self._archive is None:
                    raise
        assert self._archive is not None
        try:
            return self._archive.entries(name)
        except ObjectMissing:
            raise FileNotFoundError(self.path(name)) from None

    def is_gone(self, name: SegmentName) -> bool:
        """Whether the segment is on no disk. False if it may be in the archive."""
        return self._archive is None and not Path(self.path(name)).exists()

    def source(self, name: SegmentName) -> SegmentSource | None:
        """For splits: where the bytes of the segment are."""
        if self._archive is None:
            return None
        return LocalOrArchived(
            str(self._folder / name.file) if self._folder is not None else None,
            self._archive.store,
            self._archive.data_key(name),
        )

    def file(self, name: SegmentName, start: Offset, end: Offset) -> File:
        """What the core reads the segment from. The part `(start, end]` will be read."""
        source = self.source(name)
        if source is None:
            return self.path(name)
        file: File = source.open(Part(max(0, start - name.base), max(0, end - name.base)))
        return file


class ArchivedIndex:
    """The index of the last segment of an archive. It never changes; `stamp` does when the archive grows."""

    def __init__(self, archive: Archive, name: SegmentName) -> None:
        self.name = name
        self.entries: list[Entry] = []
        self._archive = archive
        self._stamp: tuple[int, int] = (0, 0)
        self._version: Version | None = None
        self._looked = float("-inf")

    def read(self) -> None:
        """Raises `FileNotFoundError` if retention has deleted the segment."""
        if self.entries:
            return
        try:
            self.entries = self._archive.entries(self.name)
        except ObjectMissing as error:
            manifest = self._archive.manifest()
            if manifest is None or self.name not in {one.name for one in manifest.segments}:
                raise FileNotFoundError(self._archive.index_key(self.name)) from None
            raise RelayLogCorrupt(
                f"The archive has lost an object: {error.message}", hint=DAMAGED_HINT,
                path=self._archive.index_key(self.name), offset=int(self.name.base),
            ) from None  # fmt: skip

    def stamp(self) -> tuple[int, int]:
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked = time.monotonic()
            version = self._archive.version()
            if version != self._version:
                self._version = version
                self._stamp = (0, self._stamp[1] + 1)
        return self._stamp
