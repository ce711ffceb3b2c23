"""The Rust core: log events and result rows to Arrow. Batches are pyarrow objects; the GIL is released.

Rust file, this stub and the test carry the same names. `table` arguments are `TableSchema.to_json()`; offsets
are relay-log offsets (`base` of the segment + position in its file); for a plain binlog file use base 0.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from typing_extensions import Buffer

class DecodeError(Exception):
    """Malformed input. Never a panic, never invented rows."""

    path: str | None
    offset: int
    reason: str
    def __init__(self, reason: str, offset: int, path: str | None = None) -> None: ...

class SchemaMismatch(DecodeError):
    """A table map does not fit the TableSchema it should be decoded with."""

    table: str
    lacks: str
    """What the row image would have to have: `columns` (binlog_row_image is not FULL), `generated` (columns
    that MariaDB 11 leaves out of updates and deletions), or nothing."""

# gtid.rs ------------------------------------------------------------------------------------------

class GtidSet:
    """A set of MySQL GTIDs (`uuid:1-5:7,uuid2:tag:1`), tags (8.3+) are kept; or a position of MariaDB
    (`0-1-100,2-7-5`): the last GTID of each domain, and all before it. Immutable."""

    def __init__(self, text: str = "") -> None: ...
    def __contains__(self, gtid: str) -> bool: ...
    def issubset(self, other: GtidSet) -> bool: ...
    def union(self, other: GtidSet) -> GtidSet: ...
    def difference(self, other: GtidSet) -> GtidSet: ...
    def intersection(self, other: GtidSet) -> GtidSet: ...
    def count(self) -> int: ...
    def encode(self) -> bytes:
        """As COM_BINLOG_DUMP_GTID wants it."""
    def __bool__(self) -> bool: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...
    def __str__(self) -> str: ...

# frame.rs, span.rs ---------------------------------------------------------------------------------

class Framer:
    """The replication connection's bytes to the relay log's: packets, checksums, transaction ends, segments,
    index.

    Offsets are counted here. A segment begins at a transaction boundary, once `segment_size` is passed,
    `roll` was called, or the source's format changed. Index entries are JSON text (see ARCHITECTURE.md),
    spans of at most about `span_size`. `executed`: GTIDs before `offset` (None: taken from the source file's
    PREVIOUS_GTIDS). `file` and `position`: where the source is known to stand; never moves back.
    `skip_until_us` / `skip_until` drop transactions until one begins at or after the commit time / source
    position. `expected` is `(GTID or None, length, digest)` of our last transaction, asked for again:
    compared when it comes, not stored. `prepared`: the XA transactions prepared at `offset` as (xid, file,
    start, length), their events in files of the folder `spool`; `spool_number` is that of the next file,
    and `generation` the writer's.
    """

    def __init__(
        self,
        *,
        offset: int,
        segment_size: int,
        span_size: int,
        server_uuid: str,
        executed: GtidSet | None = None,
        file: str = "",
        position: int = 0,
        skip_until_us: int | None = None,
        skip_until: tuple[str, int] | None = None,
        expected: tuple[str | None, int, int] | None = None,
        prepared: Sequence[tuple[str, str, int, int]] = (),
        spool: str = "",
        spool_number: int = 0,
        generation: int = 0,
    ) -> None: ...
    def feed(
        self, data: bytes
    ) -> list[bytes | tuple[str, bytes] | tuple[int, int] | tuple[int, bytes, list[str]]]:
        """Bytes to append to the open segment; `(file, bytes)` to append to a spool file, which they make if
        it is new; `(start, end)` when the row events between have been taken back (`take_back`); and `(base,
        head, entries)`: commit `entries`, close the segment, open the one at `base` beginning with `head`.
        All of it has to be written before the next call. Call again with nothing while `more`."""
    @property
    def more(self) -> bool: ...
    def cut(self) -> list[str]:
        """Index entries for everything given since the last cut; none when there is nothing new."""
    def roll(self) -> None:
        """The next transaction begins a new segment."""
    @property
    def held_bytes(self) -> int:
        """Of a transaction whose place is not known yet, so that `offset` does not count them."""
    @property
    def spool_files(self) -> list[str]:
        """Those that are needed behind what the next `cut` gives."""
    @property
    def has_segment(self) -> bool: ...
    @property
    def offset(self) -> int: ...
    @property
    def committed(self) -> int: ...
    @property
    def source(self) -> tuple[str, int]: ...
    @property
    def executed(self) -> GtidSet: ...
    @property
    def transactions(self) -> int: ...
    @property
    def events(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    @property
    def last_commit_us(self) -> int | None: ...
    @property
    def verified(self) -> bool:
        """The expected transaction came and was equal."""
    @property
    def diverged(self) -> bool:
        """It came and was not equal."""
    @property
    def ended(self) -> bool:
        """The server said that its log ends here."""
    @property
    def server_error(self) -> tuple[int, str, str] | None:
        """Code, SQLSTATE and message of the ERR packet that ended the stream."""

def digest_span(path: str, base: int, start: int, end: int) -> tuple[int, int]:
    """Length and digest of the events of `(start, end]` of a segment, as `Framer` compares them. Raises
    `DecodeError` where they are damaged."""

def take_back(path: str, base: int, start: int, end: int) -> None:
    """Makes the row events of `(start, end]` of a segment IGNORABLE ones."""

def whole_statement(path: str, base: int, offset: int, length_max: int) -> str | None:
    """The statement (JSON) of the event at an offset of a segment, in full: `database`, `sql`; `sql_mode`
    where the event tells it; `updates`, the databases that it wrote to (null: the event does not list them,
    not there: it says nothing of them). None: the event is longer than `length_max` bytes, or no statement.
    Raises `DecodeError` where the segment is damaged or gone."""

def scan_span(
    path: str, base: int, start: int, end: int, *, open: Sequence[int] = (), file: str = "", position: int = 0
) -> str:
    """The index entry (JSON) of `(start, end]` of a segment, from its events. `file`/`position`: the source's
    place at `start`; `open`: offsets of the events to read first when `start` lies inside a transaction (its
    GTID event, then the table maps in force), in log order."""

# column/ : the only home of the type mapping ------------------------------------------------------

def arrow_schema(table: str, layout: str, types: str = "{}", partial_images: bool = False) -> pa.Schema:
    """The Arrow schema of a layout.

    - `rows`: the table's columns only (snapshot chunks, result sets).
    - `latest`: columns, then `_deleted: bool`, `_sequence: int64`, `_commit_timestamp: timestamp[us, UTC]`.
    - `changelog`: columns, then `_change_type: string`, `_sequence`, `_commit_timestamp`.
    - with `partial_images`, `latest` and `changelog` end with `_present: string`: see `RangeDecoder`.
    Column order is the source's. Every column is nullable in `latest` and `changelog`.

    Bytes that mean nothing in their column's character set stand in the text as `\\xNN`: nothing is lost
    silently. `types`: `TypeOptions.to_json()`, here and below. Its `zero_dates`: `null`; `text` (every date,
    datetime and timestamp column is a string); `error` (SchemaMismatch). Partial and impossible dates and the
    year 0 count too. In a key all of them are refused unless `text`.
    """

# described.rs ---------------------------------------------------------------------------------------

def first_described(table: str, path: str, base: int, start: int, end: int) -> str | None:
    """What the log itself tells of a table's definition (`binlog_row_metadata = FULL`): JSON of its first
    table map in `(start, end]`, `{"offset", "key": [names] | null, "columns": [...]}`.

    A column that `table` has under the same name and with a type that fits is `{"name", "known": true}`, the
    others are in the terms of `penstock.model.schema.Column`. None: no map of the table, or maps without
    names.
    """

# decode.rs ----------------------------------------------------------------------------------------

class RangeDecoder:
    """Decodes one split (see `penstock.model.offset.Split`) of the log for one table; an iterator of
    RecordBatches.

    Reads only `(start, end]` of `path` plus the `preamble` events. Row events of other tables are stepped
    over by their headers; with `positions` (of an `Outline`) none but the table's own are read.
    `end` must be the end of an event, otherwise `DecodeError`. Decoding twice gives equal batches.

    layout `changelog`: every row image in log order; with `before_images=False` updates have no preimage
    rows, with `foreign_key_checks=True` images written by sessions with `foreign_key_checks = 0` are left
    out. layout `latest`: one row per key, the last change in the split; an update that changes the key
    gives a deletion of the old key and a row for the new one. Needs a key. Order of rows is unspecified but
    stable. `columns` projects (names; None: all). `bucket=(i, n)` keeps only keys whose hash falls into
    share i of n; the hash is the same in every process and for every split. `exclude_gtids` skips whole
    transactions in that set. `seen` (layout `latest`): keys in it are left out, the split's own are added.
    So splits read from the last to the first with one set between them give one row per key of them all,
    and nothing but keys is held in memory.

    Changes of JSON documents (PARTIAL_JSON) are applied to the document in the image before; without it,
    `SchemaMismatch`.

    Images that lack columns (binlog_row_image MINIMAL, NOBLOB) are a `SchemaMismatch` unless
    `partial_images`. With it, what only the image before has is taken from there, and `_present` says what
    the row has then: null, everything; else a character for each column of the table (also of those not in
    `columns`), `1`: the value is here, `0`: the column kept its value and is null here. In layout `latest` a
    key may then have several rows, each with columns that the newer ones lack: `LatestReducer` makes one of
    them. A row that is not whole may be the only thing the log says of its key: the target completes it.
    Inserts and deletions are whole. An insert that leaves out columns has their `defaults` (a batch of one
    row, of the types of `arrow_schema`, with the columns for which this is known); what is needed and not in
    it is a `SchemaMismatch`, and so is an update that changes the key and lacks columns, and any update of
    MariaDB that lacks them in both images (a REPLACE looks the same there).

    MariaDB 11 leaves generated columns out of the images of updates and deletions. That is a `SchemaMismatch`
    unless `base_columns` are given: then such a row has nulls in them, and a last column `_base: string` has
    its values of `base_columns` as SQL literals with commas between them; null: the row has everything. The
    other columns count as told by `_present`.
    """

    def __init__(
        self,
        table: str,
        path: str,
        base: int,
        start: int,
        end: int,
        *,
        preamble: Sequence[tuple[str, int, int]] = (),
        positions: bytes | None = None,
        layout: str = "changelog",
        columns: Sequence[str] | None = None,
        before_images: bool = True,
        foreign_key_checks: bool = False,
        bucket: tuple[int, int] | None = None,
        exclude_gtids: GtidSet | None = None,
        seen: KeySet | None = None,
        types: str = "{}",
        partial_images: bool = False,
        defaults: pa.RecordBatch | None = None,
        base_columns: Sequence[str] | None = None,
        batch_rows: int = 16384,
        batch_bytes: int = 8 * 1024 * 1024,
    ) -> None: ...
    @property
    def schema(self) -> pa.Schema: ...
    def __iter__(self) -> Iterator[pa.RecordBatch]: ...
    def __next__(self) -> pa.RecordBatch: ...

class Outline:
    """Where the events of many tables lie in one split, found in one walk; tables are (database, name) and
    then go by their place in the list.

    `of` is None where there are more than eight million events. `positions` are those that a `RangeDecoder`
    of the table needs of `(start, end]`, a part of the split: eight bytes each.
    """

    @staticmethod
    def of(
        tables: Sequence[tuple[str, str]],
        path: str,
        base: int,
        start: int,
        end: int,
        *,
        preamble: Sequence[tuple[str, int, int]] = (),
    ) -> Outline | None: ...
    def positions(self, table: int, start: int, end: int) -> bytes: ...

class LatestReducer:
    """Last change per key over `latest` batches from anywhere (after a shuffle, say); the greatest
    `_sequence` wins. Holds every batch until `finish`.

    Batches with `_present` are put together column by column: of each column the newest value there is, of
    `_deleted`, `_sequence` and `_commit_timestamp` the newest row's. What is still missing then is not in
    these batches, and `_present` of the result says so."""

    def __init__(self, table: str, *, types: str = "{}") -> None: ...
    def push(self, batch: pa.RecordBatch) -> None: ...
    def finish(self) -> list[pa.RecordBatch]: ...

class KeySet:
    """Keys (before and after images) that occur in parts of the log, as 128-bit hashes: 16 bytes a key and
    overhead.

    With `partial_images`, `add_split` keeps apart the keys of which the splits only have updates that lack
    columns, with what these say; `drop_from` then leaves their rows in and lays it over them. `defaults`: as
    for `RangeDecoder`, for inserts that leave out columns of the key."""

    def __init__(
        self,
        table: str,
        *,
        types: str = "{}",
        partial_images: bool = False,
        defaults: pa.RecordBatch | None = None,
    ) -> None: ...
    def add_split(
        self,
        path: str,
        base: int,
        start: int,
        end: int,
        *,
        preamble: Sequence[tuple[str, int, int]] = (),
        exclude_gtids: GtidSet | None = None,
    ) -> None: ...
    def __len__(self) -> int: ...
    def drop_from(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of `batch` (layout `rows`) whose key is not in the set."""

# resultset.rs -------------------------------------------------------------------------------------

class ResultSetDecoder:
    """Rows of a COM_STMT_EXECUTE answer (binary protocol) to Arrow, layout `rows`; the same builders as the
    log.

    Feed raw bytes from the socket as they come (packets of any split). The columns of the SELECT are the
    table's columns in order, with `character_set_results = NULL`.
    """

    def __init__(
        self,
        table: str,
        *,
        types: str = "{}",
        batch_rows: int = 65536,
        batch_bytes: int = 32 * 1024 * 1024,
    ) -> None: ...
    def feed(self, data: Buffer) -> list[pa.RecordBatch]: ...
    @property
    def done(self) -> bool:
        """The final EOF/OK packet has been seen (`feed` raises `ServerError` on an ERR packet)."""
    @property
    def columns_fit(self) -> bool:
        """The answer's columns have been seen and fit the schema: a later `SchemaMismatch` is about a
        value."""
    @property
    def rows(self) -> int: ...
    def finish(self) -> pa.RecordBatch | None: ...

class ServerError(Exception):
    code: int
    sqlstate: str
    message: str

# text.rs -------------------------------------------------------------------------------------------

def row_hashes(table: str, batch: pa.RecordBatch, columns: Sequence[str], types: str = "{}") -> pa.Array:
    """uint64 per row: the first 60 bits of SHA-256 over the row's canonical text, the text the server itself
    computes with `penstock.verify.sql`. core/src/text.rs defines it, type by type."""

def row_texts(table: str, batch: pa.RecordBatch, columns: Sequence[str], types: str = "{}") -> pa.Array:
    """string per row: the canonical text of these columns (those of the key, say)."""

def row_buckets(
    table: str,
    batch: pa.RecordBatch,
    columns: Sequence[str],
    *,
    width: int = 0,
    count: int = 0,
    types: str = "{}",
) -> pa.Array:
    """int64 per row: the integer in the one column divided by `width`, towards zero; or, for `count`, the
    CRC32 of the canonical text of the columns modulo `count`."""

# inspect.rs ----------------------------------------------------------------------------------------

def read_statement(path: str, position: int) -> dict[str, Any]:
    """A QUERY event at a byte position of a binlog file: `{sql, database, timestamp, thread_id, error_code,
    charset, sql_mode}`."""

class Inspector:
    """Walks one binlog file for `penstock inspect`; `next_lines` yields JSON text of changes, one a line.

    `base` is the offset of the file's first byte, `end` the position where reading stops (None: the file's
    end). `schemas` (`TableSchema.to_json()`) name columns where table maps do not; `tables`
    (`database.table`) filters.
    """

    def __init__(
        self,
        path: str,
        *,
        base: int = 0,
        end: int | None = None,
        schemas: Sequence[str] = (),
        tables: Sequence[str] = (),
        count_only: bool = False,
    ) -> None: ...
    def next_lines(self, limit: int = 1000) -> list[str] | None:
        """At most `limit` lines; None at the end. Where the file is damaged, `DecodeError` comes after all
        lines before that place. With `count_only`, reads about `limit` events and gives no lines."""

    def summary(self) -> str:
        """Counts of what has been read so far: docs/inspect.md."""
