"""Frames that are computed once: written as Parquet files, and read from there."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession


class Scratch:
    """A folder of its own, which is emptied first."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self.folder = folder
        self._numbers = itertools.count()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    def keep(self, frame: DataFrame) -> tuple[DataFrame, int]:
        """The same rows, and how many they are."""
        path = self.folder / str(next(self._numbers))
        frame.write.parquet(f"file://{path}")
        return self._spark.read.schema(frame.schema).parquet(f"file://{path}"), rows_in(path)


def rows_in(folder: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in folder.glob("*.parquet"))
