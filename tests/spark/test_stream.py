from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("damage", [b"", b'{"id', b"{}"])
def test_a_query_starts_whatever_has_become_of_the_checkpoint_of_the_one_before(
    spark: SparkSession, tmp_path: Path, damage: bytes
) -> None:
    """As a loss of power leaves it."""
    from penstock.spark.stream import start_query

    for number in range(2):
        batches = threading.Semaphore(0)
        query = start_query(spark, batches.release, tmp_path)
        for _ in range(2):
            assert batches.acquire(timeout=60), "no batch began"
        query.stop()
        for path in [one for one in (tmp_path / "spark").rglob("*") if one.is_file() and number == 0]:
            path.write_bytes(damage)
