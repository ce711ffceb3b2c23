"""The spool stores the events of prepared (XA) transactions until they are committed.

A file in the folder `prepared` is named `{number:010d}-{generation:06d}.xa`. It has the form of a segment,
and contains the events of many transactions as the source sent them. The index alone decides which
transactions are prepared and where their events are. So there are two rules. The spool files that an index
line names are durable before that line (`syncing`). A file is deleted only after a committed line has
recorded that nothing in it is needed (`remove`). After a crash, `recover` compares the files with the
index."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from penstock.disk.replace import sync
from penstock.errors import RelayLogCorrupt
from penstock.relaylog.index import Prepared
from penstock.relaylog.segment import DAMAGED_HINT, write_all

PREPARED_FOLDER = "prepared"

_NAME = re.compile(r"^(\d{10})-\d{6}\.xa$")


class Spool:
    """The writer's part; `_core.Framer` names the files and reads them."""

    def __init__(self, relay_log: Path) -> None:
        self.folder = relay_log / PREPARED_FOLDER
        self.next_number = 0
        self._names: set[str] = set()
        self._open: dict[str, int] = {}
        self._dirty = False
        self._new = False

    def recover(self, prepared: Iterable[Prepared]) -> None:
        """Deletes files that the index does not name. Raises `RelayLogCorrupt` if one that it names is
        missing."""
        prepared = list(prepared)
        wanted = {one.file for one in prepared}
        found = self._list()
        for one in prepared:
            path = self.folder / one.file
            if one.file not in found or path.stat().st_size < one.start + one.length:
                raise RelayLogCorrupt(
                    f"The file {path}, which holds the events of the prepared XA transaction {one.xid}, is "
                    "missing or cut off.",
                    hint=DAMAGED_HINT,
                    path=str(path),
                    offset=one.start,
                )
        self.remove(found - wanted)
        self._names = found & wanted
        self.next_number = max((int(name[:10]) + 1 for name in found), default=0)

    def _list(self) -> set[str]:
        try:
            return {path.name for path in self.folder.iterdir() if _NAME.match(path.name)}
        except FileNotFoundError:
            return set()

    def append(self, name: str, data: bytes) -> None:
        if name not in self._open:
            self.folder.mkdir(exist_ok=True, mode=0o700)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
            self._open[name] = os.open(self.folder / name, flags, 0o600)
            self._names.add(name)
            self._new = True
        self._dirty = True
        write_all(self._open[name], data)

    def syncing(self) -> Callable[[], None]:
        """Returns a function that makes everything appended so far durable. It must run before the index
        names these files. All files but the newest are then complete."""
        if not self._dirty:
            return lambda: None
        files, new = list(self._open.values()), self._new
        closing = [self._open.pop(name) for name in list(self._open)[:-1]]
        self._dirty = self._new = False

        def make_durable() -> None:
            for file in files:
                os.fdatasync(file)
            for file in closing:
                os.close(file)
            if new:
                sync(self.folder)
                sync(self.folder.parent)

        return make_durable

    def forget(self, needed: Sequence[str] | None) -> set[str]:
        """Removes the files that are not in `needed` from the list, and returns them. None: all are
        needed."""
        if needed is None:
            return set()
        gone = self._names.difference(needed)
        self._names -= gone
        return gone

    def remove(self, names: Iterable[str]) -> None:
        """Deletes files. If a crash interrupts this, the next `recover` deletes the rest."""
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                (self.folder / name).unlink()

    def close(self) -> None:
        for file in self._open.values():
            os.close(file)
        self._open.clear()
        self._dirty = self._new = False
