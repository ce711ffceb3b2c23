"""Deletion vectors in memory, so that not every epoch reads them again."""

from __future__ import annotations

import threading
from collections import OrderedDict

from pyroaring import BitMap64

from penstock.sinks.lake import vectors
from penstock.sinks.lake.vectors import Deleted
from penstock.store.files import Files

BYTES_MAX = 128 * 1024**2
"""Serialised size of the vectors that are kept, of all tables. As bitmaps they take about the same."""


class DeletedRows:
    """The deleted rows of data files of any tables, by the vector that says so. A vector never changes.
    Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._known: OrderedDict[str, tuple[Deleted, BitMap64, int]] = OrderedDict()
        self._bytes = 0

    def of(self, location: str, vector: Deleted | None, files: Files) -> BitMap64:
        """The deleted rows of the data file at this location. Nobody changes the result."""
        if vector is None:
            return BitMap64()
        with self._guard:
            known = self._known.get(location)
            if known is not None and known[0] == vector:
                self._known.move_to_end(location)
                return known[1]
        found = vectors.read(vector, files)
        self.put(location, vector, found, len(found.serialize()))
        return found

    def put(self, location: str, vector: Deleted, rows: BitMap64, size: int) -> None:
        """Remembers the rows of a vector, which takes `size` bytes."""
        with self._guard:
            before = self._known.pop(location, None)
            self._known[location] = vector, rows, size
            self._bytes += size - (0 if before is None else before[2])
            while self._bytes > BYTES_MAX and len(self._known) > 1:
                self._bytes -= self._known.popitem(last=False)[1][2]
