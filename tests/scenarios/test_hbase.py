"""Pipelines into HBase. The judge is the source's SELECT."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.core import alltypes
from tests.sinks.conformance import with_servers

from penstock.model.schema import TableId
from penstock.sinks.hbase.cluster import Cluster
from penstock.sinks.hbase.options import HBaseOptions
from penstock.sinks.hbase.rows import OWN
from penstock.sinks.hbase.values import Form
from penstock.testing import oracle
from penstock.testing.scenario import Scenario, refusal, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Make = Callable[..., Scenario]
ZERO = ("c_zero_date", "c_zero_datetime", "c_zero_timestamp")


def pipeline_into(scenario: Make, **options: Any) -> Scenario:
    history = f"penstock.history_{uuid.uuid4().hex}"
    case = scenario("hbase", epoch={"interval": "50ms"}, schema={"history_table": history})
    case.options["sink"] = {"type": "hbase", **options}
    case.write_file()
    return case


@pytest.fixture
def quorum(spark: SparkSession) -> Iterator[str]:
    options = with_servers.options("hbase")
    with_servers.add_jars(spark, options)
    yield options.quorum


def assert_equal(spark: SparkSession, case: Scenario, *tables: str) -> None:
    options = HBaseOptions(**case.options["sink"])
    cluster = Cluster(options, spark)
    for table in tables:
        columns = oracle.columns_of(case.server, f"{case.database}.{table}")
        wanted = [Form().qualifier(one.name) for one in columns]
        name = cluster.name(*options.full_name(TableId(case.database, table)))
        found = []
        for frame in cluster.scan(name, OWN, wanted):
            for values in zip(*[one.values.to_pylist() for one in frame.columns], strict=True):
                typed = [_value(one, column.type) for one, column in zip(values, columns, strict=True)]
                found.append(dict(zip([column.name for column in columns], typed, strict=True)))
        expected = oracle.rows_of(case.server, f"{case.database}.{table}")
        oracle.assert_same_rows(expected, oracle.canonical_rows(found, columns))
    cluster.close()


def _value(value: bytes | None, kind: str) -> Any:
    if value is None or kind.endswith(("binary", "blob")) or kind in ("geometry", "point"):
        return value
    text = value.decode()
    if kind == "float":
        return float(numpy.float32(text))
    if kind == "double":
        return float(text)
    return pa.scalar(text).as_py()


def test_rows_are_kept_equal_over_kills_and_changed_definitions(
    scenario: Make, spark: SparkSession, quorum: str
) -> None:
    case = pipeline_into(scenario, quorum=quorum)
    case.server.execute(
        "SET time_zone = '+00:00', sql_mode = ''",
        alltypes.create_table("t"),
        *alltypes.inserts("t"),
        "ALTER TABLE t " + ", ".join(f"DROP COLUMN {name}" for name in ZERO),
        "CREATE TABLE pair (x VARCHAR(10), y BIGINT UNSIGNED, v JSON, `_id` INT, PRIMARY KEY (x, y))",
        "INSERT INTO pair VALUES ('a|%', 18446744073709551615, '[1.50]', 1), ('b', 0, '{}', NULL)",
        "CREATE TABLE emptied (id INT PRIMARY KEY)",
        "INSERT INTO emptied VALUES (1), (2)",
        "CREATE TABLE swapped (id INT PRIMARY KEY, v INT)",
        "INSERT INTO swapped VALUES (1, 10), (2, 20)",
    )
    with case.running() as pipeline:
        case.drain(pipeline)
        assert_equal(spark, case, "t", "pair", "emptied", "swapped")
        case.server.execute(
            "UPDATE pair SET y = y - 1 WHERE x = 'a|%'",
            "UPDATE t SET c_int = 7 WHERE id % 2 = 1",
            "DELETE FROM t WHERE id = 3",
            "TRUNCATE TABLE emptied",
            "INSERT INTO emptied VALUES (2), (3)",
            "ALTER TABLE pair ADD COLUMN n INT NOT NULL DEFAULT 5 FIRST",
            "INSERT INTO pair (x, y) VALUES ('c', 1)",
            "UPDATE swapped SET id = id + 10 ORDER BY id",
            "START TRANSACTION",
            "DELETE FROM swapped WHERE id = 11",
            "INSERT INTO swapped VALUES (11, NULL)",
            "COMMIT",
        )
        pipeline.kill("driver")
        pipeline.wait(seconds=60)
        with_servers.server("hbase").replace_region_server()
        pipeline.start()
        case.server.execute(
            "ALTER TABLE pair RENAME COLUMN n TO m, DROP COLUMN v",
            "ALTER TABLE emptied ADD COLUMN more DATETIME(3)",
            "UPDATE pair SET m = 6 WHERE x = 'b'",
            "DELETE FROM pair WHERE x = 'c'",
            "INSERT INTO emptied VALUES (4, '2024-02-29 12:00:00.5')",
            "DROP TABLE swapped",
            "CREATE TABLE swapped (id INT PRIMARY KEY, other INT)",
            "INSERT INTO swapped VALUES (1, NULL), (12, 5)",
        )
        case.drain(pipeline)
        assert pipeline.stop() == 0
    assert_equal(spark, case, "t", "pair", "emptied", "swapped")


def test_a_table_of_others_parks_alone(scenario: Make, spark: SparkSession, quorum: str) -> None:
    case = pipeline_into(scenario, quorum=quorum)
    case.server.execute(
        "CREATE TABLE gone (id INT PRIMARY KEY)",
        "CREATE TABLE good (id INT PRIMARY KEY)",
        "INSERT INTO good VALUES (1)",
        "INSERT INTO gone VALUES (1)",
    )
    findings = json.loads(case.command("doctor", "--json").stdout)["findings"]
    assert [one["level"] for one in findings if one["check"] == "hbase"] == ["ok"]
    options = HBaseOptions(**case.options["sink"])
    cluster = Cluster(options, spark)
    with case.running() as pipeline:
        case.drain(pipeline)
        cluster.remove(cluster.name(*options.full_name(TableId(case.database, "gone"))))
        case.server.execute("INSERT INTO gone VALUES (2)", "INSERT INTO good VALUES (2)")
        wait_for(lambda: any(one["parked"] for one in case.status()["tables"]), "parking")
        case.drain(pipeline)
        assert pipeline.stop() == 0
    cluster.close()
    assert_equal(spark, case, "good")
    [parked] = [one for one in case.status()["tables"] if one["status"] == "parked"]
    assert "resnapshot --recreate" in parked["parked"]["hint"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"quorum": "127.0.0.1:1", "timeout": "2s"}, "sink.quorum"),
        ({"site": "no-such-file"}, "sink.site"),
    ],
)
def test_what_cannot_work_is_refused(scenario: Make, change: dict[str, Any], named: str) -> None:
    case = pipeline_into(scenario, **{"quorum": "127.0.0.1:1", **change})
    case.server.execute("CREATE TABLE a (id INT PRIMARY KEY)")
    refusal(case.command("run", "--once"), named)
