"""Delta tables in a local or mounted directory. Targets can be renamed there."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.disk.replace import sync
from penstock.model.plan import Move
from penstock.model.schema import TableId
from penstock.sinks.lake.delta.format import LOG, DeltaFormat, Held
from penstock.sinks.lake.delta.options import DeltaOptions
from penstock.sinks.refusals import check_directory

_REPLACED = ".gone-"
"""Prefix of directories of replaced targets, until they are deleted."""


class LocalDelta(DeltaFormat):
    def __init__(self, options: DeltaOptions, root: Path, spark: SparkSession, pipeline: str) -> None:
        super().__init__(options, str(root), spark, pipeline)
        self._directory = root

    def check(self) -> None:
        check_directory(self._directory)

    def path(self, table: TableId) -> Path:
        """The directory of a table's target."""
        return Path(self.place(table))

    def _held(self, place: str) -> Held:
        path = Path(place)
        if not path.exists() or (path.is_dir() and not any(path.iterdir())):
            return "nothing"
        return "table" if (path / LOG).is_dir() else "something else"

    def _delete(self, place: str) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(place)

    def identity(self, table: TableId) -> str:
        return self.target_id(self.load(table))

    def move(
        self,
        moves: Sequence[Move],
        *,
        identity: Callable[[TableId], str | None],
        refuse: Callable[[TableId], None],
    ) -> list[Move]:
        """A Delta table is its directory, in which the log names files by relative paths. Only one directory
        can be renamed at a time. So each target is first renamed to a temporary name with its identity, and
        then to its new name."""
        self._forget_paths()
        waiting = [move for move in moves if identity(move.target) != move.identity]
        for move in waiting:
            if identity(move.source) == move.identity:
                _rename(self.path(move.source), self._temporary(move))
        self._forget_paths()
        for move in waiting:
            if self._temporary(move).exists():
                self._make_room(move, refuse)
                _rename(self._temporary(move), self.path(move.target))
        for leftover in self._directory.glob(f"{_REPLACED}*"):
            shutil.rmtree(leftover)
        self._forget_paths()
        return [move for move in waiting if identity(move.target) != move.identity]

    def _temporary(self, move: Move) -> Path:
        return self._directory / f".moving-{move.identity}"

    def _make_room(self, move: Move, refuse: Callable[[TableId], None]) -> None:
        """Renames a target that is replaced. It is deleted later: a directory that is deleted only in part
        would not be recognised as ours."""
        refuse(move.target)
        path = self.path(move.target)
        if path.exists():
            _rename(path, self._directory / f"{_REPLACED}{move.identity}")


def _rename(path: Path, name: Path) -> None:
    """Renames a directory. The new name is durable when this returns. Nothing is replaced: the rename fails
    if the name is that of a directory with files."""
    name.parent.mkdir(parents=True, exist_ok=True)
    path.rename(name)
    for folder in {path.parent, name.parent}:
        sync(folder)
