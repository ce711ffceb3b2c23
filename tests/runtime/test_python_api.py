"""Pipelines that a Python program makes and runs, also in a session of Spark that it has."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock import PenstockError, Pipeline
from penstock.errors import ConfigError
from penstock.runtime.notebook import Plan, Status
from penstock.testing import oracle
from penstock.testing.servers import Database


def options(mysql: Database, folder: Path, **changes: Any) -> dict[str, Any]:
    source = {"host": mysql.host, "port": mysql.port, "user": mysql.user, "password": mysql.password}
    return {
        "name": "shop",
        "source": source,
        "tables": [f"{mysql.name}.*"],
        "sink": {"type": "delta", "path": str(folder / "lake")},
        "state": str(folder / "state"),
        "epoch": {"interval": "100ms"},
        **changes,
    }


@pytest.fixture
def shop(mysql: Database) -> Database:
    mysql.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(20), paid DECIMAL(10,2))",
        "INSERT INTO orders VALUES (1, '<b>', 1.50), (2, NULL, 2)",
    )
    return mysql


def target(spark: SparkSession, shop: Database, folder: Path) -> list[oracle.Row]:
    frame = spark.read.format("delta").load(str(folder / "lake" / shop.name / "orders")).drop("_sequence")
    return oracle.canonical_rows(map(tuple, frame.collect()), oracle.columns_of(shop, f"{shop.name}.orders"))


def test_a_plan_says_what_would_be_done_and_starts_nothing(shop: Database, tmp_path: Path) -> None:
    shop.execute("CREATE TABLE loose (v INT)")
    plan = Pipeline(**options(shop, tmp_path)).plan()
    assert isinstance(plan, Plan)
    loose, orders = plan["tables"]
    assert orders["table"] == f"{shop.name}.orders" and orders["key"] == ["id"] and not orders["parked"]
    assert orders["columns"] == {"id": "int32", "note": "string", "paid": "decimal128(10, 2)"}
    assert orders["rows_estimate"] == 2 and orders["chunks"] == 1
    assert loose["parked"] and any("loose" in risk for risk in plan.risks)
    assert "<table>" in plan._repr_html_() and "orders" in str(plan)
    assert not (tmp_path / "state").exists()


def test_mistakes_in_options_are_named(tmp_path: Path, shop: Database) -> None:
    with pytest.raises(ConfigError, match="snapsot"):
        Pipeline(**options(shop, tmp_path, snapsot={}))
    with pytest.raises(ConfigError, match="has not been run yet"):
        Pipeline(**options(shop, tmp_path)).status()


def test_a_stop_ends_one_run_and_not_the_next(
    shop: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, ended = Pipeline(**options(shop, tmp_path)), []
    monkeypatch.setattr(pipeline, "_run", lambda **_: ended.append(pipeline._stopping.is_set()))
    pipeline.stop()  # as by a signal that comes early
    for _ in range(2):
        pipeline.run()
        pipeline.stop()
    assert ended == [True, False]


@pytest.mark.slow
def test_a_pipeline_runs_in_a_session_of_the_caller_and_leaves_it_as_it_was(
    shop: Database, tmp_path: Path, spark: SparkSession
) -> None:
    before = dict(spark.sparkContext.getConf().getAll()), spark.conf.get("spark.sql.session.timeZone")
    pipeline = Pipeline(**options(shop, tmp_path))
    pipeline.run(once=True, spark=spark)
    assert target(spark, shop, tmp_path) == oracle.rows_of(shop, f"{shop.name}.orders")
    with pipeline.run(background=True, spark=spark):
        with pytest.raises(ConfigError, match="background already"):
            pipeline.run(background=True, spark=spark)
        shop.execute("UPDATE orders SET note = 'x'", "DELETE FROM orders WHERE id = 2")
        deadline = time.monotonic() + 60
        while target(spark, shop, tmp_path) != oracle.rows_of(shop, f"{shop.name}.orders"):
            assert time.monotonic() < deadline and not pipeline.wait(0.2)
        status = pipeline.status()
        assert isinstance(status, Status) and status["running"] and "orders" in status._repr_html_()
    assert not pipeline.status()["running"]
    shop.execute("INSERT INTO orders VALUES (9, 'later', 9)")
    pipeline.run(once=True, spark=spark)
    assert target(spark, shop, tmp_path) == oracle.rows_of(shop, f"{shop.name}.orders")
    assert pipeline.history()[0]["table"] == f"{shop.name}.orders"
    assert spark.range(3).count() == 3
    assert before == (
        dict(spark.sparkContext.getConf().getAll()),
        spark.conf.get("spark.sql.session.timeZone"),
    )


@pytest.mark.parametrize("way", ["by Spark", pytest.param("by the index", marks=pytest.mark.slow)])
def test_a_catalog_that_the_session_of_the_caller_has_not_is_set_up(
    shop: Database, tmp_path: Path, spark: SparkSession, way: str
) -> None:
    catalog = f"own{uuid.uuid4().hex[:8]}"
    sink = {"type": "iceberg", "path": str(tmp_path / "lake"), "catalog": catalog}
    pipeline = Pipeline(**options(shop, tmp_path, sink={**sink, "key_index": way == "by the index"}))
    pipeline.run(once=True, spark=spark)
    shop.execute(
        "UPDATE orders SET note = 'x' WHERE id = 1", "DELETE FROM orders WHERE id = 2",
        "ALTER TABLE orders ADD COLUMN n INT NOT NULL DEFAULT 7, MODIFY COLUMN paid VARCHAR(20)",
        "INSERT INTO orders VALUES (3, 'y', '9', 1)",
    )  # fmt: skip
    pipeline.run(once=True, spark=spark)
    frame = spark.read.format("iceberg").load(str(tmp_path / "lake" / shop.name / "orders"))
    columns = oracle.columns_of(shop, f"{shop.name}.orders")
    found = frame.select(*[column.name for column in columns]).collect()
    assert oracle.canonical_rows(map(tuple, found), columns) == oracle.rows_of(shop, f"{shop.name}.orders")
    assert spark.conf.get(f"spark.sql.catalog.{catalog}", None) is None


@pytest.mark.slow
def test_what_a_session_lacks_is_named(shop: Database, tmp_path: Path, spark: SparkSession) -> None:
    from penstock.config import SparkConfig
    from penstock.sinks.registry import kind
    from penstock.spark.borrowed import _classes_missing, borrow

    with pytest.raises(ConfigError, match="Spark Connect"):
        borrow(object(), SparkConfig(), kind("delta").example(tmp_path), tmp_path)
    lacks = _classes_missing(spark, {"spark.sql.catalog.x": "org.example.Nothing"})
    assert lacks == {"a jar with the class": "org.example.Nothing"}


@pytest.mark.slow
def test_an_error_in_the_background_is_raised_by_wait(shop: Database, tmp_path: Path) -> None:
    wrong = options(shop, tmp_path)
    wrong["source"]["password"] = "wrong"
    pipeline = Pipeline(wrong).run(background=True)
    with pytest.raises(PenstockError):
        pipeline.wait(60)
