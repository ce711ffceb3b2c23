"""The placement rule: decides when the rows of a staged chunk may enter the stream, and which of them.

**Terms.** The log is a sequence of transactions. `prefix(X)` is the set of those that end at or before
offset X. A chunk was read in a view V: the set of transactions whose effects its SELECT saw. Its watermarks
guarantee `low ⊆ V ⊆ prefix(high)` (`sources/windows.py`; each source argues why). Neither V nor `low`
has to be a prefix of the log, because servers make transactions visible in another order than the log's. S
is the table's start. E is the end of the epoch that places the chunk.

**The rule.** A chunk is placed at the end of an epoch under these conditions:

1. The epoch is planned after the chunk was staged, and its end E has reached the chunk's high watermark.
2. Rows are dropped if their key occurs (in a before or after image) in a transaction of `(S, E]` that is
   not in `low`.
3. The chunk is void if `prefix(E)` contains, outside `low`, a DDL that removes or replaces rows, or if the
   schema has changed since.
4. S is such that every epoch after S includes this table, and `prefix(S) ⊆ low`.

When has E reached the high watermark? If the watermark is a place in the log of the followed server: when E
is at or after that place. If the chunk was read from a replica (`snapshot.hosts`), the high watermark is a
set of transactions that contains V. E has reached it when `prefix(E)` contains the whole set: `V ⊆ high ⊆
prefix(E)`. The rest of the rule is the same: `low` is a set as before, though it may lack much more of the
log, and the argument does not depend on the server that answered. But a replica's V is older than the
source's state, which has two consequences. First, `prefix(S) ⊆ low` does not hold automatically, so the
reader waits for the replica. Second, the replica may not yet have executed a schema change that the chunk
was planned with.
Missing names or changed types would show, but two columns that swapped their names would not. So `low` must
also contain that statement. A failover can lose transactions that are in `high`, so that E never reaches
it. Such a chunk is read again once another server is followed.

Watermarks can be places in the source's log instead of sets of transactions. Then `low` means all
transactions up to its place, in the log of the server that wrote it: `prefix(low)`, which is a set like any
other.

**Why it is right.** Take a row of the chunk that is not dropped, with key k. By (1), `low ⊆ V ⊆ prefix(E)`.
By (2) and (4), every transaction of `prefix(E)` that touches k is in `low`: those up to S by (4), and those
of `(S, E]` because k was not dropped. So V and `prefix(E)` contain the same transactions that touch k, and
the chunk's row *is* the row at E: newer than every earlier event of its key, and older than every later one.
With `_sequence` E it wins against all events up to E and loses against all later ones. A deleted row is
either not in V, or its deletion is outside `low` and its key is dropped. Now take a key that was dropped. It
has an event in `(S, E]`, which by (4) was emitted in this or an earlier epoch, so the stream alone gives its
state at E. Last, take a row that exists at E but is not in V. The transaction that created it is not in V, so
not in `low`, so by (4) it is after S: the stream brings the row. So nothing is missing and nothing is stale.
The argument does not need chunks to be placed in order, or soon: a later E only makes the window larger. It
does not need the smallest possible window either: **any superset of keys within `(S, E]` may be dropped**,
because what is dropped is in the stream. Two things use this freedom:

- Keys of *all* events of the epoch itself are dropped, also of transactions in `low`. So a key never occurs
  twice in one epoch, and events and placed rows can be committed together without a reduction over both.
- If *every* key that occurs in `(S, E]` is dropped, no remaining key has an event after S, so the stream
  cannot have written it to the target. Chunks of one table do not overlap (a row moves between chunks only by
  an event after S). So if the target had no row of this table at S, the remaining rows can be **appended**
  without reading the target. Not so if the table's columns changed in `(S, E]`: a chunk is read behind the
  last such change (3), and the keys of earlier events cannot be read with its definition. Then the remaining
  rows are merged, and only the events since the chunk's view are read.

A void chunk and a chunk to read again are treated alike: the chunk is read again, with new watermarks. The
difference is for people. The rows of a void chunk are wrong. A chunk to read again would be too expensive
to place, or its watermarks cannot be compared with the log.

**Partial snapshots.** `execute-snapshot` with keys, a range or a condition reads some rows of a table while
the table is followed, after the table's own snapshot. The rule is the same. S is the pipeline's position when
the partial snapshot was requested, or the table's start if that is later. What the target has of these rows
at S may be wrong, and is right at E: the argument above shows that a remaining row is the row at E, and that
the stream has written a dropped key after S. Four things differ. The target has rows of the table, so rows
are merged, never appended. E must be greater than S, because a row needs a greater `_sequence` than the wrong
row it replaces. Partial snapshots may overlap, and two chunks of a list of keys can find one row under two
spellings of its key; so an epoch places chunks of one partial snapshot only, and only one chunk of such a
list. And a requested key that was not found is deleted at E, unless an event of it was dropped: the
transactions that touch it are then in V as well, so it does not exist at E. The relay log from S on is not
deleted until the partial snapshot is done.

**Tables without a key.** Nothing can be dropped from their chunks. They are placed by (1) and (3) alone,
and only in append-only targets, where changes in the window may appear twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import pyarrow as pa

from penstock import _core
from penstock.model.change import CHANGE_TYPE, COMMIT_TIMESTAMP, DELETED, SEQUENCE, public
from penstock.model.chunk import StagedChunk
from penstock.model.offset import LogRange, Offset
from penstock.model.partial_snapshot import KeyValues
from penstock.model.schema import DEFAULT_TYPES, TableSchema, TypeOptions
from penstock.sources.named_keys import missing_keys
from penstock.sources.windows import LogPlaces, LogState, Window

Mode = Literal["append", "merge"]


@dataclass(frozen=True)
class KeyScan:
    """Keys that occur in `range` are dropped, except in transactions that are in `seen` (`Window.seen`;
    None: no exception)."""

    range: LogRange
    seen: str | None = None


@dataclass(frozen=True)
class Placed:
    """The chunk is placed at the epoch's end, without the keys that `scans` find. Its view contains all of
    the log up to `window`."""

    chunk: StagedChunk
    mode: Mode
    scans: tuple[KeyScan, ...]
    window: Offset = Offset(0)  # noqa: RUF009 (an int)


@dataclass(frozen=True)
class Waiting:
    """The epoch ends before the chunk's high watermark."""

    chunk: StagedChunk


@dataclass(frozen=True)
class Void:
    """The chunk's rows are no longer true. It is discarded and read again, or the table is split again."""

    chunk: StagedChunk
    reason: str


@dataclass(frozen=True)
class ReadAgain:
    """The chunk cannot be placed, or only at too high a cost. It is discarded and read again."""

    chunk: StagedChunk
    reason: str


Placement = Placed | Waiting | Void | ReadAgain


@dataclass(frozen=True)
class EpochEnd:
    """The epoch that is being planned. `state`: the state of the log at `range.end`. `server_uuid`: the
    server that wrote this log."""

    range: LogRange
    state: LogState
    server_uuid: str


@dataclass(frozen=True)
class Break:
    """A DDL that makes rows read before it untrue: TRUNCATE, DROP, CREATE, RENAME, partition DDL.

    If the log does not say whether a chunk was read before or after it, the chunk counts as read before. Then
    it is read once more than necessary, but wrong rows are never used.
    """

    end: Offset
    what: str


@dataclass(frozen=True)
class TableAtEnd:
    """A table at the end of the epoch.

    `start_state`: the state of the log at `start`. It reveals chunks that were read before the start, by a
    task that outlived an earlier snapshot of the table. `breaks`: those after `start`. `target_is_empty`: the
    target had no row of this table when the log was at `start`, and only this pipeline has written to it
    since. `redefined`: its columns changed after `start`, and keys of events can be read with one definition
    only. `cascades`: foreign keys change rows of the table. Then a placed row must have no event at all after
    the window, which `spark/cascades.py` relies on.
    """

    start: Offset
    start_state: LogState
    schema_version: int
    target_is_empty: bool
    breaks: tuple[Break, ...] = ()
    redefined: bool = False
    cascades: bool = False


@dataclass(frozen=True)
class PlacementLimits:
    """How many bytes of one table's log may be scanned for keys to place a chunk: by a merge, and by an
    append."""

    window_bytes_max: int
    append_bytes_max: int


class LogIndex(LogPlaces, Protocol):
    """What placement asks about the relay log. The index alone answers, and answers about old offsets never
    change."""

    def window(self, chunk: StagedChunk) -> Window:
        """The meaning of the chunk's watermarks for the log."""

    def table_bytes(self, table: str, log_range: LogRange) -> int:
        """Bytes of the table's row events in the range. An upper bound is enough."""


def table_start(*, last_planned_end: Offset, log_start: Offset) -> Offset:
    """The start of a table that is added now: the first offset that no planned epoch includes.

    Earlier events belong to epochs whose plans do not include the table, and those plans never change. The
    start must be durable before the table's first chunk is planned. Every server that chunks are read from
    must have executed the log up to it.
    """
    return max(last_planned_end, log_start)


def place(
    chunk: StagedChunk, epoch: EpochEnd, table: TableAtEnd, log: LogIndex, limits: PlacementLimits
) -> Placement:
    """Decides about one staged chunk at the end of the epoch that is being planned. Pure."""
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
    appends = table.target_is_empty and not table.redefined
    if appends and log.table_bytes(name, whole) <= limits.append_bytes_max:
        return Placed(chunk, "append", (KeyScan(whole),) if whole else (), Offset(window))
    if log.table_bytes(name, LogRange(Offset(window), end)) > limits.window_bytes_max:
        return ReadAgain(
            chunk, f"more than {limits.window_bytes_max} bytes of the table's log have come since it was read"
        )
    # Events of this epoch before the table's start are not in the stream.
    since = LogRange(min(max(epoch.range.start, table.start), end), end)
    scans = _merge_scans(view, Offset(window), since, every=table.cascades)
    return Placed(chunk, "merge", scans, Offset(window))


def _before_high(chunk: StagedChunk, view: Window, epoch: EpochEnd) -> Waiting | ReadAgain | None:
    """What to do with a chunk whose high watermark the epoch's end has not reached. None: it has."""
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
    """Decides about the staged chunks of one table, in the order of their numbers."""
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
    """Scans for several chunks of one table that are placed by one epoch: the union of their scans, or
    more.

    One set of keys for all chunks needs one pass over the log instead of one pass per chunk. It drops more
    rows of some chunks than their own scans would. That is right as long as all scans lie within `(S, E]`,
    and they do (see the module's argument). `common`: see `sources.windows.Windows`.
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
    """The rows of a chunk without the keys in `keys`, in the layout of the epoch, with `_sequence` = `end`.

    `keys` is None for a table without a key. Placed rows have no commit time, because they were read and
    not logged.
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
    """Places a chunk that was read by a list of keys, `named`. A key that was not found, and has no event in
    the window, does not exist at `end` either. So its row is deleted at the target."""
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
        columns.append(pa.repeat(pa.scalar(added[public(field.name)], field.type), batch.num_rows))
    return pa.RecordBatch.from_arrays(columns, schema=target)
