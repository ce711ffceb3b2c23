"""Pipelines over databases of their own on the shared server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.scenarios.schema_changes import Group

from penstock.testing.scenario import Scenario
from penstock.testing.servers import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def scenario(
    mysql: Database, spark: SparkSession, lake_root: Path, tmp_path: Path
) -> Callable[..., Scenario]:
    """`scenario(sink="iceberg", options={…})`."""

    def make(
        sink: str = "iceberg", *, sink_options: dict[str, Any] | None = None, **options: Any
    ) -> Scenario:
        return Scenario(mysql, mysql.name, tmp_path, spark, lake_root, sink, options, sink_options or {})

    return make


@pytest.fixture(scope="module", params=["iceberg", pytest.param("delta", marks=pytest.mark.slow)])
def group(
    request: pytest.FixtureRequest,
    mysql_server: Any,
    spark: SparkSession,
    lake_root: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Group]:
    """Tables after what the module's `live_through(group)` did to them while a pipeline ran; that runs once
    for each sink."""
    folder = tmp_path_factory.mktemp(request.module.__name__.rpartition(".")[2])
    database = Database(mysql_server)
    made = Group(Scenario(database, database.name, folder, spark, lake_root, request.param))
    request.module.live_through(made)
    yield made
    database.drop()
