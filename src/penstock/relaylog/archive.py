"""The archive of a relay log: its closed segments in a store, for readers.

| object | content |
|---|---|
| `log.json` | the manifest: content of `relay.json`, who writes the archive, the list of its segments |
| `segments/…` | each closed segment under its name, byte for byte, up to the next one's base |
| `segments/….index` | its index |
| `consumers.json` | who reads the log, and from where, as of the last half minute |
| `prepared/…/*.xa` | the spool files of transactions (XA) that are prepared at the segment's end |

Only what the manifest lists counts. `archiver.py` writes the archive, and argues why no two receivers mix
theirs in it. Offsets, entries and their meaning are those of the log on the disk (`reader.py`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.errors import ConfigError, RelayLogCorrupt
from penstock.model.offset import Offset
from penstock.relaylog import index
from penstock.relaylog.index import Entry
from penstock.relaylog.segment import DAMAGED_HINT, SegmentName, check_segment_format
from penstock.relaylog.segment_format import suffix_of_log
from penstock.relaylog.spool import PREPARED_FOLDER
from penstock.store.base import Store, Version
from penstock.store.errors import ObjectMissing

MANIFEST = "log.json"
CONSUMERS = "consumers.json"
FOLDER = "segments"
FORMAT = 1


@dataclass(frozen=True)
class Archived:
    """A segment of the archive. `bytes`: of its data; it ends at `name.base + bytes`. `closed`: when it was
    written, in seconds since 1970."""

    name: SegmentName
    bytes: int
    closed: float

    @property
    def end(self) -> Offset:
        return Offset(self.name.base + self.bytes)

    def to_json(self) -> list[Any]:
        return [int(self.name.base), self.name.generation, self.bytes, round(self.closed, 3)]

    @classmethod
    def from_json(cls, fields: list[Any], suffix: str) -> Archived:
        base, generation, size, closed = fields
        return cls(SegmentName(Offset(int(base)), int(generation), suffix), int(size), float(closed))


@dataclass(frozen=True)
class Manifest:
    """The list of an archive's segments. `relay`: the content of `relay.json`. `version`: that of the object
    from which the manifest was read."""

    relay: dict[str, Any]
    generation: int
    owner: dict[str, Any]
    segments: tuple[Archived, ...] = ()
    version: Version | None = field(default=None, compare=False)

    @property
    def end(self) -> Offset:
        return self.segments[-1].end if self.segments else Offset(0)

    def with_segment(self, segment: Archived) -> Manifest:
        return replace(self, segments=(*self.segments, segment))

    def without(self, gone: set[SegmentName]) -> Manifest:
        return replace(self, segments=tuple(one for one in self.segments if one.name not in gone))

    def encode(self, token: str) -> bytes:
        """The content of the object. `token`: a unique text, so that the contents of two writers are never
        equal."""
        fields = {
            "format": FORMAT,
            "relay": self.relay,
            "generation": self.generation,
            "owner": self.owner,
            "token": token,
            "segments": [segment.to_json() for segment in self.segments],
        }
        return json.dumps(fields, ensure_ascii=False).encode()


class Archive:
    """The objects of an archive. Thread-safe. Methods raise the errors of `store/errors.py`."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __str__(self) -> str:
        return self.store.location.url()

    @staticmethod
    def data_key(name: SegmentName) -> str:
        return f"{FOLDER}/{name.file}"

    @staticmethod
    def index_key(name: SegmentName) -> str:
        return f"{FOLDER}/{name.index}"

    @staticmethod
    def spool_folder(name: SegmentName) -> str:
        """The folder of the spool files that are needed after the segment."""
        return f"{PREPARED_FOLDER}/{name.index.removesuffix('.index')}"

    def manifest(self) -> Manifest | None:
        """The archive's manifest. None: there is no archive yet. Raises `RelayLogCorrupt`, or `ConfigError`
        if this version cannot read it."""
        try:
            found = self.store.get(MANIFEST)
        except ObjectMissing:
            return None
        url = self.store.location.url(MANIFEST)
        try:
            fields = json.loads(found.data)
            number = int(fields["format"])
            if number == FORMAT:
                suffix = suffix_of_log(fields["relay"])
                manifest = Manifest(
                    fields["relay"],
                    int(fields["generation"]),
                    dict(fields["owner"]),
                    tuple(Archived.from_json(one, suffix) for one in fields["segments"]),
                    found.info.version,
                )
                str(manifest.relay["uuid"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise RelayLogCorrupt(
                f"{url} is damaged: {type(error).__name__}.", hint=DAMAGED_HINT, path=url, offset=0
            ) from None
        if number != FORMAT:
            raise ConfigError(
                f"The archive {self} has the format {number}, which this Penstock cannot read.",
                hint="Use the version of Penstock that wrote it.",
            )
        check_segment_format(str(self), manifest.relay)
        return manifest

    def consumers(self) -> list[object]:
        """What `consumers.described` said of the log's readers. Empty if that is not known."""
        try:
            found = json.loads(self.store.get(CONSUMERS).data)
        except (ObjectMissing, ValueError, RecursionError):
            return []
        return found if isinstance(found, list) else []

    def version(self) -> Version | None:
        """Changes with the manifest."""
        try:
            return self.store.stat(MANIFEST).version
        except ObjectMissing:
            return None

    def entries(self, name: SegmentName) -> list[Entry]:
        """The index of a segment. Raises `ObjectMissing`."""
        key = self.index_key(name)
        data = self.store.get(key).data
        return index.parse_lines(data, self.store.location.url(key))
