"""The placement rule: when the rows of a staged chunk may enter the stream, and which of them.

Terms. The log is a sequence of transactions; `prefix(X)` are those that end at or before offset X. A chunk
was read in a view V: the transactions whose effects its SELECT saw. Its marks promise `low ⊆ V ⊆
prefix(high)` (`sources/mysql/snapshot/watermark.py` says why they do). Neither V nor `low` need be a prefix
of the log: servers make transactions visible out of the log's order. S is the table's start, E the end of the
epoch that places the chunk.

The rule. A chunk is placed at the end of an epoch that

1. is planned after the chunk was staged, and whose E has reached the chunk's high mark;
2. without the rows whose key occurs (before or after image) in a transaction of `(S, E]` that is not in
   `low`;
3. unless a DDL that removes or replaces rows stands in `prefix(E)` outside `low`, or the schema changed
   since: then the chunk is void;
4. and S is such that every epoch after S carries this table, and `prefix(S) ⊆ low`.

E has reached a high mark that is a place in the log of the server that is followed when it stands at that
place or behind it. Where the chunk was read from a replica of that server (`snapshot.hosts`), the high mark
is a GTID set that holds V, and E has reached it when `prefix(E)` holds all of it: `V ⊆ high ⊆ prefix(E)`.
Nothing else changes: `low` is a set as ever, if one that may lack far more of the log, and the argument does
not ask who answered. Two things follow from V being older than what the source shows. `prefix(S) ⊆ low` is
not true by itself, so the replica is waited for. And at its SELECT the replica may have yet to make a change
of the definition that the chunk was planned with, which shows when names or types are gone, but not when two
columns swapped names: so `low` must hold that statement as well. Transactions that the source loses in a
failover can be in `high` and then never come: such a chunk is read again once another server is followed.

Where marks are places in the binary log instead of GTID sets (MariaDB; MySQL without GTIDs), `low` stands for
all transactions up to its place in the log that wrote it: `prefix(low)`, a set like any other.

Why it is right. Take a row of the chunk that is kept, with key k. By (1) `low ⊆ V ⊆ prefix(E)`. By (2),
with (4), every transaction of `prefix(E)` that touches k is in `low`: those up to S by (4), those of `(S,
E]` because k was kept. So V and `prefix(E)` contain the same transactions that touch k, and the chunk's row
*is* the row at E: newer than every earlier event of its key, older than every later one. With `_sequence` E
it wins against all events up to E and loses against all that follow. A deleted row is not in V, or its
deletion is outside `low`. Take a key that was dropped: it has an event in `(S, E]`, which by (4) was
emitted in this or an earlier epoch, so the stream alone gives its state at E. Take a row that exists at E
but is not in V: the transaction that created it is not in V, so not in `low`, so by (4) after S: the stream
brings it. Nothing is missing, nothing is stale. The argument never needs chunks to be placed in order, nor
soon: a later E only makes the window larger. Nor does it need the window to be minimal: **any superset
within `(S, E]` may be dropped**, because what is dropped is in the stream. Two uses are made of that
freedom:

- Keys of *all* events of the epoch itself are dropped, also of transactions in `low`. So a key never comes
  twice within one epoch, and events and placed rows may go into one commit without a reduction over both.
- If *every* key that occurs in `(S, E]` is dropped, no kept key has an event after S: the target cannot
  hold it from the stream. Chunks of one table do not overlap (a row that moves between chunks does so by an
  event after S). So if the target held nothing of this table at S, kept rows can be **appended** without a
  look at the target.

Void or read again, the cure is the same: the chunk is read anew, with new marks. The difference is for
people: a void chunk is untrue, one to read again has become too costly, or its marks cannot be compared.

A part of a table (`execute-snapshot` with keys, a range or a condition) is read beside its stream, when the
table's own snapshot has ended. The rule is the same, with S the place the pipeline had reached when the part
was asked for, or the table's start if that is later: what the target held of the part at S may be wrong, and
is right at E. That follows from the argument above, since it says of a kept row that it is the row at E, and
of a dropped key that the stream has written it after S. Four things are peculiar to it. The target holds rows
of the table, so rows are merged, never appended. E must lie behind S, not on it: else a row has no greater
`_sequence` than the wrong one it replaces. Parts may overlap each other, and two chunks of a list of names
may find one row by two names: so an epoch places chunks of one part only, and one chunk of such a list. And a
key that was named and not found is deleted at E, if no event of it was dropped: then the transactions that
touch it are in V too, and it is not there at E. The relay log is kept from S on until the part is done.

A chunk of a table without a key can drop nothing. It is placed by (1) and (3) alone, for append-only targets,
where changes in its window may appear twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import pyarrow as pa

from penstock import _core
from penstock.model.change import CHANGE_TYPE, COMMIT_TIMESTAMP, DELETED, SEQUENCE
from penstock.model.chunk import StagedChunk
from penstock.model.offset import LogRange, Offset
from penstock.model.partial_snapshot import KeyValues
from penstock.model.schema import DEFAULT_TYPES, TableSchema, TypeOptions
from penstock.sources.named_keys import missing_keys
from penstock.sources.windows import LogPlaces, LogState, Window

Mode = Literal["append", "merge"]


@dataclass(frozen=True)
class KeyScan:
    """Keys that occur in `range` are dropped, but for transactions in `seen` (`Window.seen`; None: none)."""

    range: LogRange
    seen: str | None = None


@dataclass(frozen=True)
class Placed:
    """The chunk is placed at the epoch's end, without the keys of `scans`. Its view held all of the log up to
    `window`."""

    chunk: StagedChunk
    mode: Mode
    scans: tuple[KeyScan, ...]
    window: Offset = Offset(0)  # noqa: RUF009 (an int)


@dataclass(frozen=True)
class Waiting:
    """The epoch ends before the chunk's high mark."""

    chunk: StagedChunk


@dataclass(frozen=True)
class Void:
    """The chunk's rows are no longer true. Discard it and read it again (or plan the table anew)."""

    chunk: StagedChunk
    reason: str


@dataclass(frozen=True)
class ReadAgain:
    """The chunk can't be placed, or only at too high a cost. Discard it and read it again."""

    chunk: StagedChunk
    reason: str


Placement = Placed | Waiting | Void | ReadAgain


@dataclass(frozen=True)
class EpochEnd:
    """The epoch that is being planned. `state`: of the log at `range.end`, which is that of `server_uuid`."""

    range: LogRange
    state: LogState
    server_uuid: str


@dataclass(frozen=True)
class Break:
    """A DDL after which rows read before it are untrue: TRUNCATE, DROP, CREATE, RENAME, partition DDL.

    A chunk that was read after it counts as read before it if the log cannot tell: it is then read once more
    needlessly, and never kept wrongly.
    """

    end: Offset
    what: str


@dataclass(frozen=True)
class TableAtEnd:
    """What is known of one table at the epoch's end.

    `start_state` is that of the log at `start`; a chunk that was read before it (by a task that outlived an
    earlier snapshot of the table) is told by it. `breaks` are those after `start`. `fresh`: the target held
    no row of this table when the log was at `start`, and nothing but this pipeline has written it since.
    `cascades`: foreign keys change rows of the table, so a row that is kept must have no event at all behind
    the window: `spark/cascades.py` relies on it."""

    start: Offset
    start_state: LogState
    schema_version: int
    fresh: bool
    breaks: tuple[Break, ...] = ()
    cascades: bool = False


@dataclass(frozen=True)
class PlacementLimits:
    """Bytes of one table's log that a placement may scan for keys."""

    window_bytes_max: int
    append_bytes_max: int


class LogIndex(LogPlaces, Protocol):
    """What placement asks of the relay log. Answers come from the index alone and never change for old
    offsets.
    """

    def window(self, chunk: StagedChunk) -> Window:
        """What the chunk's watermarks say."""

    def table_bytes(self, table: str, log_range: LogRange) -> int:
        """Bytes of row events of the table in the range; an upper estimate will do."""


def table_start(*, last_planned_end: Offset, log_start: Offset) -> Offset:
    """The start of a table that is added now: the first offset no planned epoch has decided about.

    Events before it belong to epochs whose plans left the table out and stay as they are. It must be durable
    before the table's first chunk is planned, and `ensure_executed` holds for it on every server that reads.
    """
    return max(last_planned_end, log_start)


def place(
    chunk: StagedChunk, epoch: EpochEnd, table: TableAtEnd, log: LogIndex, limits: PlacementLimits
) -> Placement:
    """Decides about one staged chunk at the end of one epoch that is being planned. Pure."""
    view = log.window(chunk)
    if (wait := _before_high(chunk, view, epoch)) is not None:
        return wait
    if not view.shows(table.start_state):
        return ReadAgain(chunk, "it was read before the table's start")
    end = epoch.range.end
    window = min(max(view.visible_to(log), table.start), end)
    if (found := _void_reason(chunk, table, window, end)) is not None:
        return Void(chunk, found)
    name = str(chunk.chunk.table)
    whole = LogRange(min(table.start, end), end)
    if table.fresh and log.table_bytes(name, whole) <= limits.append_bytes_max:
        return Placed(chunk, "append", (KeyScan(whole),) if whole else (), Offset(window))
    if log.table_bytes(name, LogRange(Offset(window), end)) > limits.window_bytes_max:
        return ReadAgain(
            chunk, f"more than {limits.window_bytes_max} bytes of the table's log have come since it was read"
        )
    # What the epoch holds from before the table's start is not in the stream.
    since = LogRange(min(max(epoch.range.start, table.start), end), end)
    scans = _merge_scans(view, Offset(window), since, every=table.cascades)
    return Placed(chunk, "merge", scans, Offset(window))


def _before_high(chunk: StagedChunk, view: Window, epoch: EpochEnd) -> Waiting | ReadAgain | None:
    """None: the epoch's end has reached the chunk's high watermark."""
    same = chunk.server_uuid == epoch.server_uuid
    if (same or view.holds_on_every_server) and view.is_passed(epoch.state):
        return None
    if same:
        return Waiting(chunk)
    return ReadAgain(
        chunk,
        f"its high watermark is of the log of server {chunk.server_uuid}, and may never come in that of "
        f"{epoch.server_uuid}",
    )


def place_all(
    chunks: Iterable[StagedChunk],
    epoch: EpochEnd,
    table: TableAtEnd,
    log: LogIndex,
    limits: PlacementLimits,
) -> list[Placement]:
    """One table's staged chunks, in the order of their numbers."""
    return [
        place(chunk, epoch, table, log, limits)
        for chunk in sorted(chunks, key=lambda item: item.chunk.number)
    ]


def _void_reason(chunk: StagedChunk, table: TableAtEnd, window: int, end: int) -> str | None:
    for broken in table.breaks:
        if window < broken.end <= end:
            return f"{broken.what} at offset {broken.end} came after it was read"
    if chunk.schema_version != table.schema_version:
        return f"it was read with schema version {chunk.schema_version}, the log is at {table.schema_version}"
    return None


def _merge_scans(view: Window, window: Offset, epoch: LogRange, *, every: bool) -> tuple[KeyScan, ...]:
    before = LogRange(min(window, epoch.start), epoch.start)
    scans = (KeyScan(before, None if every else view.seen), KeyScan(epoch))
    return tuple(scan for scan in scans if scan.range)


def shared_scans(placed: Sequence[Placed], common: Callable[[Sequence[str]], str]) -> tuple[KeyScan, ...]:
    """Scans that serve several placed chunks of one table and epoch at once: the union of theirs, or more.

    One key set for all chunks costs one pass over the log instead of one per chunk. More is dropped from
    some chunks than their own scans ask for, which is right as long as it lies within `(S, E]` (see above):
    every scan does. `common`: see `sources.windows.Windows`.
    """
    seen = [scan.seen for item in placed for scan in item.scans if scan.seen is not None]
    shared = common(seen) if seen else None
    ranges: dict[bool, LogRange] = {}
    for item in placed:
        for scan in item.scans:
            excluded = scan.seen is not None
            known = ranges.get(excluded, scan.range)
            ranges[excluded] = LogRange(
                Offset(min(known.start, scan.range.start)), Offset(max(known.end, scan.range.end))
            )
    return tuple(
        KeyScan(ranges[excluded], shared if excluded else None)
        for excluded in (True, False)
        if excluded in ranges
    )


def place_rows(
    batches: Iterable[pa.RecordBatch],
    keys: _core.KeySet | None,
    end: Offset,
    schema: TableSchema,
    *,
    layout: Literal["latest", "changelog"] = "latest",
    types: TypeOptions = DEFAULT_TYPES,
) -> Iterator[pa.RecordBatch]:
    """A chunk's rows in the layout of the epoch: without the keys in `keys`, with `_sequence` = `end`.

    `keys` is None for a table without a key. A placed row has no commit time: it was read, not logged.
    """
    target = _core.arrow_schema(schema.to_json(), layout, types.to_json())
    for batch in batches:
        kept = batch if keys is None else keys.drop_from(batch)
        if kept.num_rows:
            yield _with_columns(kept, target, end)


def place_named(
    batches: Iterable[pa.RecordBatch],
    named: Sequence[KeyValues],
    keys: _core.KeySet,
    end: Offset,
    schema: TableSchema,
    *,
    layout: Literal["latest", "changelog"] = "latest",
    types: TypeOptions = DEFAULT_TYPES,
) -> Iterator[pa.RecordBatch]:
    """The same for a chunk of `named` keys: one that was not there and has no event in the window is not
    there at `end` either, so its row is deleted at the target."""
    read = list(batches)
    yield from place_rows(read, keys, end, schema, layout=layout, types=types)
    fields = _core.arrow_schema(schema.to_json(), "rows", types.to_json())
    found = pa.Table.from_batches(read, fields).select(list(schema.key))
    gone = keys.drop_from(missing_keys(schema, named, found, types))
    if gone.num_rows:
        target = _core.arrow_schema(schema.to_json(), layout, types.to_json())
        yield _with_columns(gone, target, end, deleted=True)


def _with_columns(
    batch: pa.RecordBatch, target: pa.Schema, end: Offset, *, deleted: bool = False
) -> pa.RecordBatch:
    added: dict[str, object] = {
        DELETED: deleted,
        SEQUENCE: end,
        COMMIT_TIMESTAMP: None,
        CHANGE_TYPE: "delete" if deleted else "read",
    }
    columns = list(batch.columns)
    for field in list(target)[batch.num_columns :]:
        columns.append(pa.repeat(pa.scalar(added[field.name], field.type), batch.num_rows))
    return pa.RecordBatch.from_arrays(columns, schema=target)
