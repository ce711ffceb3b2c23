"""Says of the splits of a plan where the bytes of their segments are (`segment_bytes.py`).

A plan names segments by the paths that they had when it was made. Only the file's name counts: a pipeline may
be started again with its relay log in another folder, or with the archive alone.

Objects below `staging` belong to the epoch for which they were put. `applied` removes them. After a crash,
`sweep` does: a run begins with none."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError, TransientError
from penstock.model.offset import Offset, SegmentSource, Split
from penstock.model.plan import ApplyEvents, EpochPlan, PlaceChunks, Step
from penstock.relaylog import missing_log
from penstock.relaylog.archive import Archive, Archived
from penstock.relaylog.files import LogPlace
from penstock.relaylog.segment import SegmentName
from penstock.relaylog.segment_bytes import (
    CARRIED_BYTES_MAX,
    Carried,
    InStore,
    LocalOrArchived,
    Part,
    pieces_of,
    put_pieces,
    read_pieces,
)
from penstock.store.base import Store

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""How old the known list of archived segments may be before a segment counts as not archived. If it is
archived nevertheless, its bytes travel, which costs no more than before."""


class SplitSources:
    """Says where tasks find the bytes of splits. `folder`: that of the relay log on this machine. `staging`:
    where bytes are put for executors that do not see that folder; None: every task runs on this machine.
    Thread-safe."""

    def __init__(self, folder: Path, archive: Archive | None = None, staging: Store | None = None) -> None:
        self.folder = folder
        self._archive = archive
        self._staging = staging
        self._archived: dict[SegmentName, Archived] = {}
        self._looked = float("-inf")
        self._put: defaultdict[int, set[str]] = defaultdict(set)
        self._guard = threading.Lock()

    @property
    def for_other_machines(self) -> bool:
        """Whether tasks run on machines that do not see the log's folder."""
        return self._staging is not None

    def located(self, plan: EpochPlan) -> EpochPlan:
        """The plan, whose splits know where their bytes are."""
        if self._archive is None and self._staging is None and not self._has_moved(plan):
            return plan
        until: defaultdict[str, list[Split]] = defaultdict(list)
        for split in _splits_of(plan):
            until[Path(split.path).name].append(split)
        sources = {name: self._source(name, splits, plan) for name, splits in until.items()}

        def place(splits: Iterable[Split]) -> tuple[Split, ...]:
            return tuple(self._placed(split, sources[Path(split.path).name]) for split in splits)

        def step_of(step: Step) -> Step:
            if isinstance(step, ApplyEvents):
                return replace(step, splits=place(step.splits))
            if isinstance(step, PlaceChunks):
                scans = tuple(replace(scan, splits=place(scan.splits)) for scan in step.scans)
                return replace(step, scans=scans)
            return step

        tables = tuple(
            replace(table, steps=tuple(step_of(step) for step in table.steps)) for table in plan.tables
        )
        return replace(plan, tables=tables)

    def _has_moved(self, plan: EpochPlan) -> bool:
        return any(Path(split.path).parent != self.folder for split in _splits_of(plan))

    def _placed(self, split: Split, source: SegmentSource | None) -> Split:
        """The split with the paths of this run."""
        preamble = tuple(
            (str(self.folder / Path(path).name), base, offset) for path, base, offset in split.preamble
        )
        path = str(self.folder / Path(split.path).name)
        return replace(split, path=path, preamble=preamble, source=source)

    def _source(self, file: str, splits: list[Split], plan: EpochPlan) -> SegmentSource | None:
        name, path = SegmentName.parse(file), self.folder / file
        if name is None:
            return None
        if self._archive is not None:
            here: SegmentSource | None = LocalOrArchived(
                str(path), self._archive.store, self._archive.data_key(name)
            )
        else:
            here = None
        if self._staging is None:
            return here
        return ForExecutors(self, name, str(path), tuple(splits), plan.range.end, plan.epoch, here)

    # for executors of other machines ------------------------------------------------------------------------

    def archived(self, name: SegmentName) -> InStore | None:
        """The segment in the archive; None: it is not there, as far as is known."""
        if self._archive is None:
            return None
        with self._guard:
            if name not in self._archived and time.monotonic() - self._looked > LOOK_SECONDS:
                manifest = self._archive.manifest()
                self._archived = {one.name: one for one in manifest.segments} if manifest else {}
                self._looked = time.monotonic()
            found = self._archived.get(name)
        if found is None:
            return None
        return InStore(self._archive.store, self._archive.data_key(name), found.bytes)

    def taken_along(
        self, name: SegmentName, path: str, splits: tuple[Split, ...], until: Offset, epoch: int
    ) -> Carried | InStore:
        try:
            pieces = pieces_of(path, splits, until)
        except FileNotFoundError:
            self._looked = float("-inf")  # archived meanwhile, and dropped from the disk
            if (found := self.archived(name)) is not None:
                return found
            place = LogPlace(self.folder, None if self._archive is None else self._archive.store)
            raise missing_log.gone(place.files, name) from None
        size = pieces[-1].end
        if sum(piece.end - piece.start for piece in pieces) <= CARRIED_BYTES_MAX:
            return Carried(path, size, pieces, read_pieces(path, pieces))
        return self._staged(path, pieces, size, epoch)

    def _staged(self, path: str, pieces: tuple[Part, ...], size: int, epoch: int) -> InStore:
        assert self._staging is not None
        key = f"{epoch}/{uuid.uuid4().hex}.part"
        with self._guard:
            self._put[epoch].add(key)
        put_pieces(path, pieces, self._staging, key)
        return InStore(self._staging, key, size, pieces)

    def applied(self, plan: EpochPlan) -> None:
        """Removes the parts of the log that were staged for the plan. If that fails, `sweep` removes them at
        the next start."""
        with self._guard:
            keys = self._put.pop(plan.epoch, set())
        if keys and self._staging is not None:
            try:
                self._staging.delete_many(keys)
            except PenstockError as error:
                log.warning("log staged for epoch %d is still there: %s", plan.epoch, error)

    def sweep(self) -> None:
        """Removes the parts that earlier runs left. Only one run of a pipeline uses its part of `staging`."""
        if self._staging is not None:
            try:
                self._staging.delete_many(one.key for one in list(self._staging.objects()))
            except TransientError as error:
                log.warning("log staged by earlier runs is still there: %s", error)


class ForExecutors:
    """A segment as the driver reads it, and as executors of other machines get it. What they get is found
    when the first task of an epoch is sent, and is the same for all of its tasks."""

    def __init__(
        self,
        sources: SplitSources,
        name: SegmentName,
        path: str,
        splits: tuple[Split, ...],
        until: Offset,
        epoch: int,
        here: SegmentSource | None,
    ) -> None:
        self._sources = sources
        self._name = name
        self._path = path
        self._splits = splits
        self._until = until
        self._epoch = epoch
        self._here = here
        self._there: Carried | InStore | None = None
        self._guard = threading.Lock()

    def open(self, part: Part) -> Any:
        return self._path if self._here is None else self._here.open(part)

    def __reduce__(self) -> tuple[Any, ...]:
        with self._guard:
            if self._there is None:
                self._there = self._sources.archived(self._name) or self._sources.taken_along(
                    self._name, self._path, self._splits, self._until, self._epoch
                )
        return _same, (self._there,)


def _same(source: Carried | InStore) -> Carried | InStore:
    return source


def _splits_of(plan: EpochPlan) -> Iterable[Split]:
    for table in plan.tables:
        for step in table.steps:
            if isinstance(step, ApplyEvents):
                yield from step.splits
            elif isinstance(step, PlaceChunks):
                for scan in step.scans:
                    yield from scan.splits
