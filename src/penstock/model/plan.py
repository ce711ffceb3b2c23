"""The plan of an epoch. It is stored before any of it is executed.

A plan consists of values only. It names log ranges, staged attempts and checksums, never "the newest one". So
executing it twice does the same twice, and the sinks recognise the second time by `(pipeline, epoch, step)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from penstock.model.chunk import StagedChunk
from penstock.model.offset import LogRange, Offset, Split
from penstock.model.schema import TableId, TableSchema

Mode = Literal["append", "merge", "changes"]
"""`append`: the target has no row with any of these keys. `merge`: by key, and the newer row wins. `changes`:
every change is added to a change log."""


@dataclass(frozen=True)
class CreateTarget:
    """Creates the target with the table's schema, if it is missing. Commits nothing by itself."""

    kind: Literal["create"] = "create"


@dataclass(frozen=True)
class RecreateTarget:
    """Removes what is at the target's place, in whatever state it is, and creates an empty target with the
    table's schema. The record of earlier commits is removed too: if this step is repeated, so are all that
    follow it. It is the first step of its plan."""

    kind: Literal["recreate"] = "recreate"


@dataclass(frozen=True)
class ApplyEvents:
    """Applies the row events of `splits`. `newer`: the rows that the target has with their keys are older."""

    splits: tuple[Split, ...]
    mode: Mode
    bytes: int
    newer: bool = False
    kind: Literal["events"] = "events"


@dataclass(frozen=True)
class Scan:
    """Rows whose keys occur in `splits` are left out of placed chunks. Transactions in `seen` do not count: a
    chunk's watermarks claim them (`sources.windows.Window.seen`). None: all count."""

    splits: tuple[Split, ...]
    seen: str | None


@dataclass(frozen=True)
class PlaceChunks:
    """Writes the rows of staged chunks, without those whose keys the `scans` find. Each row gets the epoch's
    end as sequence. `window`, of a table that foreign keys change: after it these rows have no events, but
    the changes by foreign keys are still to be applied to them. `newer`: the rows that the target has with
    their keys are older, or the same."""

    chunks: tuple[StagedChunk, ...]
    scans: tuple[Scan, ...]
    mode: Mode
    window: Offset | None = None
    newer: bool = False
    kind: Literal["chunks"] = "chunks"


@dataclass(frozen=True)
class ApplyCascades:
    """Applies what foreign keys did to the table's rows in this epoch. It is computed before any table is
    written. `rows`: the target has rows of the table, those with sequences above `after`. `reading`: the
    table's existing rows are still being read. `alone`: the table catches up, and epochs of other tables
    stored how its parents changed (`EpochPlan.catch_up_later`)."""

    after: Offset
    rows: bool
    reading: bool
    alone: bool = False
    kind: Literal["cascades"] = "cascades"


@dataclass(frozen=True)
class TruncateTarget:
    """Deletes every row of the target. `timestamp_us`: commit time of the statement. `sequence`: where it
    takes effect (None: at the epoch's end)."""

    timestamp_us: int | None = None
    sequence: Offset | None = None
    kind: Literal["truncate"] = "truncate"


@dataclass(frozen=True)
class ColumnOrigin:
    """Where the values of a column come from when its table changes: `before` is the earlier name of the
    column. None: the statement adds the column, and existing rows get `default_sql` in it, a Spark SQL
    literal (None: NULL)."""

    before: str | None = None
    default_sql: str | None = None


@dataclass(frozen=True)
class KeptColumns:
    """The columns of a target that does not follow the definition of its table (`schema.changes: ignore`).

    The target has the columns of `schema`. A new row fills each of them from the column of the same place in
    `sources`. None: nothing fills the column any more."""

    schema: TableSchema
    sources: tuple[str | None, ...]


@dataclass(frozen=True)
class Evolve:
    """Changes the target to the definition `schema`, with one origin for each of its columns.

    Columns of the target that no origin names are gone at the source. A column is converted if its type
    differs from that of its origin. If a statement also changed values, that is not this step's concern
    (`TableEffect.rereads`). `refills`: every row will be written again after it, so the target may lack an
    origin. `kept_columns`: the target keeps these columns, and only new rows have the new definition."""

    schema: TableSchema
    origins: tuple[ColumnOrigin, ...]
    refills: bool = False
    kept_columns: KeptColumns | None = None
    kind: Literal["evolve"] = "evolve"


@dataclass(frozen=True)
class DeleteOlder:
    """Deletes rows with sequences below `sequence`. At the end of a resnapshot these are gone at the
    source."""

    sequence: Offset
    kind: Literal["delete_older"] = "delete_older"


@dataclass(frozen=True)
class Park:
    """Parks the table at `offset`. `resumes`: the target has everything before this offset, and the table can
    continue from there without losing changes. None: changes may be lost."""

    offset: Offset
    reason: str
    hint: str
    resumes: Offset | None = None
    kind: Literal["park"] = "park"


@dataclass(frozen=True)
class AdoptTarget:
    """Takes over a table that others made, with its rows. If it is gone by now, creates an empty target."""

    kind: Literal["adopt"] = "adopt"


@dataclass(frozen=True)
class DropTarget:
    """Removes the target and its rows."""

    kind: Literal["drop"] = "drop"


Step = (
    DropTarget
    | CreateTarget
    | AdoptTarget
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
    """The steps for one table, in order. A step's place in the tuple is its number in the commit.

    `start` distinguishes tables of the same name that followed each other. `kept_columns`: None: the target
    has the columns of `schema`."""

    schema: TableSchema
    steps: tuple[Step, ...]
    start: Offset = Offset(0)  # noqa: RUF009 (an int)
    kept_columns: KeptColumns | None = None

    @property
    def table(self) -> TableId:
        return self.schema.table


@dataclass(frozen=True)
class Move:
    """The target of `source` becomes the target of `target`. The earlier target of `target` is removed,
    unless it is moved, too. `identity`: that of the moved target, which does not depend on its name. By it, a
    repeated move recognises that it was made."""

    source: TableId
    target: TableId
    identity: str


@dataclass(frozen=True)
class DefinitionChange:
    """A table that the statement at the end of an epoch created (`before` None), dropped (`after` None) or
    changed. Only for sinks that tell it (`LogSink.tells_definitions`)."""

    before: TableSchema | None
    after: TableSchema | None

    @property
    def schema(self) -> TableSchema:
        found = self.after or self.before
        assert found is not None, "one of them is there"
        return found


@dataclass(frozen=True)
class EpochPlan:
    """`moves` are made together, after the steps of all tables. The tables in them have no steps.
    `catch_up_later`: tables that will catch up later. The epoch stores for them how their parent tables
    changed."""

    epoch: int
    range: LogRange
    tables: tuple[TablePlan, ...]
    moves: tuple[Move, ...] = ()
    catch_up_later: tuple[TableSchema, ...] = ()
    definitions: tuple[DefinitionChange, ...] = ()
    complete_until_us: int | None = None
    """What was committed at the source up to this time is in the log up to the epoch's end. None: it is not
    known, or the epoch is one of a table that catches up."""

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
    """Yields the starts of the parts of the log that a step reads."""
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
