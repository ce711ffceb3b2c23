"""A pipeline that begins where the log's definitions are older than the catalog's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.testing.scenario import Scenario
from penstock.testing.servers import MySqlServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.slow
def test_a_log_with_full_metadata_is_followed_through_definitions_nobody_remembers(
    mysql_factory: Callable[..., MySqlServer], spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    server = mysql_factory(binlog_row_metadata="FULL")
    server.execute(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (old INT, id INT PRIMARY KEY, gone VARCHAR(9) CHARACTER SET latin1, e ENUM('a'))",
    )
    file, position = server.position()
    server.execute(
        "INSERT INTO d.t VALUES (1, 1, 'ü', 'a'), (2, 2, NULL, 'a'), (3, 3, 'x', NULL)",
        "ALTER TABLE d.t DROP COLUMN gone, RENAME COLUMN old TO young, ADD more BIGINT DEFAULT 7 FIRST",
        "INSERT INTO d.t VALUES (8, 4, 4, 'a')",
        "DELETE FROM d.t WHERE id = 2",
        "ALTER TABLE d.t MODIFY young BIGINT",
        "UPDATE d.t SET young = 5000000000 WHERE id = 1",
    )
    case = Scenario(
        server, "d", tmp_path, spark, lake_root, options={"snapshot": {"mode": "never"}},
        source_options={"start": {"file": file, "position": position}},
    )  # fmt: skip
    done = case.command("run", "--once")
    assert done.returncode == 0, done.stderr
    case.assert_equal("t")
