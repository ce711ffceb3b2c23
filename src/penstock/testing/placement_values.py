"""What the world of the placement model is made of; conditions that can be switched off."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.model.chunk import Chunk, StagedChunk
from penstock.model.offset import LogRange
from penstock.snapshot import place as rule
from penstock.testing.placement_source import Row

CUTS = (None, 2, 4, None)
BROKEN = (
    "wait_for_high", "low_from_position", "high_from_executed", "set_membership", "drop_window",
    "before_images", "window_before_epoch", "void_by_ddl", "schema_version", "table_start", "require_gtids",
    "append_drops_all", "append_only_if_fresh", "first_attempt_wins", "own_epoch_keys", "server_uuid",
    "sequence_is_end", "start_in_low",
)  # fmt: skip
BROKEN_AT_REPLICAS = (
    "replica_wait_for_high", "replica_high_from_executed", "replica_high_from_received",
    "replica_low_from_received", "replica_start_in_low", "replica_definition_in_low",
)  # fmt: skip
"""The same for chunks that are read from a replica."""


class Violation(AssertionError):
    """The target is not what it must be."""


@dataclass
class Reading:
    """One attempt at a chunk, on its way."""

    chunk: Chunk
    version: int
    server: str
    low: frozenset[int] = frozenset()
    rows: dict[int, Row] | None = None


@dataclass
class Table:
    name: str
    start: int
    chunks: dict[int, str] = field(default_factory=dict)
    staged: dict[int, StagedChunk] = field(default_factory=dict)
    fresh: bool = True
    replaces: int | None = None
    whole: bool = False
    """The snapshot is complete: from then on target and source must be equal at each epoch's end."""
    rows: dict[int, Row] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    applied: int = 0


@dataclass
class Plan:
    range: LogRange
    tables: dict[str, int]
    """Table, and the offset from which its events are emitted."""
    placed: list[rule.Placed]
    finishes: dict[str, int]
