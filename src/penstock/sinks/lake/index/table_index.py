"""The index of one table: its runs, and the data files that they cover.

A run is a sorted file of entries, of which only the directory is in memory. Each commit adds a small run, and
a look-up asks every run. So runs of about the same size are merged in the background, eight at a time. A
merge leaves out data files that are no longer live. Should they come back, by a rollback, they are not
covered, and read again.

A run that is damaged is left out, too: its data files are then not covered.
"""

from __future__ import annotations

import logging
import secrets
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock._core import KeyRun, KeyRunWriter, merge_key_runs
from penstock.errors import InternalError
from penstock.failures.messages import one_sentence
from penstock.sinks.files import field_id
from penstock.sinks.lake.index.manifest import Manifest, RunOf
from penstock.sinks.lake.lookup import Unsearchable

log = logging.getLogger(__name__)

RUNS_MERGED = 8
"""Runs of about the same size that are merged into one."""
FILES_MAX = 1 << 24
"""Numbers of data files have 24 bits in an entry."""
SUFFIX = ".run"

Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True)
class Indexed:
    """A data file, as far as the index needs it."""

    location: str
    rows: int


@dataclass(frozen=True)
class Matches:
    """Rows of one data file that have one of the keys: the number of the key, from 0, and the row of each."""

    keys: np.ndarray
    rows: np.ndarray


class DamagedRun(Exception):
    """A run cannot be read. It has been left out, so the index covers fewer data files now."""


class TableIndex:
    """Thread-safe. `directory`: nobody else uses it. `fields`: the columns of the key, with their field ids.
    `memory_max`: bytes that building a run may take."""

    def __init__(self, directory: Path, fields: pa.Schema, memory_max: int) -> None:
        self.fields = fields
        self._directory = directory
        self._memory_max = memory_max
        self._key = described(fields)
        self._seed = secrets.randbits(63)
        self._guard = threading.Lock()
        self._runs: dict[str, tuple[RunOf, KeyRun]] = {}
        self._files: dict[str, tuple[int, int]] = {}
        """Number and rows of each data file that is covered, by location."""
        self._locations: dict[int, str] = {}
        self._used: set[int] = set()
        """Numbers that are in a run, or in one that is being written."""
        self._next = 0
        self._tidying = threading.Lock()
        self._held: set[str] = set()
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._open()

    # coverage -----------------------------------------------------------------------------------------------

    def uncovered(self, files: Iterable[Indexed]) -> list[Indexed]:
        with self._guard:
            return [file for file in files if file.location not in self._files]

    def covers(self, locations: Mapping[str, object]) -> bool:
        with self._guard:
            return locations.keys() <= self._files.keys()

    def cover(self, files: Sequence[Indexed], read: Callable[[Indexed], Batches]) -> None:
        """Adds the rows of data files. `read` returns the columns of the key for all rows of a file, also
        deleted ones, in their order and in the types of `fields`."""
        missing = self.uncovered(files)
        if not missing:
            return
        numbers = self._reserve(len(missing))
        try:
            run, opened = self._write(missing, numbers, read)
        except BaseException:
            with self._guard:
                self._used -= set(numbers)
            raise
        with self._guard:
            self._runs[run.name] = run, opened
            for file, number in zip(missing, numbers, strict=True):
                self._files[file.location] = number, file.rows
                self._locations[number] = file.location

    def _write(
        self, files: Sequence[Indexed], numbers: Sequence[int], read: Callable[[Indexed], Batches]
    ) -> tuple[RunOf, KeyRun]:
        path = self._new_path()
        try:
            writer = KeyRunWriter(str(path), self._seed, self._memory_max)
            for file, number in zip(files, numbers, strict=True):
                row = 0
                for batch in read(file):
                    writer.add(batch, number, row)
                    row += batch.num_rows
                if row != file.rows:
                    raise InternalError(f"{file.location} has {row} rows, and not {file.rows}.")
            entries = writer.finish()
            return RunOf(path.name, entries, frozenset(numbers)), KeyRun(str(path))
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def _new_path(self) -> Path:
        return self._directory / f"{uuid.uuid4().hex}{SUFFIX}"

    def _reserve(self, count: int) -> list[int]:
        """Numbers for data files. A number is used again as late as possible."""
        found: list[int] = []
        with self._guard:
            if len(self._used) + count > FILES_MAX:
                raise Unsearchable(f"it has more than {FILES_MAX} data files")
            while len(found) < count:
                if self._next not in self._used:
                    found.append(self._next)
                    self._used.add(self._next)
                self._next = (self._next + 1) % FILES_MAX
        return found

    # look-up ------------------------------------------------------------------------------------------------

    def find(self, keys: Sequence[pa.RecordBatch], live: Collection[str]) -> dict[str, Matches]:
        """The rows that have these keys, by data file, in those data files that are `live` and covered. Keys
        are numbered through all batches. Rows may be among them that are deleted already. Raises
        `DamagedRun`."""
        found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        with self._guard:
            first = 0
            for batch in keys:
                for run, opened in list(self._runs.values()):
                    numbers, files, rows = (one.to_numpy() for one in self._looked_up(run, opened, batch))
                    if len(numbers):
                        found.append((numbers + first, files, rows))
                first += batch.num_rows
            if not found:
                return {}
            numbers, files, rows = (np.concatenate(one) for one in zip(*found, strict=True))
            order = np.argsort(files, kind="stable")
            numbers, files, rows = numbers[order], files[order], rows[order]
            starts = np.flatnonzero(np.diff(files, prepend=-1))
            matches = {}
            for start, end in zip(starts, [*starts[1:], len(files)], strict=True):
                location = self._locations.get(int(files[start]))
                if location is not None and location in live:
                    matches[location] = Matches(numbers[start:end], rows[start:end])
            return matches

    def _looked_up(self, run: RunOf, opened: KeyRun, keys: pa.RecordBatch) -> tuple[Any, Any, Any]:
        try:
            return opened.find(keys)
        except (ValueError, OSError) as error:
            self._forget(run)
            raise DamagedRun(f"{self._directory / run.name}: {one_sentence(error)}") from error

    def _forget(self, run: RunOf) -> None:
        """Leaves out a damaged run."""
        del self._runs[run.name]
        for number in run.files:
            self._used.discard(number)
            if (location := self._locations.pop(number, None)) is not None:
                del self._files[location]

    # merging ------------------------------------------------------------------------------------------------

    def tidy(self, live: Collection[str]) -> None:
        """Merges runs while there are many, and forgets data files that are not live. Others may use the
        index meanwhile."""
        with self._tidying:
            with self._guard:
                # Not those that are covered from now on: they are newer than `live`.
                dead = {
                    number
                    for number, location in self._locations.items()
                    if location not in live and location not in self._held
                }
            while chosen := self._chosen(dead):
                self._merge(chosen, dead)
            self.save()

    @contextmanager
    def held(self, locations: Collection[str]) -> Iterator[None]:
        """Keeps data files in the index that are not live yet. At most one caller at a time."""
        with self._guard:
            self._held = set(locations)
        try:
            yield
        finally:
            with self._guard:
                self._held = set()

    def wants_tidying(self) -> bool:
        return bool(self._chosen(frozenset()))

    def _chosen(self, dead: Collection[int]) -> list[RunOf]:
        with self._guard:
            return chosen_to_merge([run for run, _ in self._runs.values()], dict(self._files.values()), dead)

    def _merge(self, runs: Sequence[RunOf], dead: Collection[int]) -> None:
        present = {number for run in runs for number in run.files}
        with self._guard:
            left = frozenset(number for number in present if number in self._locations) - set(dead)
        merged: list[tuple[RunOf, KeyRun]] = []
        if left:
            path = self._new_path()
            paths = [str(self._directory / run.name) for run in runs]
            kept = {number: number for number in left}
            try:
                entries = merge_key_runs(paths, str(path), [kept] * len(paths))
            except ValueError:
                self._forget_damaged(runs)
                raise
            merged = [(RunOf(path.name, entries, left), KeyRun(str(path)))]
        with self._guard:
            if any(run.name not in self._runs for run in runs):  # one was damaged
                return
            for run in runs:
                del self._runs[run.name]
            self._runs |= {run.name: (run, opened) for run, opened in merged}
            for number in present - left:
                self._used.discard(number)
                if (location := self._locations.pop(number, None)) is not None:
                    del self._files[location]
        self.save()
        for run in runs:
            (self._directory / run.name).unlink(missing_ok=True)

    def _forget_damaged(self, runs: Sequence[RunOf]) -> None:
        with self._guard:
            for run in runs:
                if run.name in self._runs:
                    try:
                        self._runs[run.name][1].verify()
                    except ValueError:
                        self._forget(run)

    def save(self) -> None:
        with self._guard:
            manifest = Manifest(
                self._seed, self._key, dict(self._files), tuple(run for run, _ in self._runs.values())
            )
        manifest.write(self._directory)

    def _open(self) -> None:
        """Takes what an earlier process has left, as far as it is intact, and removes the rest."""
        found = Manifest.read(self._directory)
        if found is not None and found.key == self._key:
            self._seed = found.seed
            for run in found.runs:
                try:
                    opened = KeyRun(str(self._directory / run.name))
                except (OSError, ValueError) as error:
                    log.info("A part of a key index is read again: %s", one_sentence(error))
                    continue
                if len(opened) == run.entries:
                    self._runs[run.name] = run, opened
            self._used = {number for run, _ in self._runs.values() for number in run.files}
            self._files = {location: one for location, one in found.files.items() if one[0] in self._used}
            self._locations = {number: location for location, (number, _) in self._files.items()}
            self._next = max(self._used, default=0)
        for entry in self._directory.iterdir():
            if entry.suffix == SUFFIX and entry.name not in self._runs:
                entry.unlink(missing_ok=True)


def described(fields: pa.Schema) -> str:
    """The columns of a key. If one of them gets another type, its hashes change, and the index is built
    again."""
    return ", ".join(f"{field_id(field)} {field.type}" for field in fields)


def chosen_to_merge(runs: Sequence[RunOf], rows: Mapping[int, int], dead: Collection[int]) -> list[RunOf]:
    """The runs to merge next. `rows`: of each data file that is covered, by number. `dead`: the numbers of
    those that are not live any more."""
    wasted = [sum(rows.get(number, 0) for number in run.files & frozenset(dead)) for run in runs]
    for run, waste in zip(runs, wasted, strict=True):
        if dead and (2 * waste > run.entries or run.files <= frozenset(dead)):
            return [run]
    tiers: dict[int, list[RunOf]] = {}
    for run in runs:
        tiers.setdefault(max(run.entries, 1 << 10).bit_length() // 3, []).append(run)
    return next((some for _, some in sorted(tiers.items()) if len(some) >= RUNS_MERGED), [])
