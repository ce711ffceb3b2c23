"""A pipeline over a database of its own on the shared server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.testing.scenario import Scenario
from penstock.testing.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def scenario(
    mysql: Database, spark: SparkSession, lake_root: Path, tmp_path: Path
) -> Callable[..., Scenario]:
    """`scenario(sink="iceberg", options={…})`."""

    def make(sink: str = "iceberg", **options: Any) -> Scenario:
        return Scenario(mysql, mysql.name, tmp_path, spark, lake_root, sink, options)

    return make
