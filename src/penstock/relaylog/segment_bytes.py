"""Where the bytes of a segment are for whoever reads it: on the local disk, in the archive, or with the task.

A `Split` names its segment by a path. `Split.source` says where its bytes are: `SegmentSource.open` returns
what the core reads from (`_core.File`). Without a source, the path is a file of this machine.

**On the driver, and where all tasks run on its machine**, a segment is read from the disk as long as it is
there, and from the archive when the cache has dropped it (`LocalOrArchived`). The core decides that when it
opens the file. A file that is open stays readable while it is deleted.

**Executors of other machines** do not see that disk. What crosses to them is decided when a source is
pickled, so a step that the driver does by itself never pays for it:

- A segment in the archive is read from there, by ranges (`InStore`).
- Of another one (the log's newest part), the bytes of the splits travel with the task (`Carried`), up to
  `CARRIED_BYTES_MAX` per segment. More is put into one object below `staging`, which is removed after the
  epoch (`InStore`).

**What a decoder reads of a split** beside its bytes: the file's head, the events of the preamble, and, at the
end of a split inside an XA transaction, the headers up to that transaction's end. So what is taken along
reaches to `until`, the end of the epoch's range: a transaction end, and no transaction spans segments.
"""

from __future__ import annotations

import os
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import RelayLogCorrupt, TransientError
from penstock.model.offset import Offset, Split
from penstock.relaylog.read_ahead import ReadAhead
from penstock.store.base import Store

if TYPE_CHECKING:
    from penstock._core import File, RangedFile


@dataclass(frozen=True)
class Part:
    """A part `[start, end)` of a segment's file, as positions in it."""

    start: int
    end: int


BLOCK_BYTES = 4 << 20
"""One request for this much: S3 needs 20 to 50 ms for the first byte, and as long again for the rest."""
CACHE_BYTES = 64 << 20
"""Blocks of one segment in memory: those of a split of `epoch.task_bytes`. A decoder of layout `latest` goes
back in its split, and would fetch it again."""
OPEN_MAX = 2
"""Segments whose blocks are kept at the same time, per process."""
CARRIED_BYTES_MAX = 4 << 20
"""Bytes of one segment that travel in a task's own description. Spark sends that once to each executor."""
_WHOLE = Part(64 << 10, 1 << 62)
"""All of a file but its head, which is fetched alone."""
_COPY_BYTES = 8 << 20
"""Bytes in memory while a part is put into a store."""

_HEADER = struct.Struct("<IBIIIH")
"""The header of an event: timestamp, type, server id, size, end position, flags."""


@dataclass(frozen=True)
class OpenSplit:
    """Arguments of the core's decoders."""

    file: File
    base: Offset
    start: Offset
    end: Offset
    preamble: tuple[tuple[File, Offset, Offset], ...]

    @property
    def place(self) -> tuple[File, Offset, Offset, Offset]:
        return self.file, self.base, self.start, self.end


def opened(split: Split) -> OpenSplit:
    """The split as the core reads it, in this process."""
    part = Part(max(0, split.start - split.base), max(0, split.end - split.base))
    file: File = split.path if split.source is None else split.source.open(part)
    preamble = tuple(
        (file if path == split.path else path, base, offset) for path, base, offset in split.preamble
    )
    return OpenSplit(file, split.base, split.start, split.end, preamble)


@dataclass(frozen=True)
class InStore:
    """A segment that is an object, or whose `pieces` are one after the other in an object.

    `size`: bytes of the segment's file, or of what there is of it. `pieces`: None for the whole file."""

    store: Store
    key: str
    size: int
    pieces: tuple[Part, ...] | None = None

    @property
    def name(self) -> str:
        return self.store.location.url(self.key)

    def open(self, part: Part) -> RangedFile:
        return _ranged(self.name, self.size, part, self._whole if self.pieces is None else self._pieces)

    def _whole(self, start: int, end: int) -> memoryview:
        return self.store.get_range(self.key, start, end)

    def _pieces(self, start: int, end: int) -> bytes:
        assert self.pieces is not None
        return _filled(self.pieces, start, end, self._whole)


@dataclass(frozen=True)
class Carried:
    """A segment of which some pieces travel with the task, one after the other in `data`."""

    name: str
    size: int
    pieces: tuple[Part, ...]
    data: bytes

    def open(self, part: Part) -> RangedFile:
        view = memoryview(self.data)
        return _ranged(
            self.name, self.size, part,
            lambda start, end: _filled(self.pieces, start, end, lambda first, last: view[first:last]),
        )  # fmt: skip


@dataclass(frozen=True)
class LocalOrArchived:
    """A segment on the disk of this machine. If it is not there any more, it is in the archive. `path`: None
    if this machine has no folder of the log.

    Blocks are laid out alike for all splits: a task that reads the log of many tables here fetches each block
    once."""

    path: str | None
    store: Store
    key: str

    def open(self, part: Part) -> RangedFile:
        try:
            size = None if self.path is None else Path(self.path).stat().st_size
        except FileNotFoundError:
            size = None
        if size is None:
            size = self.store.stat(self.key).size
        url = self.store.location.url(self.key)
        return _ranged(
            url, size, _WHOLE, lambda start, end: self.store.get_range(self.key, start, end), self.path
        )


_open: OrderedDict[Any, RangedFile] = OrderedDict()
_guard = threading.Lock()
os.register_at_fork(after_in_child=_open.clear)


def _ranged(
    name: str, size: int, part: Part, fetch: Callable[[int, int], Any], local: str | None = None
) -> RangedFile:
    """The file, with the blocks that readers of it in this process have fetched before."""
    from penstock._core import RangedFile

    key = (name, size, part, local)
    with _guard:
        if (found := _open.get(key)) is not None:
            _open.move_to_end(key)
            return found
        start, end = min(part.start, size), min(part.end, size)
        fetch = ReadAhead(fetch, start=start, end=end, block_bytes=BLOCK_BYTES)
        file = RangedFile(
            name,
            size,
            fetch,
            start=start,
            end=end,
            block_bytes=BLOCK_BYTES,
            cache_bytes=CACHE_BYTES,
            local=local,
        )
        _open[key] = file
        if len(_open) > OPEN_MAX:
            _open.popitem(last=False)
        return file


def _filled(
    pieces: Sequence[Part], start: int, end: int, read: Callable[[int, int], bytes | memoryview]
) -> bytes:
    """The bytes of a range. What lies in no piece is zero: no decoder takes that for an event."""
    found = bytearray(end - start)
    at = 0
    for piece in pieces:
        first, last = max(start, piece.start), min(end, piece.end)
        if first < last:
            found[first - start : last - start] = read(at + first - piece.start, at + last - piece.start)
        at += piece.end - piece.start
    return bytes(found)


# what is taken along ------------------------------------------------------------------------------------


def pieces_of(path: str, splits: Sequence[Split], until: Offset) -> tuple[Part, ...]:
    """What decoders of the splits read of a segment's file: in order, without overlaps. Raises
    `RelayLogCorrupt`."""
    base = splits[0].base
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = min(split.start for split in splits) - base
        end = min(max(until, *(split.end for split in splits)) - base, size)
        found = [Part(0, 4), _event_at(file, path, 4), Part(max(4, start), end)]
        offsets = {offset for split in splits for _, other, offset in split.preamble if other == base}
        found += [_event_at(file, path, offset - base) for offset in offsets]
    merged: list[Part] = []
    for part in sorted(found, key=lambda part: part.start):
        if merged and part.start <= merged[-1].end:
            merged[-1] = Part(merged[-1].start, max(merged[-1].end, part.end))
        else:
            merged.append(part)
    return tuple(merged)


def _event_at(file: Any, path: str, position: int) -> Part:
    header = os.pread(file.fileno(), _HEADER.size, position)
    if len(header) < _HEADER.size:
        raise RelayLogCorrupt(f"{path} ends before byte {position}.", path=path, offset=position)
    return Part(position, position + int(_HEADER.unpack(header)[3]))


def read_pieces(path: str, pieces: Sequence[Part]) -> bytes:
    data = bytearray()
    with open(path, "rb") as file:
        for piece in pieces:
            got = os.pread(file.fileno(), piece.end - piece.start, piece.start)
            if len(got) < piece.end - piece.start:
                raise TransientError(f"{path} has become shorter than {piece.end} bytes.")
            data += got
    return bytes(data)


def put_pieces(path: str, pieces: Sequence[Part], store: Store, key: str) -> None:
    """Puts the pieces as one object, with bounded memory."""
    with open(path, "rb") as file, store.upload(key) as upload:
        for piece in pieces:
            for start in range(piece.start, piece.end, _COPY_BYTES):
                end = min(piece.end, start + _COPY_BYTES)
                got = os.pread(file.fileno(), end - start, start)
                if len(got) < end - start:
                    raise TransientError(f"{path} has become shorter than {piece.end} bytes.")
                upload.write(got)
