"""Pipelines into ClickHouse. The judge is the source's SELECT."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from tests.core import alltypes
from tests.sinks.conformance import with_servers

from penstock.secret import REVEALED
from penstock.sinks.clickhouse.client import Client, quoted
from penstock.sinks.clickhouse.options import ClickHouseOptions
from penstock.testing import oracle
from penstock.testing.scenario import Scenario, refusal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Make = Callable[..., Scenario]
ZERO = ("c_zero_date", "c_zero_datetime", "c_zero_timestamp")


def pipeline_into(scenario: Make, **changes: Any) -> Scenario:
    history = f"penstock.history_{uuid.uuid4().hex}"  # all tests write to one server
    case = scenario("clickhouse", epoch={"interval": "50ms"}, schema={"history_table": history})
    found = with_servers.options("clickhouse").model_dump(mode="json", context=REVEALED)
    case.options["sink"] = {**found, **changes}
    case.write_file()
    return case


def assert_equal(case: Scenario, *tables: str) -> None:
    client = Client(ClickHouseOptions(**case.options["sink"]))
    for table in tables:
        columns = oracle.columns_of(case.server, f"{case.database}.{table}")
        listed = ", ".join(
            f"hex({quoted(one.name)})" if _is_binary(one.type) else f"toString({quoted(one.name)})"
            for one in columns
        )
        rows = client.rows(f"SELECT {listed} FROM {quoted(case.database)}.{quoted(table)}")
        found = [
            [_value(*pair) for pair in zip(row, [one.type for one in columns], strict=True)] for row in rows
        ]
        expected = oracle.rows_of(case.server, f"{case.database}.{table}")
        oracle.assert_same_rows(expected, oracle.canonical_rows(found, columns))
    client.close()


def _is_binary(kind: str) -> bool:
    return kind.endswith(("binary", "blob")) or kind in ("geometry", "point")


def _value(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if _is_binary(kind):
        return bytes.fromhex(value)
    if kind == "float":
        return float(numpy.float32(value))
    return float(value) if kind == "double" else value


def test_rows_are_kept_equal_over_kills_and_changed_definitions(scenario: Make) -> None:
    server = with_servers.server("clickhouse")
    case = pipeline_into(scenario)
    case.server.execute(
        "SET time_zone = '+00:00', sql_mode = ''",
        alltypes.create_table("t"),
        *alltypes.inserts("t"),
        "ALTER TABLE t " + ", ".join(f"DROP COLUMN {name}" for name in ZERO),
        "CREATE TABLE pair (x VARCHAR(10), y BIGINT UNSIGNED, v JSON, PRIMARY KEY (x, y))",
        "INSERT INTO pair VALUES ('a', 18446744073709551615, '[1.50]'), ('b', 0, '{}')",
        "CREATE TABLE emptied (id INT PRIMARY KEY)",
        "INSERT INTO emptied VALUES (1), (2)",
    )
    with case.running() as pipeline:
        case.drain(pipeline)
        assert_equal(case, "t", "pair", "emptied")
        case.server.execute(
            "UPDATE pair SET y = y - 1 WHERE x = 'a'",
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
        case.drain(pipeline)
        assert pipeline.stop() == 0
    assert_equal(case, "t", "pair", "emptied")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"password": "wrong"}, "sink.password"),
        ({"url": "http://127.0.0.1:1"}, "sink.url"),
        ({"url": "http://user:secret@127.0.0.1:1"}, "sink.password"),
        ({"namespace": "a.b"}, "sink.namespace"),
    ],
)
def test_what_cannot_work_is_refused(scenario: Make, change: dict[str, Any], named: str) -> None:
    case = pipeline_into(scenario, **change)
    case.server.execute("CREATE TABLE a (id INT PRIMARY KEY)")
    assert "secret" not in refusal(case.command("run", "--once"), named)
