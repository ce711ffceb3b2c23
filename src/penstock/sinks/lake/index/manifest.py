"""What an index consists of, in a file that is replaced as a whole.

A run is durable before a manifest names it, and never changes afterwards. So whenever the process is killed,
the manifest on the disk names intact runs. It may miss newer ones. Then the index covers fewer data files.
The first line of the manifest is the checksum of the rest.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.disk.replace import replace_file

VERSION = 1
NAME = "manifest.json"


@dataclass(frozen=True)
class RunOf:
    """A run: its file's name, its number of entries, and the numbers of the data files whose rows it has."""

    name: str
    entries: int
    files: frozenset[int]


@dataclass(frozen=True)
class Manifest:
    """The content of a key index. `seed`: that of the hash. `key`: the columns of the key, as `TableIndex`
    describes them. `files`: number and rows of each data file that is covered, by location."""

    seed: int
    key: str
    files: Mapping[str, tuple[int, int]]
    runs: tuple[RunOf, ...]

    def write(self, directory: Path) -> None:
        """Replaces the manifest in this directory. The runs must be durable. The manifest itself need not be:
        after a power loss, an older one or none is found."""
        document = {
            "version": VERSION,
            "seed": self.seed,
            "key": self.key,
            "files": {location: list(one) for location, one in self.files.items()},
            "runs": [[run.name, run.entries, sorted(run.files)] for run in self.runs],
        }
        content = json.dumps(document, separators=(",", ":")).encode()
        head = b"%08x\n" % zlib.crc32(content)
        replace_file(directory / NAME, head + content, durable=False)

    @classmethod
    def read(cls, directory: Path) -> Manifest | None:
        """The newest manifest in the directory. None: there is no intact one that this version of Penstock
        understands."""
        try:
            head, _, content = (directory / NAME).read_bytes().partition(b"\n")
            if int(head, 16) != zlib.crc32(content):
                return None
            found = json.loads(content)
            if found["version"] != VERSION:
                return None
            files = {location: (number, rows) for location, (number, rows) in found["files"].items()}
            runs = tuple(RunOf(name, entries, frozenset(of)) for name, entries, of in found["runs"])
            return cls(found["seed"], found["key"], files, runs)
        except (OSError, ValueError, KeyError):
            return None
