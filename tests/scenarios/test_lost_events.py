"""A log that lost events (INCIDENT), and one that does not say what a transaction took back. The pipeline
says so and reads the tables again. The judge is the source's SELECT."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.relaylog.taken_back import statements_of
from tests.relaylog.test_incident import INCIDENT, OPTIONS
from tests.sources.mysql import test_savepoints
from tests.sources.mysql.receiving import source_events

from penstock.testing import servers
from penstock.testing.scenario import Scenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("flavor", ["mysql80", "mysql57", "mysql97", "mariadb118"])
def test_tables_are_read_again_where_the_source_lost_events(
    flavor: str, spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    with servers.FLAVORS[flavor](OPTIONS) as server:
        server.execute(
            "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (0)",
            "CREATE TABLE d.m (id INT NOT NULL PRIMARY KEY, b LONGTEXT) ENGINE=MyISAM",
            "INSERT INTO d.m VALUES (0, 'a')",
        )  # fmt: skip
        case = Scenario(server, "d", tmp_path, spark, lake_root)
        with case.running() as pipeline:
            case.drain(pipeline)
            case.assert_equal("t", "m")
            with pytest.raises(Exception, match="max_binlog_stmt_cache_size"):
                server.execute("INSERT INTO d.m VALUES (1, REPEAT('x', 100000)), (2, REPEAT('y', 100000))")
            server.execute("INSERT INTO d.t VALUES (1)")
            assert [event[4] for event in source_events(server)].count(INCIDENT) == 1
            assert server.query("SELECT COUNT(*) FROM d.m") == [(3,)], "rows that are in no log"
            case.drain(pipeline)
            status = case.status()
            assert [(table["status"], table["parked"]) for table in status["tables"]] == [("live", None)] * 2
            case.assert_equal("t", "m")
            history = json.loads(case.command("status", "--history", "--json").stdout)
            server.execute("DELETE FROM d.m WHERE id = 0", "DELETE FROM d.t")
            case.drain(pipeline)
            assert pipeline.stop() == 0
        case.assert_equal("t", "m")
        for table in ("d.m", "d.t"):
            said = [one for one in history if one["table"] == table and "INCIDENT" in str(one)]
            assert any("read again" in str(one) for one in said), history
        assert "events were lost (INCIDENT)" in (case.folder / "state" / "relay" / "receiver.log").read_text()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("flavor", ["mariadb118", "mariadb1011"])
def test_tables_are_read_again_where_the_log_does_not_say_what_was_taken_back(
    flavor: str, spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    with servers.FLAVORS[flavor](test_savepoints.OPTIONS[flavor]) as server:
        tables = [f"CREATE TABLE d.{name} (id INT PRIMARY KEY)" for name in "otu"]
        server.execute("CREATE DATABASE d", *tables, test_savepoints.FUNCTION)
        case = Scenario(server, "d", tmp_path, spark, lake_root)
        with case.running() as pipeline:
            case.drain(pipeline)
            server.execute(*test_savepoints.IN_FUNCTION, "INSERT INTO d.u VALUES (7)")
            assert statements_of(server) == ["SAVEPOINT `a`"] * 2 + ["ROLLBACK TO `a`"]
            case.drain(pipeline)
            case.assert_equal("o", "t", "u")
            history = json.loads(case.command("status", "--history", "--json").stdout)
            assert pipeline.stop() == 0
        case.assert_equal("o", "t", "u")
        again = {one["table"] for one in history if "savepoints of one name" in str(one)}
        assert again == {"d.t", "d.u"}, history
