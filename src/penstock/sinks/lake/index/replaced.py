"""Finds the rows that a larger epoch replaces: by the key index, or by reading the keys of data files.

What it costs was measured with numbers as keys. To read and compare the key of one row takes 20 to 90 ns. To
look one key up takes 0.1 to 0.7 microseconds in the largest run of the index, and a little less in each of
the others. To add a row to the index takes 0.15 microseconds. So the index pays where large epochs replace
rows all over a table. It does not pay where the bounds of data files exclude nearly all of the files.

Nobody knows whether rows will be looked up again. So the index gets the rows that it lacks once reading keys
has cost more time than adding these rows would.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.failures.messages import one_sentence
from penstock.sinks.files import WrittenFile
from penstock.sinks.lake.index.tables import Live, Lives, Marked, TableKeys
from penstock.sinks.lake.lookup import DataFile, Found, Unsearchable, deleted_rows, key_files, parquet_file

log = logging.getLogger(__name__)

ROWS_PER_KEY, ROWS_PER_MISSING = 8, 3
"""Looking up one key costs as much as reading the keys of so many rows, and so does adding a row that the
index lacks."""
BATCH_KEYS = 500_000
"""Keys that are looked up at a time."""

L = TypeVar("L", bound=Lives)


def replaced(
    spark: SparkSession,
    index: TableKeys[L],
    live: Live,
    files: Sequence[DataFile],
    keys: Sequence[WrittenFile],
) -> list[Found]:
    """The rows that have one of the keys, and those that are deleted already, for each data file concerned.
    `files`: those that may have such rows. `keys`: files of keys in the types of the index. The caller holds
    `index.changing`. Raises `Unsearchable`."""
    rows = sum(file.rows for file in files)
    missing = sum(file.rows for file in index.missing(live))
    wanted = sum(file.rows for file in keys)
    if index.enabled and is_worth_it(wanted, rows, missing=missing, read=index.rows_read):
        try:
            if index.is_ready(live):
                return [one.found for one in _by_index(index, live, keys)]
        except (Unsearchable, OSError) as why:
            log.info("The keys of a table are read, without its index: %s", one_sentence(why))
    index.rows_read += rows
    return deleted_rows(spark, index.files, files, key_files(keys, index.index.fields))


def is_worth_it(keys: int, rows: int, *, missing: int, read: int) -> bool:
    """Whether to look keys up costs less than to read the keys of so many rows. `missing`: rows that the
    index lacks. `read`: rows that were read so far because of that."""
    return keys * ROWS_PER_KEY + max(0, missing * ROWS_PER_MISSING - read) < rows


def _by_index(index: TableKeys[L], live: Live, keys: Sequence[WrittenFile]) -> list[Marked]:
    found: dict[str, Marked] = {}
    for batch in _batches(index, keys):
        for one in index.rows_of([batch], live):
            earlier = found.get(one.location)
            found[one.location] = one if earlier is None else earlier.and_also(one)
    return list(found.values())


def _batches(index: TableKeys[L], keys: Sequence[WrittenFile]) -> Iterator[pa.RecordBatch]:
    for file in keys:
        with parquet_file(index.files, file.location, file.size) as opened:
            yield from opened.iter_batches(BATCH_KEYS, use_threads=False)
