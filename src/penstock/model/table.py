"""What a pipeline stores about a captured table, its chunks, and the history of its definition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from typing_extensions import assert_never

from penstock.model.chunk import Chunk, StagedChunk
from penstock.model.offset import Offset
from penstock.model.plan import KeptColumns
from penstock.model.schema import TableId, TableSchema
from penstock.printable import argument

TableStatus = Literal["live", "parked", "dropped", "removed"]
SnapshotStatus = Literal["none", "splitting", "reading", "done"]
ChunkStatus = Literal["planned", "staged", "placed"]
TargetReset = Literal["none", "evolve", "truncate", "recreate", "adopt"]
"""What is done to an existing target before the first write. `evolve`: it gets the columns of the table.
`truncate`: it also loses its rows. `recreate`: it is replaced by an empty target. `adopt`: it is a table that
others made. It is taken over with its rows, and gets the columns of the table."""


@dataclass(frozen=True)
class Reading:
    """The existing rows are being read, and epochs carry the table's events.

    Entered when a table is found (`planning/discovery.py`), when a resnapshot begins (`restart_table` there),
    and at a statement that creates a table with rows in it (`planning/policy.py`). Left for `Streaming` when
    the epoch with the last chunk is recorded (`epochs/record.py`). Stored.

    splitting: chunks are still being found.
    """

    splitting: bool


@dataclass(frozen=True)
class Streaming:
    """Epochs carry the table's events, and no existing rows are left to read.

    Entered from `Reading` and `CatchingUp`, and at once by a table whose existing rows are not wanted or that
    has none. Stored.

    snapshot_done: its existing rows were read. False: only the log was.
    """

    snapshot_done: bool


@dataclass(frozen=True)
class CatchingUp:
    """The table is behind the pipeline: epochs of its own carry its events from `at` on.

    Entered by a parked table that is unparked (`runtime/unpark.py`), and by a table that was read in one
    piece (`planning/planner.py`). The planner advances `at`. The table continues in the phase `then`
    once `at` has reached the pipeline's position. Stored.
    """

    at: Offset
    then: Reading | Streaming


@dataclass(frozen=True)
class Parked:
    """Epochs leave the table out from offset `at` on, until an operator acts. `hint` says what to do.

    Entered through `StateStore.park`: when an epoch fails for this table alone, when its chunks cannot be
    read, at a signal, when it cannot be captured, and when a table that its foreign keys need is parked.
    Left by `runtime/unpark.py` and by a resnapshot. Stored.

    resumes: how the table continues without a gap once it is unparked. None: it can only be read again.
    """

    at: Offset
    reason: str
    hint: str = ""
    resumes: CatchingUp | None = None


@dataclass(frozen=True)
class ResnapshotPending:
    """The table will be read again from its beginning, because of `why`. Until then, epochs leave it out.

    Entered when the log does not say what the rows are: at a statement (`planning/policy.py`), at a failed
    epoch, at a change of the pipeline file, at a signal, and while parent tables are read
    (`cascades/keys.py`). Left for `Reading` when `planning/resnapshots.py` can begin. Stored.

    parked: the table was parked, and is shown as parked until the resnapshot begins.
    """

    why: str
    parked: Parked | None = None


@dataclass(frozen=True)
class Dropped:
    """The table does not exist at the source after offset `at`.

    Entered at DROP or RENAME (`planning/policy.py`), and when a resnapshot does not find the table. Left when
    a table of its name is created, or at a signal that names it. Stored.
    """

    at: Offset
    reason: str = ""


@dataclass(frozen=True)
class Removed:
    """The pipeline does not follow the table any more, since offset `at`: because of a signal `remove-table`,
    or because the pipeline file does not name it.

    Left at a signal `add-table`, or when the file names it again. Stored.
    """

    at: Offset
    reason: str = ""


Phase = Reading | Streaming | CatchingUp | Parked | ResnapshotPending | Dropped | Removed


@dataclass(frozen=True)
class TableState:
    """One captured table: its definition, its phase, and the state of its target.

    - `start`: the table's events count from this offset on.
    - `rows_guess`: the server's estimate of the number of rows, when the table was split into chunks.
    - `written`: the target may have rows.
    - `last_epoch`: the newest epoch with steps for the target. 0: the target does not exist yet.
    - `replaces`: rows of the target with sequences up to this one are of an earlier snapshot. They are
      deleted when the present snapshot ends. 0: there are none.
    - `target_reset`: see `TargetReset`.
    - `kept_columns`: None: the target has the columns of `schema`.
    """

    schema: TableSchema
    start: Offset
    phase: Phase
    written: bool = False
    last_epoch: int = 0
    replaces: Offset = Offset(0)  # noqa: RUF009 (an int)
    rows_guess: int = 0
    target_reset: TargetReset = "none"
    kept_columns: KeptColumns | None = None

    @property
    def table(self) -> TableId:
        return self.schema.table

    @property
    def planned(self) -> bool:
        """Whether the pipeline's epochs carry the table's events."""
        return isinstance(self.phase, Reading | Streaming)

    @property
    def reading(self) -> bool:
        return isinstance(self.phase, Reading)

    @property
    def streaming(self) -> bool:
        return isinstance(self.phase, Streaming)

    @property
    def gone(self) -> bool:
        return isinstance(self.phase, Dropped | Removed)

    @property
    def parked(self) -> Parked | None:
        """Since when and why the table is parked, also if a resnapshot of it is pending."""
        if isinstance(self.phase, ResnapshotPending):
            return self.phase.parked
        return self.phase if isinstance(self.phase, Parked) else None

    @property
    def resnapshot_pending(self) -> str:
        """Why the table will be read again. Empty: it will not."""
        return self.phase.why if isinstance(self.phase, ResnapshotPending) else ""

    @property
    def catches_up_from(self) -> Offset | None:
        """Start of its next own epoch. None: it has no epochs of its own."""
        return self.phase.at if isinstance(self.phase, CatchingUp) else None

    @property
    def rows_read(self) -> bool:
        """Whether no existing rows are left to read: the table streams, or will once it has caught up."""
        phase = self.phase.then if isinstance(self.phase, CatchingUp) else self.phase
        return isinstance(phase, Streaming)

    @property
    def complete(self) -> bool:
        """Whether the target lacks nothing but events of the log, and needs no reset before them."""
        return self.rows_read and not self.replaces and self.target_reset == "none"

    @property
    def status(self) -> TableStatus:
        """The status that operators see."""
        match self.phase:
            case Reading() | Streaming() | CatchingUp():
                return "live"
            case Parked():
                return "parked"
            case ResnapshotPending(parked=parked):
                return "live" if parked is None else "parked"
            case Dropped():
                return "dropped"
            case Removed():
                return "removed"
            case _:
                assert_never(self.phase)

    @property
    def snapshot(self) -> SnapshotStatus:
        """The progress of the snapshot, for operators. `none`: there is none, or it does not count any
        more."""
        return snapshot_status(self.phase)

    def park(self, at: Offset, reason: str, hint: str, resumes: Offset | None = None) -> TableState:
        """Returns the table, parked. It can continue at `resumes` only if no existing rows are left to
        read."""
        then = self.phase.then if isinstance(self.phase, CatchingUp) else self.phase
        continued = None
        if resumes is not None and isinstance(then, Streaming):
            continued = CatchingUp(resumes, then)
        return replace(self, phase=Parked(at, reason, hint, continued))

    def adopts(self) -> TableState:
        """Returns the table, whose target is a table of others that it will take over. The rows there count
        as those of an earlier snapshot: the present one replaces them, or deletes them at its end."""
        replaces = max(self.start, Offset(1)) if self.reading else Offset(0)
        return replace(self, target_reset="adopt", written=True, replaces=replaces)

    def takes_over(self, *, append_only: bool) -> TableState:
        """Returns the table, whose target has rows that an earlier state of this pipeline has written: all
        with sequences below the table's start. The present snapshot replaces them, or deletes them at its
        end. `append_only`: the target is a change log, which gets a `truncate` before all rows."""
        replaces = max(self.start, Offset(1)) if self.reading else Offset(0)
        if append_only:
            return replace(self, target_reset="truncate", replaces=replaces)
        return replace(self, target_reset="evolve", written=True, replaces=replaces)

    def read_again(self, why: str) -> TableState:
        """Returns the table with a pending resnapshot, or unchanged if it is gone."""
        return self if self.gone else replace(self, phase=ResnapshotPending(why, self.parked))


def snapshot_status(phase: Phase) -> SnapshotStatus:
    match phase:
        case Reading(splitting=splitting):
            return "splitting" if splitting else "reading"
        case Streaming(snapshot_done=done):
            return "done" if done else "none"
        case CatchingUp(then=then):
            return snapshot_status(then)
        case Parked(resumes=resumes):
            return "none" if resumes is None else snapshot_status(resumes)
        case ResnapshotPending() | Dropped() | Removed():
            return "none"
        case _:
            assert_never(phase)


def is_reading(table: TableState) -> bool:
    return isinstance(table.phase, Reading)


def is_splitting(table: TableState) -> bool:
    """Whether the table is being split into chunks."""
    return table.phase == Reading(splitting=True)


def is_catching_up(table: TableState) -> bool:
    return isinstance(table.phase, CatchingUp)


def is_resnapshot_pending(table: TableState) -> bool:
    return isinstance(table.phase, ResnapshotPending)


AddKey = Callable[[TableId], str]
"""What an operator does to give a table a key (`sources.catalog.Catalog.add_key`)."""


def plain_add_key(table: TableId) -> str:
    """For a table whose source has no better advice."""
    return f"Give {table} a primary key"


def new_table(
    schema: TableSchema,
    start: Offset,
    *,
    reads: bool,
    append_only: bool,
    add_key: AddKey = plain_add_key,
) -> TableState:
    """Returns the state of a table whose events count from `start` on. `reads`: read its existing rows. A
    table without a key is parked, unless the sink only appends."""
    if not schema.key and not append_only:
        return TableState(schema, start, Parked(start, *keyless(schema.table, add_key)))
    return TableState(schema, start, Reading(splitting=True) if reads else Streaming(snapshot_done=False))


def keyless(table: TableId, add_key: AddKey = plain_add_key) -> tuple[str, str]:
    """Returns why a table without a key is parked, and what to do."""
    reason = (
        f"Table {table} has no primary key and no unique index over NOT NULL columns, so its "
        "rows cannot be merged."
    )
    hint = (
        f"{add_key(table)}; then run `penstock resnapshot FILE {argument(table)}`. Or use a sink that keeps "
        "a log of changes, which needs no key."
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
    """An entry of the history of schema changes. `decision`: what the pipeline did about it. `statement`: the
    beginning of the statement, without values. `commit_us`: when it was committed at the source. `noted_us`:
    when it was planned."""

    table: TableId
    version: int
    offset: Offset
    what: str
    decision: str
    statement: str = ""
    commit_us: int | None = None
    noted_us: int = 0


DEFINITION_DOES_NOT_FIT = "the log does not fit what was known of it"
"""Why a table is read again whose events could not be decoded (`ResnapshotPending.why`)."""
KEY_CHANGED = "the table's key changed"
"""Why a partial snapshot ends if it names its rows by the former key."""
