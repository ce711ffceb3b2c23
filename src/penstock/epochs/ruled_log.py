"""Encodes a part of the log in which rules change rows: piece by piece, in log order. Spark applies the rules
(`spark/message_rules.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from penstock._core import EncodedMessages, LogEncoder
from penstock.model.schema import TableId, TableSchema
from penstock.state.dead_letters import Letter, Letters

PIECE_BYTES = 4 * 1024**2
"""Bytes of row events whose rows are in memory as Arrow at once, in each thread."""
SQL_BYTES = 16 * 1024**2
"""`PIECE_BYTES` for rules with SQL, and the bytes of log that a thread encodes at once. Each piece is a job
of Spark, which takes a tenth of a second or more."""
SNAPSHOT_ROWS = 50_000
"""Rows of a snapshot that are transformed together, for the same reason."""


Argument = tuple[str, list[tuple[str | None, bool]], list[str], str, bool]
"""The argument `rules` of `_core.LogEncoder`, for one table."""


class Rules(Protocol):
    """The rules of one table, for messages. `schema`: the table's, at the source. `shown`: the table as its
    messages show it."""

    schema: TableSchema
    shown: TableSchema
    uses_sql: bool

    @property
    def for_core(self) -> Argument: ...

    def apply(self, rows: pa.RecordBatch, *, lacks_columns: bool) -> tuple[pa.RecordBatch, list[Letter]]:
        """The columns that the rules make of collected rows, with the numbers of the rows that are left, and
        the rows that are listed because they failed. `lacks_columns`: the log has only parts of some rows."""

    def of_snapshot(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Letter]]:
        """Rows that a snapshot has read, as `_core.RowEncoder` takes those of `shown`, and those that are
        listed because they failed."""


@runtime_checkable
class RuledSink(Protocol):
    """A `LogSink` in front of which rules change rows. `letters`: the folder for rows that fail."""

    letters: Path

    def rules(self, schema: TableSchema) -> Rules | None:
        """The rules of the table. None: it has none, and messages show it as it is. Raises `TableError` if
        its rules cannot be applied to it."""


def arguments(rules: Mapping[TableId, Rules]) -> list[tuple[str, str, Argument]]:
    """The argument `rules` of `_core.LogEncoder`."""
    return [(table.database, table.table, one.for_core) for table, one in rules.items()]


def part_bytes(rules: Iterable[Rules | None], least: int) -> int:
    """Bytes of log that one thread encodes at once."""
    return SQL_BYTES if any(one is not None and one.uses_sql for one in rules) else least


def steps(
    encoder: LogEncoder, rules: Mapping[TableId, Rules], letters: Letters, read_bytes: int
) -> Iterator[EncodedMessages | list[dict[str, Any]]]:
    """Yields what an encoder reads from its part of the log: messages, and the statements between them.
    `letters`: gets the rows that could not be transformed."""
    if not rules:
        yield from _read(encoder, read_bytes)
        return
    piece_bytes = part_bytes(rules.values(), PIECE_BYTES)
    while (collected := encoder.collect(piece_bytes)) is not None:
        for database, table, rows, lacks_columns in collected:
            name = TableId(database, table)
            made, listed = rules[name].apply(rows, lacks_columns=lacks_columns)
            letters.of_log(name, listed)
            encoder.apply(database, table, made)
        yield from _read(encoder, read_bytes)


def _read(encoder: LogEncoder, read_bytes: int) -> Iterator[EncodedMessages | list[dict[str, Any]]]:
    while (step := encoder.read(read_bytes)) is not None:
        yield step


def placed(batches: Iterable[pa.RecordBatch], rules: Rules, letters: Letters) -> Iterator[pa.RecordBatch]:
    """The rows of a snapshot, as `_core.RowEncoder` takes them. Small batches are put together: each is a job
    of Spark, if there is SQL."""
    for rows in gathered(batches, SNAPSHOT_ROWS):
        made, listed = rules.of_snapshot(rows)
        letters.of_snapshot(rules.schema.table, listed)
        yield made


def gathered(batches: Iterable[pa.RecordBatch], rows_max: int) -> Iterator[pa.RecordBatch]:
    """Puts small batches together, so that each has at least so many rows."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(one.num_rows for one in held) >= rows_max or sum(one.nbytes for one in held) >= PIECE_BYTES:
            yield pa.concat_batches(held)
            held = []
    if held:
        yield pa.concat_batches(held)
