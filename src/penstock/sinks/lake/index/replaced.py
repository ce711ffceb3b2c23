"""Finds the rows that a larger epoch replaces: by the key index, or by reading the keys of data files."""

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

ROWS_PER_KEY = 8
"""To look a key up in the index costs as much as to read so many rows of data files."""
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
    if is_worth_it(sum(file.rows for file in keys), sum(file.rows for file in files)):
        try:
            if index.is_ready(live):
                return [one.found for one in _by_index(index, live, keys)]
        except (Unsearchable, OSError) as why:
            log.info("The keys of a table are read, without its index: %s", one_sentence(why))
    return deleted_rows(spark, index.files, files, key_files(keys, index.index.fields))


def is_worth_it(keys: int, rows: int) -> bool:
    """Whether looking keys up costs less than reading rows."""
    return keys * ROWS_PER_KEY < rows


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
