"""Small commits that go on while files of an Iceberg table are put together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from penstock.sinks.lake.iceberg.files import Classes
from penstock.sinks.lake.iceberg.live import Live, LiveFiles
from penstock.sinks.lake.iceberg.manifests import Content
from penstock.sinks.lake.index.deleted import DeletedRows
from penstock.sinks.lake.index.tables import TableKeys
from penstock.store.files import Files


class Stream:
    """The small commits to a table that go on while its files are put together. `load`: the table as it is
    now. `keys`: None if only other processes may make such commits."""

    def __init__(self, load: Callable[[], Any], classes: Classes, keys: TableKeys[LiveFiles] | None) -> None:
        self.load = load
        self._keys = keys
        self._live = LiveFiles(classes, pa.schema([])) if keys is None else keys.live
        self._deleted = DeletedRows() if keys is None else keys.deleted

    @contextmanager
    def expecting(self, files: Sequence[Content]) -> Iterator[None]:
        """Adds the rows of new files to the index. They are committed in the `with` block, in which this
        process makes no small commit."""
        if self._keys is None:
            yield
            return
        with self._keys.index.held([file.location for file in files]):
            self._keys.cover(files)
            with self._keys.changing:
                yield

    def files(self, target: Any) -> Live:
        return self._live.of(target)

    def deleted(self, live: Live, files: Files, location: str) -> BitMap64:
        """The rows of a data file that are deleted in `live`. Nobody changes the result."""
        return self._deleted.of(location, live.vector(location), files)

    def expect(self, live: Live) -> None:
        """Records the files that the table has after the commit that was just made."""
        self._live.expect(live)
