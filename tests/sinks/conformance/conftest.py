"""`tables` and `changes`: a case for each sink that keeps tables, and for each that takes changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.sinks.conformance import registered, with_servers
from tests.sinks.conformance.case import Case

from penstock.sinks import registry
from penstock.sinks.lake.delta.options import DeltaOptions
from penstock.sinks.lake.iceberg.options import IcebergOptions


@pytest.fixture(autouse=True)
def example_is_registered() -> Iterator[None]:
    with registered.with_example():
        yield


def _case(
    name: str, spark: SparkSession, lake_root: Path, iceberg: IcebergOptions, delta: DeltaOptions
) -> Case:
    if name in registered.ON_SERVERS:
        kind = replace(
            registry.kind(name.partition("-")[0]), example=lambda folder: with_servers.options(name)
        )
        if kind.jars:
            with_servers.add_jars(spark, with_servers.options(name))
        return Case(spark, kind, lake_root / name)
    kind = registry.kind(name)
    if name == iceberg.type:
        kind = replace(kind, example=lambda folder: iceberg)
    if name == delta.type and delta.directory is None:
        kind = replace(kind, example=lambda folder: delta)
    return Case(spark, kind, lake_root / name)


def _params(*, tables: bool) -> list[Any]:
    return [
        pytest.param(name, marks=pytest.mark.slow if name in registered.SLOW else ())
        for name in [*registered.names(tables=tables), *(registered.ON_SERVERS if tables else ())]
    ]


@pytest.fixture(params=_params(tables=True))
def tables(
    request: pytest.FixtureRequest,
    example_is_registered: None,
    spark: SparkSession,
    lake_root: Path,
    iceberg: IcebergOptions,
    delta: DeltaOptions,
) -> Case:
    return _case(request.param, spark, lake_root, iceberg, delta)


@pytest.fixture(params=_params(tables=False))
def changes(
    request: pytest.FixtureRequest,
    example_is_registered: None,
    spark: SparkSession,
    lake_root: Path,
    iceberg: IcebergOptions,
    delta: DeltaOptions,
) -> Case:
    return _case(request.param, spark, lake_root, iceberg, delta)
