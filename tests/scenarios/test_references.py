"""`cascades: apply` where the statements that make foreign keys come from a session of another database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.testing import servers
from penstock.testing.scenario import Scenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("name", ["mysql80", "mariadb1011"])
def test_a_parent_that_is_named_without_its_database_changes_the_rows_of_its_own_children(
    name: str, spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    with servers.FLAVORS[name]() as server:
        server.execute(
            "CREATE DATABASE shop",
            "CREATE DATABASE other",
            "CREATE TABLE shop.parent (id INT PRIMARY KEY)",
            "CREATE TABLE other.parent (id INT PRIMARY KEY)",
            "INSERT INTO shop.parent VALUES (1), (2), (3)",
            "INSERT INTO other.parent VALUES (1), (2), (3)",
            "CREATE TABLE shop.altered (id INT PRIMARY KEY, p INT)",
            "INSERT INTO shop.altered VALUES (10, 1), (20, 2), (30, 3)",
        )
        case = Scenario(server, "shop", tmp_path, spark, lake_root, options={"cascades": "apply"})
        with case.running() as pipeline:
            case.drain(pipeline)
            server.execute(
                "USE other",
                "CREATE TABLE shop.child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) "
                "ON UPDATE CASCADE ON DELETE CASCADE)",
                "INSERT INTO shop.child VALUES (10, 1), (20, 2), (30, 3)",
                "ALTER TABLE shop.altered ADD FOREIGN KEY (p) REFERENCES parent (id) ON UPDATE CASCADE "
                "ON DELETE SET NULL",
            )
            case.drain(pipeline)
            server.execute(
                "UPDATE shop.parent SET id = 9 WHERE id = 2",
                "DELETE FROM shop.parent WHERE id = 1",
                "DELETE FROM other.parent",
            )
            case.drain(pipeline)
            status = {one["table"]: one["status"] for one in case.status()["tables"]}
            assert pipeline.stop() == 0
        assert server.query("SELECT id, p FROM shop.child ORDER BY id") == [(20, 9), (30, 3)]
        assert status == {"shop.parent": "live", "shop.child": "live", "shop.altered": "live"}
        case.assert_equal("parent", "child", "altered")
