"""Names and locations of a relay log's files.

A segment is `{base:020d}-{generation:06d}.SUFFIX`, with the suffix of its format. Its index has the same name
with `.index`. If two segments have the same base, the one with the later generation counts. The other was
left by a fenced writer.
"""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock._core import DecodeError
from penstock.errors import START_OVER, ConfigError, RelayLogCorrupt
from penstock.model.offset import Offset
from penstock.relaylog.segment_format import (
    EARLIEST_FORMAT,
    EARLIEST_SUFFIX,
    SEGMENT_FORMATS,
    SUFFIXES,
    SegmentFormat,
    of_suffix,
)

_NAME = re.compile(rf"^(\d{{20}})-(\d{{6}})\.({'|'.join(SUFFIXES)}|index)$")

DAMAGED_HINT = f"Restore the file. Without a copy, {START_OVER}"


def damaged(error: DecodeError, path: str | None = None) -> RelayLogCorrupt:
    """The error for a segment that cannot be decoded."""
    path = error.path or path or ""
    return RelayLogCorrupt(
        f"The segment {path} cannot be read at offset {error.offset}: {error.reason}.",
        hint=DAMAGED_HINT,
        path=path,
        offset=error.offset,
    )


_CLOCK_TICK_NS = 100_000_000
"""Nanoseconds: much longer than the resolution of file system timestamps. A folder that changed more recently
may change again and keep its timestamp."""

FORMAT = 1
"""How the files of a relay log are laid out."""
RELAY_FILE = "relay.json"
LEASE_FILE = "lease"
STATUS_FILE = "receiver.json"
CONSUMERS_FOLDER = "consumers"
FIRST_OFFSET_FILE = "first-offset"
"""Says where a log begins that has no segments yet. Without it, a log begins at 0."""


@dataclass(frozen=True, order=True)
class SegmentName:
    base: Offset
    generation: int
    suffix: str = field(default=EARLIEST_SUFFIX, compare=False)
    """That of the file. Indexes do not tell it."""

    @classmethod
    def parse(cls, file: str) -> SegmentName | None:
        """The segment to which a file belongs; None for other files."""
        match = _NAME.match(file)
        if match is None:
            return None
        known = {} if match[3] == "index" else {"suffix": match[3]}
        return cls(Offset(int(match[1])), int(match[2]), **known)

    @property
    def file(self) -> str:
        return f"{self.base:020d}-{self.generation:06d}.{self.suffix}"

    @property
    def format(self) -> SegmentFormat:
        return of_suffix(self.suffix)

    @property
    def index(self) -> str:
        return f"{self.base:020d}-{self.generation:06d}.index"


def list_segments(folder: Path) -> list[SegmentName]:
    """Segments that have both files, ordered by base; only the latest generation of each base."""
    files, indexes = set[SegmentName](), set[SegmentName]()
    for path in folder.iterdir():
        if (name := SegmentName.parse(path.name)) is not None:
            (indexes if path.suffix == ".index" else files).add(name)
    complete = sorted(name for name in files if name in indexes)
    return list({name.base: name for name in complete}.values())


class Listing:
    """Lists the segments of a log many times a second. Lists the folder again only if its modification time
    has changed. Two changes within one clock tick have the same time, so a listing is reused only if that
    time was already in the past when the listing was made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: list[SegmentName] = []
        self._changed_ns = 0

    def names(self) -> list[SegmentName]:
        """The segments; empty if the folder does not exist."""
        try:
            changed_ns = self._folder.stat().st_mtime_ns
            if changed_ns != self._changed_ns:
                begun_ns = time.time_ns()
                self._names = list_segments(self._folder)
                self._changed_ns = changed_ns if begun_ns - changed_ns > _CLOCK_TICK_NS else 0
        except FileNotFoundError:
            return []
        return list(self._names)


def leftovers(folder: Path) -> list[Path]:
    """Temporary files, and files of segments that are incomplete or superseded."""
    known = {name for segment in list_segments(folder) for name in (segment.file, segment.index)}
    return [
        path
        for path in folder.iterdir()
        if path.name not in known and (_NAME.match(path.name) or path.suffix == ".tmp")
    ]


def first_offset(folder: Path) -> Offset:
    """The offset at which the first segment of a new log begins."""
    try:
        return Offset(int((folder / FIRST_OFFSET_FILE).read_text("ascii")))
    except FileNotFoundError:
        return Offset(0)


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def read_relay(folder: Path) -> dict[str, Any]:
    """The content of `relay.json`: the log's uuid, its segment format, its source and its start.

    Raises `ConfigError` if there is no relay log, or if this version cannot read its segments. Raises
    `RelayLogCorrupt` if the file is damaged.
    """
    path = folder / RELAY_FILE
    try:
        found = json.loads(path.read_bytes())
        if isinstance(found, dict) and "uuid" in found:
            check_segment_format(folder, found)
            return found
        reason = "it has no uuid"
    except FileNotFoundError:
        raise ConfigError(
            f"{folder} is not a relay log: it has no file {RELAY_FILE}.",
            hint="Start one with `penstock receive FILE`, or check `relay_log.path`.",
        ) from None
    except ValueError as error:
        reason = str(error)
    raise RelayLogCorrupt(f"{path} is damaged: {reason}.", hint=DAMAGED_HINT, path=str(path), offset=0)


def check_writable(folder: Path) -> None:
    """Raises `ConfigError` if the folder contains a relay log whose segments this version cannot read,
    because a writer would cut them in the wrong places. A folder without a readable `relay.json` passes,
    because the receiver reads that file itself and reports what is wrong with it."""
    try:
        found = json.loads((folder / RELAY_FILE).read_bytes())
    except (FileNotFoundError, ValueError):
        return
    if isinstance(found, dict):
        check_segment_format(folder, found)


def check_segment_format(place: object, relay: dict[str, Any]) -> None:
    """Raises `ConfigError` if this version cannot read the segments of the log at `place`."""
    name = relay.get("segment_format", EARLIEST_FORMAT)
    if name not in SEGMENT_FORMATS:
        raise ConfigError(
            f"The relay log {place} has segments of the format {json.dumps(name)}, which this Penstock "
            f"cannot read. It reads {', '.join(SEGMENT_FORMATS)}.",
            hint="Use the version of Penstock that wrote the log, or set relay_log.path to another folder.",
            path=str(place),
            segment_format=name,
        )
