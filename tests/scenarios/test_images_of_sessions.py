"""Sessions that change `binlog_row_image` and `binlog_row_value_options` for themselves, in the middle of a
run and against the server's setting. A table ends equal to the source, or is parked with a
reason that names the setting, and what the reason says mends it. The judge is the source's SELECT."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pymysql
import pytest
from tests.change_log import newest_rows
from tests.scenarios import test_sql

from penstock.testing import oracle, servers
from penstock.testing.scenario import Scenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

IMAGES = {
    "whole": "SET SESSION binlog_row_image = 'FULL'",
    "minimal": "SET SESSION binlog_row_image = 'MINIMAL'",
    "noblob": "SET SESSION binlog_row_image = 'NOBLOB'",
    "nodup": "SET SESSION binlog_row_image = 'FULL_NODUP'",
    "parts": "SET SESSION binlog_row_value_options = 'PARTIAL_JSON'",
    "parts_minimal": (
        "SET SESSION binlog_row_image = 'MINIMAL', SESSION binlog_row_value_options = 'PARTIAL_JSON'"
    ),
}
"""Each with a table of its name. MySQL has no FULL_NODUP, and MariaDB no PARTIAL_JSON."""
TABLE = "(id INT PRIMARY KEY, v VARCHAR(20), w INT DEFAULT 5, b TEXT, j JSON)"
ROWS = ", ".join(
    f"({n}, 'v{n}', {n}, 'b{n}', JSON_OBJECT('a', {n}, 'pad', REPEAT('x', 50)))" for n in range(9)
)
STATEMENTS = (
    "INSERT INTO {} (id, v) VALUES (20, 'new'), (21, NULL)",
    "INSERT INTO {} (id, w, b) VALUES (22, NULL, 'b')",
    "UPDATE {} SET v = 'changed' WHERE id < 3",
    "UPDATE {} SET b = NULL, w = w + 1 WHERE id IN (1, 4)",
    "UPDATE {} SET j = JSON_SET(j, '$.a', id + 100) WHERE id IN (2, 5)",
    "DELETE FROM {} WHERE id IN (0, 7)",
    "REPLACE INTO {} (id, v) VALUES (8, 'replaced')",
)
NEW_KEY = "UPDATE {} SET id = 30 WHERE id = 6"


def assert_equal(case: Scenario, target: test_sql.Target | None, table: str) -> None:
    if target is not None:
        test_sql.assert_equal(case, target, table)
        return
    columns = oracle.columns_of(case.server, f"{case.database}.{table}")
    log = case.target(table)
    emptied = log.where("_change_type = 'truncate'").selectExpr("MAX(_sequence)").collect()[0][0]
    frame = newest_rows(log.where(f"_sequence > {emptied or -1}"), columns)
    found = oracle.canonical_rows((tuple(row) for row in frame.toLocalIterator()), columns)
    oracle.assert_same_rows(oracle.rows_of(case.server, f"{case.database}.{table}"), found)


CASES = [("mysql80", "parquet"), ("mysql80", "jdbc"), ("mariadb118", "jdbc")]


@pytest.mark.parametrize(("flavor", "sink"), CASES)
def test_a_table_is_equal_or_parked_whatever_images_a_session_writes(
    flavor: str, sink: str, spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    with servers.FLAVORS[flavor]() as server:
        database = f"i{uuid.uuid4().hex[:8]}"
        server.execute(f"CREATE DATABASE {database}")
        target = test_sql.Target("sqlite", tmp_path) if sink == "jdbc" else None
        options = {} if target is None else {"sink": target.options}
        case = Scenario(server, database, tmp_path, spark, lake_root, sink, options)
        tables = []
        for name, setting in IMAGES.items():
            try:
                server.execute(setting)
            except pymysql.MySQLError:
                continue
            for table in (name, f"{name}_key"):
                tables.append(table)
                server.execute(
                    f"CREATE TABLE {database}.{table} {TABLE}",
                    f"INSERT INTO {database}.{table} VALUES {ROWS}",
                )
        assert len(tables) >= 8
        with case.running() as pipeline:
            case.drain(pipeline)
            for table in tables:
                more = [NEW_KEY] if table.endswith("_key") else []
                work = [text.format(f"{database}.{table}") for text in (*STATEMENTS, *more)]
                server.execute(IMAGES[table.removesuffix("_key")], *work)
            case.drain(pipeline)
            parked = _parked(case)
            assert not parked.keys() & {"whole", "whole_key"}
            for table in tables:
                if table in parked:
                    assert "binlog_row_" in parked[table], (table, parked[table])
                else:
                    assert_equal(case, target, table)
            if parked:
                done = case.command("resnapshot", *(f"{database}.{table}" for table in parked))
                assert done.returncode == 0, done.stderr
                case.drain(pipeline)
                assert not _parked(case)
                for table in parked:
                    assert_equal(case, target, table)


def _parked(case: Scenario) -> dict[str, str]:
    """Reason and hint of each parked table."""
    return {
        table["table"].partition(".")[2]: f"{table['parked']} {table.get('hint')}"
        for table in case.status()["tables"]
        if table["status"] == "parked"
    }
