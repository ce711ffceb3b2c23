"""Stores data frames that are used several times: as Parquet files, so that they are computed only once."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession


class Scratch:
    """A folder for such frames. It is emptied first."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self.folder = folder
        self._numbers = itertools.count()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    def keep(self, frame: DataFrame) -> tuple[DataFrame, int]:
        """The frame, to be read from its file, and its number of rows."""
        path = self.folder / str(next(self._numbers))
        frame.write.parquet(f"file://{path}")
        return self._spark.read.schema(frame.schema).parquet(f"file://{path}"), rows_in(path)


def rows_in(folder: Path) -> int:
    """Number of rows in the Parquet files of a folder."""
    return sum(pq.read_metadata(file).num_rows for file in folder.glob("*.parquet"))
