"""The log of a writer that was fenced: another one has begun a segment where a transaction ends."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

from penstock.model.offset import Offset
from penstock.relaylog.segment import SegmentName


def begin_behind(folder: Path, name: SegmentName, base: Offset, head_size: int, **known: object) -> Offset:
    """Begins a segment at `base`, inside of the segment `name`, which stays as it is. `known`: what the
    successor's first entry says beside offsets. Returns its end."""
    head = (folder / name.file).read_bytes()[:head_size]
    later, end = SegmentName(base, name.generation + 1), Offset(base + head_size)
    (folder / later.file).write_bytes(head)
    line = json.dumps({"start": base, "end": end, "committed": end, **known}).encode()
    (folder / later.index).write_bytes(line + b" %08x\n" % zlib.crc32(line))
    return end
