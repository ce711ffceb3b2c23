"""Pipelines into OpenSearch. The judge is the source's SELECT."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from tests.core import alltypes
from tests.sinks.conformance import with_servers

from penstock.sinks.opensearch.client import Client
from penstock.sinks.opensearch.indexes import Indexes
from penstock.sinks.opensearch.options import OpenSearchOptions
from penstock.sinks.opensearch.values import field_name
from penstock.testing import oracle
from penstock.testing.scenario import Scenario, refusal, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Make = Callable[..., Scenario]
ZERO = ("c_zero_date", "c_zero_datetime", "c_zero_timestamp")


def pipeline_into(scenario: Make, url: str, **options: Any) -> Scenario:
    history = f"penstock.history_{uuid.uuid4().hex}"  # all tests write to one server
    case = scenario("opensearch", epoch={"interval": "50ms"}, schema={"history_table": history})
    case.options["sink"] = {"type": "opensearch", "url": url, **options}
    case.write_file()
    return case


def documents(case: Scenario, table: str) -> list[dict[str, Any]]:
    options = OpenSearchOptions(**case.options["sink"])
    client = Client(options)
    name = f"{case.database}.{table}"
    found = [
        hit["_source"]
        for hits in Indexes(client, {}).portions(name, {"match_all": {}}, whole=True)
        for hit in hits
    ]
    client.close()
    return found


def assert_equal(case: Scenario, *tables: str) -> None:
    for table in tables:
        columns = oracle.columns_of(case.server, f"{case.database}.{table}")
        found = [
            {one.name: _value(row.get(field_name(one.name)), one.type) for one in columns}
            for row in documents(case, table)
        ]
        expected = oracle.rows_of(case.server, f"{case.database}.{table}")
        oracle.assert_same_rows(expected, oracle.canonical_rows(found, columns))


def _value(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind.endswith(("binary", "blob")) or kind in ("geometry", "point"):
        return base64.b64decode(value)
    if kind in ("datetime", "timestamp"):
        return value.replace("T", " ").removesuffix("Z")
    return float(numpy.float32(value)) if kind == "float" else value


def test_rows_are_kept_equal_over_kills_and_changed_definitions(scenario: Make) -> None:
    server = with_servers.server("opensearch")
    case = pipeline_into(scenario, server.url)
    case.server.execute(
        "SET time_zone = '+00:00', sql_mode = ''",
        alltypes.create_table("t"),
        *alltypes.inserts("t"),
        "ALTER TABLE t " + ", ".join(f"DROP COLUMN {name}" for name in ZERO),
        "CREATE TABLE pair (x VARCHAR(10), y BIGINT UNSIGNED, v JSON, `_id` INT, PRIMARY KEY (x, y))",
        "INSERT INTO pair VALUES ('a:%', 18446744073709551615, '[1.50]', 1), ('b', 0, '{}', NULL)",
        "CREATE TABLE emptied (id INT PRIMARY KEY)",
        "INSERT INTO emptied VALUES (1), (2)",
    )
    with case.running() as pipeline:
        case.drain(pipeline)
        assert_equal(case, "t", "pair", "emptied")
        case.server.execute(
            "UPDATE pair SET y = y - 1 WHERE x = 'a:%'",
            "UPDATE t SET c_int = 7 WHERE id % 2 = 1",
            "DELETE FROM t WHERE id = 3",
            "TRUNCATE TABLE emptied",
            "INSERT INTO emptied VALUES (2), (3)",
            "ALTER TABLE pair ADD COLUMN n INT NOT NULL DEFAULT 5 FIRST",
            "INSERT INTO pair (x, y) VALUES ('c', 1)",
        )
        pipeline.kill("driver")
        pipeline.wait(seconds=60)
        server.kill9()
        pipeline.start()
        server.start()
        case.server.execute(
            "ALTER TABLE pair RENAME COLUMN n TO m, DROP COLUMN v",
            "ALTER TABLE emptied ADD COLUMN more DATETIME(3)",
            "UPDATE pair SET m = 6 WHERE x = 'b'",
            "DELETE FROM pair WHERE x = 'c'",
            "INSERT INTO emptied VALUES (4, '2024-02-29 12:00:00.5')",
        )
        case.drain(pipeline, restart=True)  # it ends if it starts long before the server does
        assert pipeline.stop() == 0
    assert_equal(case, "t", "pair", "emptied")


def test_a_row_that_the_server_refuses_parks_its_table_alone(scenario: Make) -> None:
    server = with_servers.server("opensearch")
    wrong = {"match": "*.texts", "fields": {"v": {"type": "long"}}}
    case = pipeline_into(scenario, server.url, mappings=[wrong])
    case.server.execute(
        "CREATE TABLE texts (id INT PRIMARY KEY, v TEXT)",
        "CREATE TABLE good (id INT PRIMARY KEY)",
        "INSERT INTO good VALUES (1)",
        "INSERT INTO texts VALUES (1, '5')",
    )
    with case.running() as pipeline:
        case.drain(pipeline)
        case.server.execute("INSERT INTO texts VALUES (2, 'secret')", "INSERT INTO good VALUES (2)")
        wait_for(lambda: any(one["parked"] for one in case.status()["tables"]), "parking")
        case.drain(pipeline)
        assert pipeline.stop() == 0
    assert_equal(case, "good")
    [parked] = [one for one in case.status()["tables"] if one["status"] == "parked"]
    why = parked["parked"]
    assert "mapper_parsing_exception" in why["reason"] and "sink.mappings" in why["hint"]
    assert "secret" not in str(why)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"url": "http://127.0.0.1:1"}, "sink.url"),
        ({"url": "http://user:secret@127.0.0.1:1"}, "sink.password"),
        ({"index": "x"}, "{table}"),
        ({"ca": "no-such-file", "url": "https://127.0.0.1:1"}, "sink.ca"),
    ],
)
def test_what_cannot_work_is_refused(scenario: Make, change: dict[str, Any], named: str) -> None:
    case = pipeline_into(scenario, **{"url": "http://127.0.0.1:1", **change})
    case.server.execute("CREATE TABLE a (id INT PRIMARY KEY)")
    assert "secret" not in refusal(case.command("run", "--once"), named)
