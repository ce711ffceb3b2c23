"""The Rust core: decodes log events and result rows into Arrow. Batches are pyarrow objects. The GIL is
released while the core works.

An argument `table` is `TableSchema.to_json()`, and `types` is `TypeOptions.to_json()`. Offsets are those of
the relay log: `base` of the segment plus the position in its file. For a plain binlog file, `base` is 0.

A file is a path, or a `RangedFile`. What the `fetch` of a `RangedFile` raises comes out of every function
and class that reads the file, as it is.

The headings name the files in `core/src`.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, overload

import pyarrow as pa
from typing_extensions import Buffer

T = TypeVar("T")

class DecodeError(Exception):
    """The input is malformed. The core never panics on it, and never invents rows."""

    path: str | None
    offset: int
    reason: str
    def __init__(self, reason: str, offset: int, path: str | None = None) -> None: ...

class SchemaMismatch(DecodeError):
    """The table map of row events does not fit the definition with which they should be decoded."""

    table: str
    lacks: str
    """What the log lacks: `columns` of row images (binlog_row_image is not FULL), `generated` columns (which
    MariaDB 11 leaves out of updates and deletions), `names` of columns, or nothing (empty)."""

# segment_file.rs ----------------------------------------------------------------------------------

class RangedFile:
    """A file whose bytes somebody fetches: `fetch(start, end)` returns the bytes from `start` up to and
    without `end`, in any thread. An answer of another length is a `DecodeError`. `name` is for errors.

    The part from `start` to `end` (None: the end of the file) is fetched in blocks of `block_bytes`, and what
    lies outside it in pieces of 64 KiB. About `cache_bytes` stay in memory, for all readers of the file. As
    long as the path `local` exists, readers open that file instead."""

    def __init__(
        self,
        name: str,
        size: int,
        fetch: Callable[[int, int], Buffer],
        *,
        start: int = 0,
        end: int | None = None,
        block_bytes: int = 4 * 1024 * 1024,
        cache_bytes: int = 32 * 1024 * 1024,
        local: str | None = None,
    ) -> None: ...

File = str | RangedFile

# transaction_sets.rs ------------------------------------------------------------------------------

class GtidSet:
    """A set of MySQL GTIDs (`uuid:1-5:7,uuid2:tag:1`; tags since 8.3), or a position of MariaDB
    (`0-1-100,2-7-5`), which has all GTIDs of each domain up to a last one. Immutable."""

    def __init__(self, text: str = "") -> None: ...
    def __contains__(self, gtid: str) -> bool: ...
    def issubset(self, other: GtidSet) -> bool: ...
    def union(self, other: GtidSet) -> GtidSet: ...
    def difference(self, other: GtidSet) -> GtidSet: ...
    def intersection(self, other: GtidSet) -> GtidSet: ...
    def count(self) -> int: ...
    def encode(self) -> bytes:
        """The set in the form of COM_BINLOG_DUMP_GTID."""
    def __bool__(self) -> bool: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...
    def __str__(self) -> str: ...

class SeriesSet:
    """A set of transactions of the format `rows`: the last number of each series (`0-1-100,2-1-7`). It has
    all transactions of a series up to that. Immutable."""

    def __init__(self, text: str = "") -> None: ...
    def __contains__(self, id: str) -> bool: ...
    def issubset(self, other: SeriesSet) -> bool: ...
    def union(self, other: SeriesSet) -> SeriesSet: ...
    def intersection(self, other: SeriesSet) -> SeriesSet: ...
    def __bool__(self) -> bool: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...
    def __str__(self) -> str: ...

class XidSet:
    """A set of transactions of the format `pgoutput`: ranges of ids of 64 bits (`3-731,733`). Immutable."""

    def __init__(self, text: str = "") -> None: ...
    @staticmethod
    def of_snapshot(after: int, running: Sequence[int]) -> XidSet:
        """What a snapshot shows (`pg_current_snapshot`): all ids before `after` that are not `running`."""

    def __contains__(self, id: str) -> bool: ...
    def issubset(self, other: XidSet) -> bool: ...
    def union(self, other: XidSet) -> XidSet: ...
    def intersection(self, other: XidSet) -> XidSet: ...
    def __bool__(self) -> bool: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...
    def __str__(self) -> str: ...

# pgoutput.rs --------------------------------------------------------------------------------------

def pg_column(name: str, kind: str, modifier: int, nullable: bool, shown: str) -> str:
    """The column of a table (`model.schema.Column`, as JSON) for one of PostgreSQL. `kind`: of its values, as
    JSON (`PgColumn.kind`). `modifier`: `atttypmod`. `shown`: as the server writes the type."""

def pg_reads_binary(kind: str) -> bool:
    """Whether the binary form of a type's values is known."""

def pg_relation(message: bytes) -> list[tuple[str, bool, int, int]]:
    """The columns of a message that describes a table: name, whether rows before a change have it, type and
    modifier. Raises `DecodeError`."""

class PgCopyDecoder:
    """Decodes the rows of `COPY … TO STDOUT (FORMAT binary)` into Arrow, layout `rows`. Values are converted
    by the same code as those of the log.

    `feed` takes bytes of the answer, cut anywhere. The SELECT must have the table's columns in order.
    `column_types`: for each, the type of the values that the server sends, as JSON. Raises
    `DecodeError`."""

    def __init__(
        self,
        table: str,
        column_types: Sequence[str],
        *,
        types: str = "{}",
        batch_rows: int = 65536,
        batch_bytes: int = 32 * 1024 * 1024,
    ) -> None: ...
    def feed(self, data: Buffer) -> list[pa.RecordBatch]: ...
    @property
    def done(self) -> bool:
        """Whether the end of the rows has arrived."""
    @property
    def rows(self) -> int: ...
    def finish(self) -> pa.RecordBatch | None: ...

class PgBatch:
    """Messages that came together over a replication connection. Its length is the number of those of the
    log."""

    def __len__(self) -> int: ...
    @property
    def messages(self) -> list[tuple[int, bytes]]:
        """Those of the log, each with its position there."""

    @property
    def kinds(self) -> bytes:
        """Their first bytes."""

    def chosen(self, numbers: Sequence[int]) -> PgBatch:
        """Only these of them."""

    @property
    def end(self) -> int:
        """The server has sent everything up to there."""

    @property
    def asked(self) -> bool:
        """The server wants an answer at once."""

    @property
    def others(self) -> list[tuple[int, bytes]]:
        """Messages of the protocol that are not of the log: their kinds and contents."""

class PgArrivals:
    """Finds the messages in what is read from a replication connection. Raises `DecodeError`."""

    def __init__(self) -> None: ...
    def feed(self, data: bytes) -> None:
        """`data`: as it was read. It may end within a message."""

    @property
    def is_empty(self) -> bool:
        """Whether no message has come as a whole."""

    @property
    def size(self) -> int:
        """The bytes that have come."""

    def take(self) -> PgBatch:
        """What has come as a whole since the last time."""

class PgStreams:
    """Puts the messages of a replication connection into the order in which they hold. Those of transactions
    that the server sends while they run (`streaming`) are kept in files of `folder`, and come when the
    transaction has committed, between its begin and its commit. Raises `DecodeError` and `OSError`."""

    def __init__(self, folder: Path) -> None: ...
    def feed(self, batch: PgBatch) -> None:
        """To be called when `next` has returned None, or the whole batch."""

    def next(self) -> PgBatch | None:
        """The next messages. None: that was all. Only a batch that comes as a whole has `end` and
        `asked`."""

    def clear(self) -> None:
        """Deletes what is kept. Another connection gets it again."""

    @property
    def kept(self) -> tuple[int, int]:
        """How many transactions are kept, and their bytes."""

class PgTranslator:
    """Makes records of the format `pgoutput` from the messages of a replication connection. `end_lsn`: where
    the log ends. `near`: the whole id of a transaction from about the same time. Raises `DecodeError`."""

    def __init__(self, end_lsn: int, near: int) -> None: ...
    def unknown(self, batch: PgBatch) -> list[tuple[int, str, str, bytes]]:
        """The messages that describe tables which are not known, or not so: relation, schema, table, and the
        message."""

    def described(self, relations: Sequence[int]) -> list[tuple[int, str, str, bytes]]:
        """The messages that described these relations, as far as they are known: as from `unknown`."""

    def describe(
        self,
        message: bytes,
        definition: str,
        said: Sequence[tuple[str, str]] = (),
        root: tuple[int, str, str, Sequence[int]] | None = None,
    ) -> None:
        """Says how the table of such a message is defined (JSON with `key` and `columns`), before it is
        translated. `said`: what has happened to the table since the message before, as schemas and JSON.
        `root`: the table of which it is a partition: number, schema, name, and the numbers of all its
        partitions. Then its rows are stored as those of the root. A column's `sent` is its place in the
        messages; without it, columns come in order."""

    def say(self, said: Sequence[tuple[str, str]], commit_us: int) -> bytes:
        """The records of a transaction that only says what has happened to tables. To be called between
        transactions."""

    def translate(self, batch: PgBatch) -> bytes:
        """Records for `Framer.feed`. Those of a transaction whose end has not come are kept until it comes,
        or until they are many."""

    @staticmethod
    def executed(set: str) -> bytes:
        """The record that says that the source had executed these transactions where the log ends."""

    @staticmethod
    def moved(lsn: int) -> bytes:
        """The record that says that the source has advanced to a place without a transaction."""

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open."""

    @property
    def is_settled(self) -> bool:
        """Whether all that was described and translated is in the records that were given."""

    @property
    def is_whole(self) -> bool:
        """Whether the records that were given end with a transaction."""

    @property
    def end_lsn(self) -> int:
        """Where the last transaction ends."""

    @property
    def near(self) -> int:
        """The whole id of the last transaction."""

# frame.rs, segment_framer.rs ----------------------------------------------------------------------

class Framer:
    """Turns the bytes of a replication connection into those of the relay log: cuts packets into events,
    checks checksums, finds transaction ends, and makes segments and the index.

    Offsets are counted here. A segment begins between two transactions, when the one before has
    `segment_size` bytes, when `roll` was called, or when the source's format has changed. Index entries are
    JSON text (see ARCHITECTURE.md). Each describes about `span_size` bytes at most.

    - `executed`: the transactions before `offset`, as text. None: taken from PREVIOUS_GTIDS of the source's
      file.
    - `file`, `position`: the known position of the source. It never moves back.
    - `skip_until_us`, `skip_until`: drops transactions until one begins at or after this commit time, or this
      position of the source.
    - `expected`: `(id or None, length, digest)` of the log's last transaction, which was requested again.
      It is compared when it comes, and not stored.
    - `prepared`: the XA transactions that are prepared at `offset`, as (xid, file, start, length). Their
      events are in files of the folder `spool`. `spool_number`: the number of the next such file.
      `generation`: the writer's.
    - `segment_format`: `mysql-binlog`, or `rows`. `feed` takes whole transactions of the latter, as records.
    """

    def __init__(
        self,
        *,
        offset: int,
        segment_size: int,
        span_size: int,
        server_uuid: str,
        executed: str | None = None,
        file: str = "",
        position: int = 0,
        skip_until_us: int | None = None,
        skip_until: tuple[str, int] | None = None,
        expected: tuple[str | None, int, int] | None = None,
        prepared: Sequence[tuple[str, str, int, int]] = (),
        spool: str = "",
        spool_number: int = 0,
        generation: int = 0,
        segment_format: str = "mysql-binlog",
    ) -> None: ...
    def feed(
        self, data: bytes
    ) -> list[bytes | tuple[str, bytes] | tuple[int, int] | tuple[int, bytes, list[str]]]:
        """Takes bytes of the connection. Returns what must be done, step by step. Each step is one of:

        - bytes: append them to the open segment;
        - `(file, bytes)`: append the bytes to a spool file, which is created if it is new;
        - `(start, end)`: the transaction has rolled back the row events between (call `take_back`);
        - `(base, head, entries)`: commit `entries`, close the segment, and open the one at `base`, which
          begins with `head`.

        All of it must be written before the next call. While `more` is true, call again without bytes."""
    @property
    def more(self) -> bool: ...
    def cut(self) -> list[str]:
        """Index entries for everything that `feed` has returned since the last cut. Empty if there is nothing
        new."""
    def roll(self) -> None:
        """Lets the next transaction begin a new segment."""
    @property
    def undecided_bytes(self) -> int:
        """Bytes of a transaction whose place in the log is not known yet. `offset` does not count them."""
    @property
    def spool_files(self) -> list[str]:
        """The spool files that are still needed after the entries of the next `cut` are committed."""
    @property
    def has_segment(self) -> bool: ...
    @property
    def offset(self) -> int: ...
    @property
    def committed(self) -> int: ...
    @property
    def source(self) -> tuple[str, int]: ...
    @property
    def executed(self) -> str:
        """All transactions that the source had executed at `offset`, as text."""
    @property
    def transactions(self) -> int: ...
    @property
    def events(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    @property
    def incidents(self) -> int:
        """How often the source has said that it lost events."""
    @property
    def last_commit_us(self) -> int | None: ...
    @property
    def verified(self) -> bool:
        """Whether the expected transaction has come and was equal."""
    @property
    def diverged(self) -> bool:
        """Whether it has come and was not equal."""
    @property
    def ended(self) -> bool:
        """Whether the server has said that its log ends."""
    @property
    def server_error(self) -> tuple[int, str, str] | None:
        """Code, SQLSTATE and message of the ERR packet that ended the stream."""

def digest_span(path: File, base: int, start: int, end: int) -> tuple[int, int]:
    """Length and digest of the events in `(start, end]` of a segment, for `expected` of a `Framer`. Raises
    `DecodeError` if they are damaged."""

def take_back(path: str, base: int, start: int, end: int) -> None:
    """Turns the row events in `(start, end]` of a segment into IGNORABLE events, because their transaction
    has rolled them back."""

def whole_statement(path: File, base: int, offset: int, length_max: int) -> str | None:
    """The complete statement of the event at an offset of a segment, as JSON: `database`, `sql`, `sql_mode`
    and `server_charset` if the event has them, and `updates`, the databases that the statement wrote to
    (null: the event does not list them; missing: it says nothing about them). None: the event is longer than
    `length_max` bytes, or is no statement. Raises `DecodeError` if the segment is damaged or does not
    exist."""

def scan_span(
    path: File,
    base: int,
    start: int,
    end: int,
    *,
    open: Sequence[int] = (),
    file: str = "",
    position: int = 0,
) -> str:
    """The index entry (JSON) of `(start, end]` of a segment, computed from its events. `file` and `position`:
    the source's position at `start`. `open`: if `start` is inside a transaction, the offsets of the events to
    read first, in log order: its GTID event, then its current table maps. A ROLLBACK TO a savepoint before
    `start` is not in its statements."""

# column/: the type mapping, which exists only here ------------------------------------------------------

def arrow_schema(table: str, layout: str, types: str = "{}", partial_images: bool = False) -> pa.Schema:
    """The Arrow schema of a layout.

    - `rows`: the table's columns only (snapshot chunks, result sets).
    - `latest`: columns, then `_penstock_deleted: bool`, `_sequence: int64`.
    - `changelog`: columns, then `_change_type: string`, `_sequence: int64`,
      `_commit_timestamp: timestamp[us, UTC]`.
    - With `partial_images`, both of these end with `_penstock_present: string`: see `RangeDecoder`.

    The order of columns is the source's. In `latest` and `changelog`, every column is nullable.

    Bytes without a meaning in their column's character set are written into the text as `\\xNN`, so nothing
    is lost silently. The option `zero_dates` of `types` decides about dates that do not exist (zero and
    partial dates, February 31st, the year 0): `null`; `text` (every date, datetime and timestamp column is a
    string); `error` (a `SchemaMismatch`). In a key they are always refused, except with `text`.
    """

# described.rs ---------------------------------------------------------------------------------------

def first_described(table: str, path: File, base: int, start: int, end: int) -> str | None:
    """The definition of a table in the log itself (`binlog_row_metadata = FULL`): its first table map in
    `(start, end]`, as JSON `{"offset", "key": [names] | null, "columns": [...]}`.

    A column is `{"name", "known": true}` if `table` has a column of this name with a type that fits. Other
    columns have the fields of `penstock.model.schema.Column`. None: there is no map of the table, or the maps
    have no names.
    """

# decode.rs ----------------------------------------------------------------------------------------

class RangeDecoder:
    """Decodes one split (`penstock.model.offset.Split`) of the log for one table. An iterator of
    RecordBatches.

    It reads `(start, end]` of `path`, and before that the events in `preamble`. `end` must be the end of an
    event, otherwise a `DecodeError` is raised. Row events of other tables are skipped by their headers. With
    `positions` (of an `Outline`), only the table's own events are read. Decoding a split twice gives equal
    batches.

    **Layout `changelog`**: every row image, in log order. With `before_images=False`, updates have no row for
    the image before. With `foreign_key_checks=True`, images of sessions with `foreign_key_checks = 0` are
    left out. With `identity_images=True`, images before a change may have only what identifies the row, as
    PostgreSQL's have without REPLICA IDENTITY FULL. Then the other columns are null in them. Without, they
    raise a `SchemaMismatch`.

    **Layout `latest`**: one row per key, the last change in the split. The table must have a key. An update
    that changes the key gives a deletion of the old key and a row for the new one. The order of the rows is
    not specified, but is the same each time.

    - `columns`: names of the columns to decode. None: all.
    - `bucket=(i, n)`: only keys whose hash is in share i of n. The hash is the same in every process and for
      every split.
    - `exclude`: skips whole transactions in this set, in the text form of the segment's format.
    - `seen` (layout `latest`): leaves out the keys in this set, and adds the split's keys to it. So several
      splits that are read from the last to the first with one set give one row per key, and only keys are in
      memory.

    **JSON columns.** Changes of a document (PARTIAL_JSON) are applied to the document in the image before the
    update. If that image lacks it, a `SchemaMismatch` is raised.

    **Images that lack columns** (`binlog_row_image` MINIMAL, NOBLOB) raise a `SchemaMismatch`, unless
    `partial_images` is set. Then values that only the image before the update has are taken from there, and
    `_penstock_present` says what the row has. Null: everything. Otherwise it has one character for each
    column of the table, also for those that are not in `columns`. `1`: the row has the value. `0`: the
    column kept its value, and is null in the row. In layout `latest`, a key may then have several rows,
    each with columns that the newer ones lack; `LatestReducer` combines them. Columns that all of them lack
    must come from the target's row.

    Inserts and deletions are always complete. Columns that an insert leaves out get the values in `defaults`:
    a batch of one row, with the types of `arrow_schema` and the columns whose values are known. A
    `SchemaMismatch` is raised if such a value is needed and not known, and for MariaDB if both images of an
    update lack the same columns (they may be those of a REPLACE).

    A *moved* row has another key than before the update, and lacks columns, whose values stood under the old
    key. `moved="refused"` raises a `SchemaMismatch` (`lacks`: `moved`). `"taken"` gives a row that lacks
    columns; `LatestReducer.complete` completes it. `"only"` gives no other rows than these.

    **Generated columns.** MariaDB 11 leaves them out of the images of updates and deletions. That raises a
    `SchemaMismatch`, unless `base_columns` is given. Then such a row has nulls in them, and a last column
    `_penstock_base: string` with its values of `base_columns`, as SQL literals with commas between them.
    Null: the row has all columns. `_penstock_present` is about the other columns.
    """

    def __init__(
        self,
        table: str,
        path: File,
        base: int,
        start: int,
        end: int,
        *,
        preamble: Sequence[tuple[File, int, int]] = (),
        positions: bytes | None = None,
        layout: str = "changelog",
        columns: Sequence[str] | None = None,
        before_images: bool = True,
        foreign_key_checks: bool = False,
        identity_images: bool = False,
        bucket: tuple[int, int] | None = None,
        exclude: str | None = None,
        seen: KeySet | None = None,
        types: str = "{}",
        partial_images: bool = False,
        moved: str = "refused",
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
    """The positions of the events of many tables in one split, found in one walk over it.

    `of` gets tables as (database, name), and returns None if there are more than eight million events.
    `positions` returns what a `RangeDecoder` of a table needs for `(start, end]`, a part of the split: eight
    bytes for each event. `table` is the table's place in the list.
    """

    @staticmethod
    def of(
        tables: Sequence[tuple[str, str]],
        path: File,
        base: int,
        start: int,
        end: int,
        *,
        preamble: Sequence[tuple[File, int, int]] = (),
    ) -> Outline | None: ...
    def positions(self, table: int, start: int, end: int) -> bytes: ...

class LatestReducer:
    """Keeps the last change of each key in `latest` batches, for example after a shuffle: the one with the
    greatest `_sequence`. All batches stay in memory until `finish`.

    Batches with `_penstock_present` are combined column by column. Each column gets its newest value.
    `_penstock_deleted` and `_sequence` are those of the newest row. `_penstock_present` of the result says
    which values are in none of the batches."""

    def __init__(self, table: str, *, types: str = "{}") -> None: ...
    def push(self, batch: pa.RecordBatch) -> None: ...
    def complete(self, batch: pa.RecordBatch) -> None:
        """Takes rows that are older than all others of their keys, in layout `latest` with
        `_penstock_present`. They count only for keys that other batches have. If such a row is deleted, the
        key has no row."""

    def finish(self) -> list[pa.RecordBatch]: ...

class KeyIndex:
    """Finds the rows of batches that have one of many keys. All batches must have the same columns in the
    same types: those of the key. A key takes about 50 bytes. Thread-safe.

    A key with NULL equals no other. Raises `ValueError` for a type that no key has."""

    def __init__(self) -> None: ...
    def add(self, keys: pa.RecordBatch, sequences: pa.Int64Array) -> None:
        """`sequences`: one for each key, without NULLs. Of equal keys the greatest counts."""
    def find(self, rows: pa.RecordBatch, sequence: int) -> pa.Int64Array:
        """The numbers of the rows, from 0, whose key has a greater sequence than `sequence`."""
    def __len__(self) -> int: ...

class KeySet:
    """The keys that occur in parts of the log, in images before and after changes. A key takes 16 bytes (a
    128-bit hash) and overhead.

    With `partial_images`, keys that only occur in updates that lack columns are stored separately, with these
    changes. `drop_from` then returns their rows with the changes applied. `defaults`: see `RangeDecoder`, for
    inserts that leave out columns of the key."""

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
        path: File,
        base: int,
        start: int,
        end: int,
        *,
        preamble: Sequence[tuple[File, int, int]] = (),
        exclude: str | None = None,
    ) -> None: ...
    def __len__(self) -> int: ...
    def drop_from(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the rows of `batch` (layout `rows`) whose keys are not in the set."""

# key_run.rs ---------------------------------------------------------------------------------------

class KeyRunWriter:
    """Collects which key is in which row of which data file, and writes it as a run: a sorted file at `path`.

    Keys are batches with the key's columns in their order. A key with NULL equals no other, and is left out.
    A key is found again in each type to which its columns may be widened: integers of all widths are equal,
    and so are floats, decimals of one scale, and texts. `seed`: the index's secret number of 64 bits.

    `memory_max` bytes of entries are held. More are kept in files beside `path`, which disappear with the
    process. Raises `ValueError` for what cannot be a key, and `OSError` if the disk fails. Then the writer
    cannot be used any more."""

    def __init__(self, path: str, seed: int, memory_max: int = 64 * 1024 * 1024) -> None: ...
    def add(self, keys: pa.RecordBatch, file: int, first_row: int) -> None:
        """Row i of `keys` is row `first_row + i` of the data file with this number. Files have numbers below
        2^24, and at most 2^32 rows."""
    def add_rows(self, keys: pa.RecordBatch, file: int, rows: pa.Int64Array) -> None:
        """Row i of `keys` is row `rows[i]` of the data file."""
    def finish(self) -> int:
        """Writes the run, and waits until the disk has it. Returns the number of its entries. Until then, no
        one can take the file for a run."""

class KeyRun:
    """A run, for look-ups. Thread-safe. Its file is opened for each of them. Raises `ValueError` with the
    file's name if it is damaged or of another version, as soon as the damaged bytes are read, and `OSError`
    if it cannot be read. Of the file, a twelfth of a byte for each entry is in memory."""

    def __init__(self, path: str) -> None: ...
    @property
    def seed(self) -> int: ...
    def __len__(self) -> int: ...
    def find(self, keys: pa.RecordBatch) -> tuple[pa.Int64Array, pa.Int32Array, pa.Int64Array]:
        """The rows that have the keys: row of `keys`, number of the data file, row in it. They are in the
        order of `keys`. A key may be in several rows. Hardly ever, a row of another key is among them (see
        `core/src/key_run`): compare the keys where that would matter."""
    def verify(self) -> None:
        """Reads the whole file and compares its checksums."""

def merge_key_runs(
    runs: Sequence[str],
    to: str,
    files: Sequence[dict[int, int] | None] | None = None,
    drop: dict[int, bytes] | None = None,
) -> int:
    """Writes the entries of runs with one seed into a new run, and waits until the disk has it. Returns their
    number.

    - `files`: for each run, the new number of each data file by its old one. Entries of other files are left
      out. None: all are kept, with their numbers.
    - `drop`: the rows to leave out, by the new number of their file, as `BitMap64.serialize()` of pyroaring.
    """

# resultset.rs -------------------------------------------------------------------------------------

class ResultSetDecoder:
    """Decodes the rows in the answer to COM_STMT_EXECUTE (binary protocol) into Arrow, layout `rows`. Values
    are converted by the same code as those of the log.

    `feed` takes bytes of the socket, cut anywhere. The SELECT must have the table's columns in order, in a
    session with `character_set_results = NULL`.
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
        """Whether the final EOF or OK packet has arrived. `feed` raises `ServerError` for an ERR packet."""
    @property
    def columns_fit(self) -> bool:
        """Whether the answer's columns have arrived and fit the schema. A later `SchemaMismatch` is about a
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
    """A uint64 for each row: the first 60 bits of the SHA-256 of its canonical text, which the server
    computes, too (`penstock.sources.mysql.verify.sql`). `core/src/text.rs` defines the text of each type."""

def row_texts(table: str, batch: pa.RecordBatch, columns: Sequence[str], types: str = "{}") -> pa.Array:
    """A string for each row: the canonical text of these columns, for example those of the key."""

def row_buckets(
    table: str,
    batch: pa.RecordBatch,
    columns: Sequence[str],
    *,
    width: int = 0,
    count: int = 0,
    types: str = "{}",
) -> pa.Array:
    """An int64 for each row. With `width`: the integer in the only column divided by `width`, rounded towards
    zero. With `count`: the CRC32 of the canonical text of the columns, modulo `count`."""

# encode/, log_order/ --------------------------------------------------------------------------------

LogPart = tuple[File, int, int, int | None, Sequence[tuple[int, str, int]]]
"""A part of the log between two transactions: file, base, start and end (positions in the file; None: its
end), and places of the source: offset, file and position. Without places, the file is the source's own."""

SchemaIds = Callable[[dict[str, Any]], int]
"""Gives the schema of keys or values of a binary format its id: `{table, is_key, name, type, schema}`.
`table`: database and name; None: of the messages about transactions. `name`: the full name of its record.
`type`: AVRO or PROTOBUF. What it raises comes out of `read` or `encode` as it is."""

def transactions_of(
    parts: Sequence[LogPart], tables: Sequence[tuple[str, str]], *, statements: bool = False
) -> tuple[list[int], list[str | None], list[str], list[int]]:
    """The transactions of some parts that have rows of these tables (none: of any table), in the order of the
    log. `statements`: also those that only have statements, such as ALTER TABLE. Of each, the offset where it
    begins, its id, the place in the source's log where it begins, and its commit time in microseconds since
    1970."""

MessageRoute = tuple[str, list[str] | None]
"""`key`, `columns`, `canal`, `canal-database` or `transaction`, and names of columns (None: of the key)."""
MessageTarget = tuple[int, int, int | None, int, int, int]
"""Topic's number, its partitions, partition of messages with a key (None: by the key), of others, bytes of
the largest message, and the first offset whose messages count."""

class LogEncoder:
    """Reads whole transactions in log order, and encodes their rows as messages of a format.

    `format` and `options` (a JSON object): docs/formats.md. `schemas` (`TableSchema.to_json()`) are true
    where the log begins. `tables`: only these (database and name); none: all but those of the server.
    `schema_ids`: of `avro` and `protobuf`, for example `penstock.encode.registry.SchemaIds`. Without it,
    schemas have ids from 1 on. `routes`: what decides the partitions of a table's messages (database, name,
    route). An update that changes what decides is a deletion and an insertion. `columns`: of a table
    (database, name) only these columns (True, names), or all but these (False, names).

    `rules`: of tables whose rows the caller changes (database, name, rules): the table as messages show it
    (`TableSchema.to_json()`); for each of its columns, the source's column that it comes from (None: there is
    none) and whether the caller makes its values; the columns of the source that the caller needs for that,
    and their `TypeOptions.to_json()`; whether rows may be left out. The log is then read piece by piece:
    `collect`, `apply` for each table that has rows, and `read` until it returns None."""

    def __init__(
        self,
        parts: Sequence[LogPart],
        format: str,
        *,
        options: str = "{}",
        schemas: Sequence[str] = (),
        tables: Sequence[tuple[str, str]] = (),
        schema_ids: SchemaIds | None = None,
        routes: Sequence[tuple[str, str, MessageRoute]] = (),
        columns: Sequence[tuple[str, str, bool, Sequence[str]]] = (),
        rules: Sequence[
            tuple[str, str, tuple[str, Sequence[tuple[str | None, bool]], Sequence[str], str, bool]]
        ] = (),
    ) -> None: ...
    def collect(self, bytes: int = 4 << 20) -> list[tuple[str, str, pa.RecordBatch, bool]] | None:
        """Goes on to the next piece of the log, with about `bytes` bytes of row events. Returns the row
        images of each table that has `rules` and rows in it: database, name, the needed columns with
        `_change_type`, `_sequence` and `_penstock_row` (a number from 0 on), and whether some images lack
        needed columns, which are then null. None: the log ends."""

    def apply(self, database: str, table: str, rows: pa.RecordBatch) -> None:
        """What the rules made of a table's rows of this piece: the columns that the caller makes, and in
        `_penstock_row` the number of each row, in order. Other rows are left out. An update of which only
        one row is left is an insertion or a deletion."""

    def read(self, bytes: int = 1 << 20) -> EncodedMessages | list[dict[str, Any]] | None:
        """Messages, about `bytes` bytes and those of one event more; or the statements of one transaction
        that may define tables or change rows without row events: the fields of
        `EncodedMessages.transactions`, and `{segment_format, event_place, database, sql, event, timestamp,
        server_id, sql_mode, server_charset, file, event_position, event_bytes}`. None: at the end.

        Rows behind a statement are not encoded before the next call. `DecodeError` is raised once, after
        everything before it."""

    def define(self, database: str, table: str, schema: str | None, *, certain: bool = True) -> None:
        """The table's definition from here on. None: it is not known. Not `certain`: it is used only where
        the log has the names of columns, and they agree."""
    @property
    def tables(self) -> list[tuple[str, str]]:
        """Database and name of each table, by its number in messages."""
    @property
    def message_schemas(self) -> list[dict[str, Any]]:
        """The schemas of the messages so far: the fields that `schema_ids` gets, and `id`."""

class RowEncoder:
    """Encodes rows that a snapshot read, as messages of a format: Debezium's `op: r`, Maxwell's
    `bootstrap-insert` (begin and end: `penstock.encode.bootstrap`), Canal's INSERT, `op: r` in `json` and
    CloudEvents. Values and keys have the bytes that the same row has in a message of the log.

    `table`: `TableSchema.to_json()`. A batch has the table's columns by their names, with the types of
    `arrow_schema`, so that chunks of the staging can be given as they are. Other columns are not read, but
    for `_sequence`. The type options must keep all values: `decimal: double`, `binary: base64` and `hex`, and
    `tinyint1: boolean` are refused; with `zero_dates: null` a NULL in a NOT NULL column counts as the zero
    date, so use `zero_dates: text` where partial dates matter.

    `segment_format`: that of the log, on which it depends what messages say of the source.
    """

    def __init__(
        self,
        table: str,
        format: str,
        *,
        options: str = "{}",
        schema_ids: SchemaIds | None = None,
        route: MessageRoute | None = None,
        segment_format: str = "mysql-binlog",
    ) -> None: ...
    @property
    def message_schemas(self) -> list[dict[str, Any]]:
        """See `LogEncoder`."""
    def encode(
        self,
        batch: pa.RecordBatch,
        *,
        at_us: int,
        snapshot: str = "true",
        first: str | None = None,
        last: str | None = None,
        place: str = "",
        transaction: str | None = None,
        server_id: int = 0,
        sequence: int = 0,
        first_row: int = 0,
    ) -> EncodedMessages:
        """A message for each row (Canal without `single_rows`: for about 64 KiB of rows). The table's number
        in messages is 0.

        `at_us`: when the rows were read. `snapshot`, and `first` and `last` for the first and the last row of
        the batch: Debezium's `source.snapshot` (`true`, `first`, `first_in_data_collection`,
        `last_in_data_collection`, `last`, `incremental`). `place`, `transaction`: the place of the
        source's log at which the rows were read. `sequence`: of rows without a column `_sequence`.
        `first_row`: the number of the first row, which is part of a CloudEvent's id.

        Raises `SchemaMismatch` for columns that are missing or do not fit."""

def collected_rows(
    table: str, rows: pa.RecordBatch, needed: Sequence[str], types: str = "{}"
) -> pa.RecordBatch:
    """Rows that a snapshot read (those that `RowEncoder.encode` takes), in the form that `LogEncoder.collect`
    gives rows of the log: as inserts."""

def source_fields(
    segment_format: str,
    format: str,
    *,
    place: str,
    at_us: int,
    database: str,
    table: str,
    transaction: str | None = None,
    server_id: int = 0,
    prefix: str = "",
    catalog: str = "",
) -> str:
    """What a message that is not about a row says of the source: the block `source` of Debezium, or the
    fields of `json`, as a JSON object. `place`: in the source's log, as a text. `prefix`: Debezium's of
    topics. `catalog`: see `TableSchema`."""

class EncodedMessages:
    def __len__(self) -> int: ...
    @overload
    def messages(
        self, start: int = 0, end: int | None = None
    ) -> list[tuple[int | None, bytes | None, bytes | None, int]]:
        """Number of the table (None: the begin or end of a transaction), key, value (None: a tombstone), and
        the offset of the change."""
    @overload
    def messages(
        self, start: int, end: int | None, tables: list[T]
    ) -> list[tuple[T | None, bytes | None, bytes | None, int]]:
        """The same, with what `tables` has for the table's number."""
    def records(
        self, targets: Sequence[MessageTarget | None], transactions: MessageTarget | None = None
    ) -> tuple[list[tuple[int, bytearray]], tuple[int, int] | None]:
        """The messages as librdkafka takes them: for each topic an array of `rd_kafka_message_t`, whose
        addresses are valid as long as this object. `targets`: by the number of the table; messages of other
        tables are left out. Or no array, and number of the table and size of a message that is larger than
        its target takes."""

    def hashes(self) -> list[int | None]:
        """The hash that a route gives to each message. None: its key decides."""

    def values(self, start: int = 0, end: int | None = None, *, rows: bool = False) -> MessageValues:
        """The values of these messages; `rows`: without the begins and ends of transactions."""

    def ends(self) -> list[tuple[int, int, int]]:
        """`end`, `messages_end` and `commit_us` of `transactions`."""

    def transactions(self) -> list[dict[str, Any]]:
        """`{id, commit_us, xid, thread_id, position, start, end, messages_end}` of each transaction that ends
        here. `position`: the place in the source's log where it begins. `messages_end`: the number of
        messages up to its end. Messages behind the last one are of a transaction that goes on in the next
        step."""

    def lines(self, keys: bool = False, base64: bool = False) -> bytes:
        """One message a line; with its key and a tab before it. `base64`: both are written so."""

class MessageValues(Sequence[bytes]):
    """Values of messages, which stay where they were encoded: only what is asked for is copied. A slice is of
    the same kind. A tombstone is empty."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> MessageValues: ...
    def sizes(self) -> list[int]:
        """The bytes of each."""

def repeated_field(field: int, sequences: Sequence[Sequence[bytes]]) -> bytes:
    """A field of Protobuf with bytes, once for each value of these sequences."""

# inspect/ -----------------------------------------------------------------------------------------

def server_version(path: File) -> str:
    """The version of the server that wrote a binlog file."""

def read_statement(path: File, position: int) -> dict[str, Any]:
    """The QUERY event at a byte position of a binlog file: `{sql, database, timestamp, thread_id, error_code,
    charset, sql_mode}`."""

class Inspector:
    """Reads one binlog file for `penstock inspect`.

    `base`: offset of the file's first byte. `end`: position in the file at which reading stops. None: the
    file's end. `schemas` (`TableSchema.to_json()`) have the names of columns that table maps do not have.
    `tables`: only these, as `database.table`.
    """

    def __init__(
        self,
        path: File,
        *,
        base: int = 0,
        end: int | None = None,
        schemas: Sequence[str] = (),
        tables: Sequence[str] = (),
        count_only: bool = False,
    ) -> None: ...
    def next_lines(self, limit: int = 1000) -> list[str] | None:
        """Returns the next changes as lines of JSON, about `limit` of them, and None at the end. If the file
        is damaged, `DecodeError` is raised after all lines before that place. With `count_only`, reads about
        `limit` events and returns no lines."""

    def summary(self) -> str:
        """Counts of what has been read so far, as JSON (docs/inspect.md)."""

class TopicTranslator:
    """Turns messages of Debezium's topics into records of the segment format `rows`, for `Framer`.

    `records`: what the log that is continued has of `topic_records`, from the last whole state on; none for a
    new log. Raises `ValueError` for others. `zoned_timestamps`: `instant` or `utc`.
    `unavailable`: the text that stands for values that did not change; `unavailable_uuid`: the UUID that
    stands for them. `table`: a pattern for names of tables. `skips`: messages that cannot be read are
    skipped.
    """

    def __init__(
        self,
        records: list[str],
        *,
        zoned_timestamps: str,
        cuts_nanoseconds: bool,
        unavailable: str,
        unavailable_uuid: str = "",
        table: str | None,
        skips: bool,
    ) -> None: ...
    def set_wide(self, topic: str) -> None:
        """The topic has several partitions."""

    def unknown_schemas(
        self, messages: Sequence[tuple[str, int, int, int, bytes | None, bytes | None]]
    ) -> list[int]:
        """The ids of Avro schemas that messages name and that were not added yet."""

    def add_schema(self, id: int, text: str) -> None:
        """Takes a schema of the registry. Raises `ValueError` if it is no Avro schema."""

    def translate(
        self, messages: Sequence[tuple[str, int, int, int, bytes | None, bytes | None]]
    ) -> tuple[bytes, list[tuple[str, int, int, str]]]:
        """Takes messages (topic, partition, offset, timestamp in ms, key, value), one partition after the
        other. Messages that the log has are ignored. Returns records, and the messages that cannot be read:
        topic, partition, offset, reason. Unless they are skipped, it ends before the first of them."""

    def advance(self, topic: str, partition: int, next: int, timestamp_ms: int) -> bytes:
        """A transaction that says that the partition has no more messages before the offset `next`."""

    def checkpoint(self, timestamp_ms: int) -> bytes:
        """A transaction with the whole state."""

    @staticmethod
    def moved(position: int) -> bytes:
        """The source's position."""

    @property
    def positions(self) -> list[tuple[str, int, str, int]]:
        """Topic, partition, series of its transactions and offset of its next message."""

    @property
    def tables(self) -> list[str]: ...
    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Rows, messages without a row, messages that were sent again, and skipped messages."""

def topic_records(path: str | File, base: int, end: int) -> list[str]:
    """The records of a `TopicTranslator` in a segment up to the offset `end`. Readers skip them."""
