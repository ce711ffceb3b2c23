"""What a pipeline writes into its state, as values.

A durable step of the pipeline is one list of these changes (`Database.commit`): all of them are made, or
none. Each says everything that it needs, also the time. So the same lists in the same order lead from equal
states to equal states, on whatever machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.model.chunk import Chunk, StagedChunk
from penstock.model.offset import Offset
from penstock.model.partial_snapshot import Part, PartStatus
from penstock.model.plan import EpochPlan
from penstock.model.schema import TableId
from penstock.model.signal import SignalStatus
from penstock.model.table import Change, TableState


@dataclass(frozen=True)
class ValueSet:
    """A named value; None removes it."""

    name: str
    value: str | None


@dataclass(frozen=True)
class TablePut:
    table: TableState


@dataclass(frozen=True)
class HistoryAdded:
    """An entry of the history of tables' definitions."""

    change: Change
    noted_us: int


@dataclass(frozen=True)
class ChunksAdded:
    """The next chunks of a table, which are planned."""

    chunks: Sequence[Chunk]


@dataclass(frozen=True)
class ChunkStaged:
    """Changes nothing if the chunk is not planned with the same bounds."""

    staged: StagedChunk


@dataclass(frozen=True)
class ChunkVoided:
    """A chunk whose staged rows are discarded, and which is planned again."""

    chunk: Chunk


@dataclass(frozen=True)
class ChunksPlaced:
    chunks: Sequence[Chunk]


@dataclass(frozen=True)
class ChunksForgotten:
    """All chunks of a table. Its open partial snapshots are split again."""

    table: TableId


@dataclass(frozen=True)
class PartialBegun:
    number: int
    signal: str
    table: TableId
    since: Offset
    part: Part


@dataclass(frozen=True)
class PartialSplit:
    """The chunks of a partial snapshot that had none."""

    number: int
    chunks: Sequence[Chunk]


@dataclass(frozen=True)
class PartialEnded:
    """Also forgets the chunks. Changes nothing else if it has ended before."""

    number: int
    status: PartStatus
    reason: str


@dataclass(frozen=True)
class EpochPlanned:
    """`start` and `end`: the log that the epoch takes off the pipeline's position."""

    plan: EpochPlan
    start: Offset
    end: Offset
    planned_us: int


@dataclass(frozen=True)
class EpochApplied:
    """`committed`: the tables to whose targets it has committed. `keep`: how many applied epochs are kept."""

    epoch: int
    committed: Sequence[TableId]
    applied_us: int
    keep: int


@dataclass(frozen=True)
class EpochsBegun:
    """A state without epochs goes on behind this number."""

    after: int
    noted_us: int


@dataclass(frozen=True)
class SignalAccepted:
    """Changes nothing if the id is known."""

    id: str
    kind: str
    data: dict[str, Any]
    channel: str
    received_us: int


@dataclass(frozen=True)
class SignalSet:
    id: str
    status: SignalStatus
    answer: dict[str, Any]
    updated_us: int


@dataclass(frozen=True)
class SignalsExpired:
    """Ended signals that were updated before `before_us` (those of `penstock verify`: `verify_before_us`),
    and the oldest ones until at most `kept` are left. Partial snapshots that they requested go with them."""

    before_us: int
    kept: int
    verify_before_us: int


StateChange = (
    ValueSet | TablePut | HistoryAdded
    | ChunksAdded | ChunkStaged | ChunkVoided | ChunksPlaced | ChunksForgotten
    | PartialBegun | PartialSplit | PartialEnded
    | EpochPlanned | EpochApplied | EpochsBegun
    | SignalAccepted | SignalSet | SignalsExpired
)  # fmt: skip


class Journal(Protocol):
    """What makes a durable step durable. `StateStore` is one, with a file of SQLite. It may have another one
    (`Database.journal`): then that has each step first, and the file can be made again from its steps."""

    def commit(self, changes: Sequence[StateChange]) -> None:
        """Makes the changes durable, all or none."""
