"""What sinks share whose server keeps a record of each target: its source table and its last commit.

Such targets cannot be renamed: a table with a new name is read again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from penstock.model.plan import Move
from penstock.model.schema import TableId
from penstock.sinks.base import Ours, TargetState
from penstock.sinks.refusals import refuse_foreign, refuse_shared


class Recorded(ABC):
    """Base class of such sinks. `pipeline`: its uuid."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._generation = 0
        self._seen: dict[TableId, tuple[int, int]] = {}
        """The newest commit of each table that this sink knows of."""

    @abstractmethod
    def open(self, table: TableId) -> TargetState:
        """See `Sink.open`."""

    @abstractmethod
    def _place_and_source(self, table: TableId) -> tuple[str, str | None]:
        """Where the target is, for messages, and for which source table it was made. None: that is not
        known."""

    @abstractmethod
    def _remove(self, table: TableId) -> None:
        """Removes the target and its record."""

    def begin(self, generation: int) -> None:
        self._generation = generation

    def drop(self, table: TableId) -> None:
        if isinstance(self.open(table), Ours) and self._place_and_source(table)[1] == str(table):
            self._remove(table)

    def clear(self, table: TableId) -> None:
        found = self.open(table)
        refuse_foreign(table, found)
        if isinstance(found, Ours):
            place, source = self._place_and_source(table)
            refuse_shared(table, place, source)
            self._remove(table)

    def identity(self, table: TableId) -> str | None:
        return None

    def move(self, moves: Sequence[Move]) -> list[Move]:
        return list(moves)  # none is ever asked for: there is no identity
