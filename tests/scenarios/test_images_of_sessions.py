"""Sessions that change `binlog_row_image` and `binlog_row_value_options` for themselves, in the middle of a
run and against the server's setting. In every sink a table ends equal to the source, or is parked with a
reason that says so, and what the reason says mends it. The judge is the source's SELECT."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pymysql
import pytest
from tests.change_log import newest_rows
from tests.scenarios import test_clickhouse, test_hbase, test_opensearch, test_redis, test_sql
from tests.sinks.conformance import with_servers
from tests.sinks.conformance.brokers import Valkey
from tests.sources.mysql.receiving import source_events

from penstock.secret import REVEALED
from penstock.testing import oracle, servers
from penstock.testing.scenario import Scenario
from penstock.testing.servers import DatabaseServer

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


def partial_images(server: DatabaseServer) -> set[str]:
    """The tables that have row images without some of their columns in the server's log."""
    names: dict[bytes, str] = {}
    found = set()
    for event in source_events(server):
        kind, body = event[4], event[19:-4]
        table = body[:6]
        if kind == 19:
            at = 9 + body[8] + 1
            names[table] = body[at + 1 : at + 1 + body[at]].decode()
        elif kind in (23, 24, 25, 30, 31, 32):
            at = 8 + (int.from_bytes(body[8:10], "little") if kind >= 30 else 0)
            whole, size = (1 << body[at]) - 1, (body[at] + 7) // 8
            images = body[at + 1 :][: size * (2 if kind in (24, 31) else 1)]
            masks = [images[first : first + size] for first in range(0, len(images), size)]
            if any(int.from_bytes(mask, "little") & whole != whole for mask in masks):
                found.add(names[table])
        elif kind == 39:  # parts of JSON values
            found.add(names[table])
    return found


def of_debezium(values: Iterable[bytes | None]) -> list[dict[str, Any]]:
    """The rows that messages of Debezium leave, read in their order, as its consumers do."""
    rows: dict[int, dict[str, Any]] = {}
    for value in values:
        change = json.loads(value or b'{"op": "tombstone"}')
        match change["op"]:
            case "t":
                rows.clear()
            case "d":
                rows.pop(change["before"]["id"], None)
            case "c" | "r" | "u":
                rows[change["after"]["id"]] = change["after"]
    return list(rows.values())


class Into:
    """A sink, and what its readers find there."""

    def __init__(self, name: str, spark: SparkSession, folder: Path) -> None:
        self.name, self._spark = name, spark
        self.product, _, detail = name.partition("-")
        self._database = test_sql.Target(detail, folder) if self.product == "jdbc" else None
        self._valkey = Valkey() if self.product == "messages" else None
        if name == "hbase":
            with_servers.add_jars(spark, with_servers.options("hbase"))

    def options(self) -> dict[str, Any]:
        if self._valkey is not None:
            return {"sink": self._valkey.section(format=self.name.partition("-")[2])}
        if self._database is not None:
            return {"sink": self._database.options}
        if self.product in ("iceberg", "delta", "parquet"):
            return {}
        history = f"penstock.history_{uuid.uuid4().hex}"
        sink = with_servers.options(self.name).model_dump(mode="json", context=REVEALED)
        return {"sink": sink, "schema": {"history_table": history}}

    def assert_equal(self, case: Scenario, table: str) -> None:
        if self._valkey is not None:
            name = f"{case.database}.{table}"
            values = (value for _, value in self._valkey.entries(case.options["sink"], name))
            columns = oracle.columns_of(case.server, name)
            found = oracle.canonical_rows(of_debezium(values), columns)
            oracle.assert_same_rows(oracle.rows_of(case.server, name), found)
        elif self._database is not None:
            test_sql.assert_equal(case, self._database, table)
        elif self.product == "redis":
            test_redis.assert_equal(case, with_servers.server("valkey"), table)
        elif self.product == "clickhouse":
            test_clickhouse.assert_equal(case, table)
        elif self.product == "opensearch":
            test_opensearch.assert_equal(case, table)
        elif self.product == "hbase":
            test_hbase.assert_equal(self._spark, case, table)
        elif self.product == "parquet":
            columns = oracle.columns_of(case.server, f"{case.database}.{table}")
            log = case.target(table)
            emptied = log.where("_change_type = 'truncate'").selectExpr("MAX(_sequence)").collect()[0][0]
            frame = newest_rows(log.where(f"_sequence > {emptied or -1}"), columns)
            found = oracle.canonical_rows((tuple(row) for row in frame.toLocalIterator()), columns)
            oracle.assert_same_rows(oracle.rows_of(case.server, f"{case.database}.{table}"), found)
        else:
            case.assert_equal(table)


SINKS = (
    "iceberg", "delta", "parquet", "jdbc-sqlite", "jdbc-postgresql", "redis-hash", "redis-json", "opensearch",
    "clickhouse", "hbase", "messages-debezium",
)  # fmt: skip
"""The messages of `json` lack what the log lacks, so they are no tables: `commands/test_encode_images.py`."""
CASES = [
    *(("mysql80", sink) for sink in SINKS),
    *(("mysql97", sink) for sink in ("jdbc-sqlite", "messages-debezium")),
    *(("mariadb1011", sink) for sink in ("iceberg", "messages-debezium")),
    *(("mariadb118", sink) for sink in ("jdbc-sqlite", "parquet")),
]


@pytest.mark.parametrize(("flavor", "sink"), CASES)
def test_a_table_is_equal_or_parked_whatever_images_a_session_writes(
    flavor: str, sink: str, spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    with servers.FLAVORS[flavor]() as server:
        database = f"i{uuid.uuid4().hex[:8]}"
        server.execute(f"CREATE DATABASE {database}")
        into = Into(sink, spark, tmp_path)
        case = Scenario(server, database, tmp_path, spark, lake_root, into.product, into.options())
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
        assert len(tables) >= 6
        with case.running() as pipeline:
            case.drain(pipeline)
            for table in tables:
                more = [NEW_KEY] if table.endswith("_key") else []
                work = [text.format(f"{database}.{table}") for text in (*STATEMENTS, *more)]
                server.execute(IMAGES[table.removesuffix("_key")], *work)
            assert partial_images(server) == {*tables} - {"whole", "whole_key"}
            case.drain(pipeline)
            parked = _parked(case)
            assert not parked.keys() & {"whole", "whole_key"}
            for table in tables:
                if table in parked:
                    said = parked[table]
                    assert "binlog_row_" in said or "source logs parts of rows" in said, (table, said)
                else:
                    into.assert_equal(case, table)
            if parked:
                done = case.command("resnapshot", *(f"{database}.{table}" for table in parked))
                assert done.returncode == 0, done.stderr
                case.drain(pipeline)
                assert not _parked(case)
                for table in parked:
                    into.assert_equal(case, table)


def _parked(case: Scenario) -> dict[str, str]:
    """Reason and hint of each parked table."""
    return {
        table["table"].partition(".")[2]: f"{table['parked']} {table.get('hint')}"
        for table in case.status()["tables"]
        if table["status"] == "parked"
    }
