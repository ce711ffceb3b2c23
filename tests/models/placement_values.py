"""What the world of the placement model is made of; conditions that can be switched off."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.models.placement_source import Row

from penstock.model.chunk import Chunk, StagedChunk
from penstock.model.offset import LogRange
from penstock.snapshot import placement as rule

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
BROKEN_IN_PARTS = (
    "part_since", "part_start", "part_start_in_low", "part_fresh", "part_beside_snapshot", "part_beside_part",
    "part_one_list", "part_void_by_ddl", "part_schema_version", "part_drop_window", "part_missing_stay",
    "part_missing_in_window", "part_above_since", "part_wait_for_high", "part_log_kept", "part_low_position",
    "anew_above_start",
)  # fmt: skip
"""The same for partial snapshots, and for what epochs without any log can do (`anew_above_start`)."""


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
    left: bool = False
    """No epoch carries it until it is read again."""
    whole: bool = False
    """The snapshot is complete: from then on target and source must be equal at each epoch's end."""
    rows: dict[int, Row] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    applied: int = 0
    """The number of the newest plan it holds."""
    damaged: dict[int, int] = field(default_factory=dict)
    """Keys that somebody has changed at the target, and nothing has written since; when (an offset)."""

    @property
    def placed(self) -> bool:
        """By the plans that are durable: they are applied in their order."""
        return set(self.chunks.values()) == {"placed"}

    def begin_anew(self, start: int) -> None:
        self.start = self.replaces = start
        self.whole, self.fresh, self.left = False, False, False
        self.chunks = {0: "planned", 1: "planned", 2: "planned"}
        self.staged = {}

    def damage(self, key: int, row: Row | None, sequence: int) -> None:
        if row is None:
            self.rows.pop(key, None)
            self.sequences.pop(key, None)
        else:
            self.rows[key], self.sequences[key] = row, sequence

    def merge(self, key: int, row: Row | None, sequence: int) -> None:
        if sequence <= self.sequences.get(key, -1):
            return
        if row is None:
            self.rows.pop(key, None)
            self.sequences.pop(key, None)
        else:
            self.rows[key], self.sequences[key] = row, sequence

    def finish(self, replaces: int) -> None:
        for key in [key for key, sequence in self.sequences.items() if sequence <= replaces]:
            del self.rows[key], self.sequences[key]
        self.whole = True
        self.damaged.clear()


@dataclass
class Plan:
    number: int
    range: LogRange
    tables: dict[str, int]
    """Table, and the offset from which its events are emitted."""
    placed: list[rule.Placed]
    finishes: dict[str, int]
