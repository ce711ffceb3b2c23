"""The plan of an epoch: what will be done, written down before anything of it is done.

A plan is values only. It names log ranges, staged attempts and checksums, never "the newest": executing it
twice does the same thing twice, and the sinks recognise the second time by `(pipeline, epoch, step)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from penstock.model.chunk import StagedChunk
from penstock.model.offset import LogRange, Offset, Split
from penstock.model.schema import TableId, TableSchema

Mode = Literal["append", "merge", "changes"]
"""append: rows that collide with nothing in the target; merge: by key, newer wins; changes: append-only
log."""


@dataclass(frozen=True)
class CreateTarget:
    """The target table is created, if it is missing, with the table's schema. Commits nothing by itself."""

    kind: Literal["create"] = "create"


@dataclass(frozen=True)
class RecreateTarget:
    """What stands at the target's place goes, in whatever state it is, and an empty target is made with the
    table's schema. It takes the record of earlier commits with it: done again, so is all that follows it in
    its plan, of which it is the first step."""

    kind: Literal["recreate"] = "recreate"


@dataclass(frozen=True)
class ApplyEvents:
    """The row events of `splits`. `newer`: all that the target has of their keys is older."""

    splits: tuple[Split, ...]
    mode: Mode
    bytes: int
    newer: bool = False
    kind: Literal["events"] = "events"


@dataclass(frozen=True)
class Scan:
    """Keys that occur in `splits` are dropped from placed chunks, but for transactions in `exclude_gtids`."""

    splits: tuple[Split, ...]
    exclude_gtids: str | None


@dataclass(frozen=True)
class PlaceChunks:
    """Staged chunks, without the rows whose keys the `scans` find; each placed row gets the epoch's end as
    sequence. `window`, of a table that foreign keys change: behind it the rows that are left have no events,
    but what foreign keys did there is still to be done to them. `newer`: all that the target has of their
    keys is older, or says the same."""

    chunks: tuple[StagedChunk, ...]
    scans: tuple[Scan, ...]
    mode: Mode
    window: Offset | None = None
    newer: bool = False
    kind: Literal["chunks"] = "chunks"


@dataclass(frozen=True)
class ApplyCascades:
    """What foreign keys did to the table's rows in this epoch, which is worked out before any table is
    written. `rows`: the target has rows of the table, those with sequences above `after`. `reading`: the
    table's existing rows are still being read. `alone`: the table catches up; what happened to its parents
    was kept by the epochs of the others (`EpochPlan.keeps`)."""

    after: Offset
    rows: bool
    reading: bool
    alone: bool = False
    kind: Literal["cascades"] = "cascades"


@dataclass(frozen=True)
class TruncateTarget:
    """Every row of the target goes. `timestamp_us`: commit time of the statement. `sequence`: where it takes
    effect (None: at the epoch's end)."""

    timestamp_us: int | None = None
    sequence: Offset | None = None
    kind: Literal["truncate"] = "truncate"


@dataclass(frozen=True)
class ColumnOrigin:
    """Where the values of a column come from when its table changes: `before` is the name the column had,
    None for a column the statement adds. Existing rows get `default_sql`, a Spark SQL literal, in an added
    column (None: NULL)."""

    before: str | None = None
    default_sql: str | None = None


@dataclass(frozen=True)
class Kept:
    """Columns that a target keeps although the source's have changed: those of `schema`, filled from the
    columns `sources` of the rows that come (None: nothing fills them any more)."""

    schema: TableSchema
    sources: tuple[str | None, ...]


@dataclass(frozen=True)
class Evolve:
    """The table has another definition from here on: `schema`, with one origin for each of its columns.

    Columns of the target that no origin names are gone at the source. A column whose type differs from that
    of its origin is to be converted; that rows hold other values now, which the log does not tell, is no
    matter of this step (`TableEffect.rereads`). `refills`: every row is written again after it, so an origin
    that the target does not have is no error. `kept`: only the rows that come have the new definition, the
    target keeps its columns."""

    schema: TableSchema
    origins: tuple[ColumnOrigin, ...]
    refills: bool = False
    kept: Kept | None = None
    kind: Literal["evolve"] = "evolve"


@dataclass(frozen=True)
class DeleteOlder:
    """The end of a re-snapshot: rows whose sequence is below `sequence` are gone at the source."""

    sequence: Offset
    kind: Literal["delete_older"] = "delete_older"


@dataclass(frozen=True)
class Park:
    """From here on the table is left alone, with the reason and the cure. `resumes`: everything before this
    offset is at the target then, and nothing after it is lost to the table (None: something may be)."""

    offset: Offset
    reason: str
    hint: str
    resumes: Offset | None = None
    kind: Literal["park"] = "park"


@dataclass(frozen=True)
class DropTarget:
    """The target goes, with all it holds."""

    kind: Literal["drop"] = "drop"


Step = (
    DropTarget
    | CreateTarget
    | RecreateTarget
    | ApplyEvents
    | ApplyCascades
    | PlaceChunks
    | TruncateTarget
    | Evolve
    | DeleteOlder
    | Park
)


@dataclass(frozen=True)
class TablePlan:
    """The steps for one table, in order; the place of a step in the tuple is its number in the commit.

    `start` tells incarnations of a table apart. `kept`: see there; None: the target has the columns of
    `schema`."""

    schema: TableSchema
    steps: tuple[Step, ...]
    start: Offset = Offset(0)  # noqa: RUF009 (an int)
    kept: Kept | None = None

    @property
    def table(self) -> TableId:
        return self.schema.table


@dataclass(frozen=True)
class Move:
    """The target of `source` becomes that of `target`, whose own goes if it is not moved too. `identity`
    tells it from all others, whatever its name: so a move that was made is recognised."""

    source: TableId
    target: TableId
    identity: str


@dataclass(frozen=True)
class EpochPlan:
    """`moves` are made together, after the steps of all tables. The tables they concern have no steps.
    `keeps`: tables that will catch up later, for which is kept what happens to the tables they refer to."""

    epoch: int
    range: LogRange
    tables: tuple[TablePlan, ...]
    moves: tuple[Move, ...] = ()
    keeps: tuple[TableSchema, ...] = ()

    @property
    def moved(self) -> set[TableId]:
        """Tables whose targets change places."""
        return {table for move in self.moves for table in (move.source, move.target)}

    @property
    def chunks(self) -> list[StagedChunk]:
        steps = [step for table in self.tables for step in table.steps]
        return [chunk for step in steps if isinstance(step, PlaceChunks) for chunk in step.chunks]

    @property
    def oldest(self) -> Offset:
        """Nothing at or before this offset of the log is read for the plan."""
        steps = [step for table in self.tables for step in table.steps]
        return min([self.range.start, *(at for step in steps for at in _read_from(step))])


def _read_from(step: Step) -> Iterator[Offset]:
    """Where the parts of the log begin that a step reads."""
    if isinstance(step, ApplyEvents):
        splits = list(step.splits)
    elif isinstance(step, PlaceChunks):
        splits = [split for scan in step.scans for split in scan.splits]
        if step.window is not None:
            yield step.window
    else:
        return
    for split in splits:
        yield split.start
        yield from (offset for _, _, offset in split.preamble)
