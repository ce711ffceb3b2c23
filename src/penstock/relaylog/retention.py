"""Which segments may go: only those that every consumer has passed, and only when they are old or many."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import time
from pathlib import Path

from penstock.config import RelayLogConfig
from penstock.errors import ConfigError
from penstock.model.offset import Offset
from penstock.relaylog.segment import CONSUMERS_FOLDER, SegmentName, list_segments, replace_file, sync_folder

_NAME = re.compile(r"^[A-Za-z0-9._-]{1,100}$")

SAID_SECONDS = 60.0


def register(path: str | Path, name: str, offset: Offset) -> None:
    """Says durably that consumer `name` needs nothing at or before `offset` any more. Creates or replaces."""
    if not _NAME.match(name):
        raise ConfigError(
            f"{name!r} cannot name a consumer of a relay log; use letters, digits, dots, dashes."
        )
    folder = Path(path) / CONSUMERS_FOLDER
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    data = json.dumps({"offset": int(offset), "updated": time.time()}).encode()
    replace_file(folder / f"{name}.json", data, durable=True)


class Consumer:
    """One who reads the log, and says now and then how far it has come. What has not changed is made durable
    again only once a minute."""

    def __init__(self, path: str | Path, name: str) -> None:
        self._path = path
        self._name = name
        self._said: tuple[Offset, float] | None = None

    def needs(self, offset: Offset) -> None:
        """Nothing at or before `offset` any more."""
        now = time.monotonic()
        if self._said is None or self._said[0] != offset or now > self._said[1] + SAID_SECONDS:
            register(self._path, self._name, offset)
            self._said = offset, now


def unregister(path: str | Path, name: str) -> None:
    (Path(path) / CONSUMERS_FOLDER / f"{name}.json").unlink(missing_ok=True)


def consumers(path: str | Path) -> dict[str, Offset]:
    """Every registered consumer and what it has passed. One whose file cannot be read counts as having read
    nothing."""
    found: dict[str, Offset] = {}
    for file in (Path(path) / CONSUMERS_FOLDER).glob("*.json"):
        try:
            found[file.stem] = Offset(int(json.loads(file.read_bytes())["offset"]))
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, TypeError):
            found[file.stem] = Offset(0)
    return found


def expendable(
    segments: list[tuple[SegmentName, int, float]],
    *,
    passed: Offset,
    now: float,
    config: RelayLogConfig,
) -> list[SegmentName]:
    """Segments to remove, oldest first. Each is `(name, bytes, time of its last write)`; the last is in use.

    A segment ends where the next begins. Those not wholly passed stay, whatever their age.
    """
    total = sum(size for _, size, _ in segments)
    gone: list[SegmentName] = []
    for (name, size, written), (following, _, _) in itertools.pairwise(segments):
        too_old = now - written > config.keep_age / 1000
        too_many = 0 < config.keep_size < total
        if following.base > passed or not (too_old or too_many):
            break
        gone.append(name)
        total -= size
    return gone


def apply(folder: Path, config: RelayLogConfig) -> list[SegmentName]:
    """Removes what may go. Without any registered consumer nothing has been read, so everything stays."""
    readers = consumers(folder)
    if not readers:
        return []
    segments = []
    for name in list_segments(folder):
        status = (folder / name.binlog).stat()
        segments.append((name, status.st_size, status.st_mtime))
    gone = expendable(segments, passed=min(readers.values()), now=time.time(), config=config)
    for name in gone:
        # Without its index a segment does not exist; a crash in between leaves a leftover for the next
        # writer.
        for file in (name.index, name.binlog):
            with contextlib.suppress(FileNotFoundError):
                (folder / file).unlink()
    if gone:
        sync_folder(folder)
    return gone
