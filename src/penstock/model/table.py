"""A captured table as a pipeline remembers it, its chunks, and what happened to its definition."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from penstock.model.chunk import Chunk, StagedChunk
from penstock.model.offset import Offset
from penstock.model.plan import Kept
from penstock.model.schema import TableId, TableSchema
from penstock.printable import argument

TableStatus = Literal["live", "parked", "dropped", "removed"]
GONE = ("dropped", "removed")
SnapshotStatus = Literal["none", "splitting", "reading", "done"]
ChunkStatus = Literal["planned", "staged", "placed"]
Begins = Literal["", "evolve", "empty", "fresh"]


@dataclass(frozen=True)
class TableState:
    """One captured table.

    status: `live` (its events are planned), `parked` (left alone since `parked_at`, for `reason`), `dropped`
    (gone at the source), `removed` (not followed any more, since somebody said so). snapshot: `none` (log
    only), `splitting` (chunks are still being found), `reading`, `done` (all placed). written: whether the
    target may hold rows. replaces: sequence up to which rows are of the table before, and are deleted at the
    end of a re-snapshot (0: there are none). last_epoch: the newest epoch with steps for it; 0: its target
    is still to be made. begins: what is to be done first with a target that is there: `evolve` it to the
    columns of `schema`, or also `empty` it, since it holds rows from before `start`; or make it anew,
    `fresh`. due: why the table is to be read again from its beginning; until then it is left out of plans.
    rows_guess: how large the server thought the table to be when its chunks were sought. kept: columns the
    target keeps. resumes: the table is not where the pipeline is but here: a parked one goes on from here if
    it is unparked (None: then it has to be read again), another is catching up, under epochs of its own.
    """

    table: TableId
    start: Offset
    schema: TableSchema
    status: TableStatus = "live"
    snapshot: SnapshotStatus = "none"
    written: bool = False
    last_epoch: int = 0
    reason: str = ""
    hint: str = ""
    parked_at: Offset | None = None
    replaces: Offset = Offset(0)  # noqa: RUF009 (an int)
    rows_guess: int = 0
    begins: Begins = ""
    due: str = ""
    kept: Kept | None = None
    resumes: Offset | None = None

    @property
    def planned(self) -> bool:
        """Whether epochs carry the table beside the others."""
        return self.status == "live" and not self.due and self.resumes is None

    @property
    def catching_up(self) -> bool:
        return self.status == "live" and not self.due and self.resumes is not None

    @property
    def rests(self) -> bool:
        """Whether epochs carry it and its existing rows are not being read: parts of it may be."""
        return self.planned and not self.reading

    @property
    def reading(self) -> bool:
        """Whether its existing rows are being read."""
        return self.planned and self.snapshot in ("splitting", "reading")


def is_reading(table: TableState) -> bool:
    return table.reading


def is_splitting(table: TableState) -> bool:
    """Its chunks are being found."""
    return table.planned and table.snapshot == "splitting"


def is_catching_up(table: TableState) -> bool:
    return table.catching_up


def is_due(table: TableState) -> bool:
    """It is to be read again from its beginning."""
    return bool(table.due) and table.status not in GONE


def new_table(
    schema: TableSchema, start: Offset, *, snapshot: SnapshotStatus, append_only: bool
) -> TableState:
    """A table that begins at `start`. Without a key it can only go to an append-only sink: else it is
    parked."""
    state = TableState(schema.table, start, schema, snapshot=snapshot)
    if schema.key or append_only:
        return state
    reason, hint = keyless(schema.table)
    return replace(state, status="parked", parked_at=start, reason=reason, hint=hint)


def keyless(table: TableId) -> tuple[str, str]:
    """Reason and cure for a table whose rows cannot be told apart."""
    reason = (
        f"Table {table} has no primary key and no unique index over NOT NULL columns, so its "
        "rows cannot be merged."
    )
    hint = (
        f"ALTER TABLE {table.quoted} ADD COLUMN penstock_id BIGINT UNSIGNED NOT NULL "
        f"AUTO_INCREMENT PRIMARY KEY; then run `penstock resnapshot FILE {argument(table)}`. "
        "Or use the `parquet` sink."
    )
    return reason, hint


@dataclass(frozen=True)
class ChunkState:
    chunk: Chunk
    status: ChunkStatus
    staged: StagedChunk | None
    reads: int


@dataclass(frozen=True)
class Change:
    """An entry of the history. `decision`: what the pipeline made of it; `statement`: how it began at the
    source, without values; `commit_us`: when it was committed there, `noted_us`: when we planned it."""

    table: TableId
    version: int
    offset: Offset
    what: str
    decision: str
    statement: str = ""
    commit_us: int | None = None
    noted_us: int = 0


UNFIT = "the log does not fit what was known of it"
"""`TableState.due` of a table whose events could not be decoded."""
KEY_CHANGED = "the table's key changed"
"""Why partial snapshots end that know their rows by the key before."""
