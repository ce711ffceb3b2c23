"""Pipelines into Valkey. The judge is the source's SELECT."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import redis
from tests.core import alltypes
from tests.sinks.conformance import with_servers

from penstock.testing import oracle, servers
from penstock.testing.scenario import Scenario, refusal, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Make = Callable[..., Scenario]
ZERO = ("c_zero_date", "c_zero_datetime", "c_zero_timestamp")


def pipeline_into(scenario: Make, server: Any, **options: Any) -> Scenario:
    case = scenario("redis", epoch={"interval": "50ms"})
    sink = {"type": "redis", "url": server.url, "password": server.password, **options}
    case.options["sink"] = sink
    case.write_file()
    return case


def assert_equal(case: Scenario, server: Any, *tables: str) -> None:
    client = redis.Redis(host=server.host, port=server.port, password=server.password)
    for table in tables:
        columns = oracle.columns_of(case.server, f"{case.database}.{table}")
        found = []
        for key in client.scan_iter(match=f"{case.database}:{table}:*", count=1000):
            if client.type(key) == b"string":  # `value: json`
                found.append(json.loads(client.get(key) or b""))
                continue
            row = client.hgetall(key)
            found.append({one.name: _value(row.get(one.name.encode()), one.type) for one in columns})
        expected = oracle.rows_of(case.server, f"{case.database}.{table}")
        oracle.assert_same_rows(expected, oracle.canonical_rows(found, columns))
    client.close()


def _value(text: Any, kind: str) -> Any:
    if text is None or kind.endswith(("binary", "blob")) or kind in ("geometry", "point"):
        return text
    if kind == "float":  # the oracle shows floats as doubles
        import numpy

        return float(numpy.float32(text.decode()))
    return float(text) if kind == "double" else text.decode()


def test_rows_are_kept_equal_over_kills_and_changed_definitions(scenario: Make) -> None:
    server = with_servers.server("valkey")
    case = pipeline_into(scenario, server)
    case.server.execute(
        "SET time_zone = '+00:00', sql_mode = ''",
        alltypes.create_table("t"),
        *alltypes.inserts("t"),
        "ALTER TABLE t " + ", ".join(f"DROP COLUMN {name}" for name in ZERO),
        "CREATE TABLE pair (x VARCHAR(10), y BIGINT UNSIGNED, v JSON, PRIMARY KEY (x, y))",
        "INSERT INTO pair VALUES ('a:%', 18446744073709551615, '[1.50]'), ('b', 0, '{}')",
    )
    with case.running() as pipeline:
        case.drain(pipeline)
        assert_equal(case, server, "t", "pair")
        case.server.execute(
            "UPDATE pair SET y = y - 1 WHERE x = 'a:%'",
            "UPDATE t SET c_int = 7 WHERE id % 2 = 1",
            "DELETE FROM t WHERE id = 3",
            "ALTER TABLE pair ADD COLUMN n INT NOT NULL DEFAULT 5 FIRST",
            "INSERT INTO pair (x, y) VALUES ('c', 1)",
        )
        pipeline.kill("driver")
        pipeline.wait(seconds=60)
        server.kill9()
        server.start()
        pipeline.start()
        case.server.execute(
            "ALTER TABLE pair RENAME COLUMN n TO m, DROP COLUMN v",
            "UPDATE pair SET m = 6 WHERE x = 'b'",
            "DELETE FROM pair WHERE x = 'c'",
        )
        case.drain(pipeline)
        assert pipeline.stop() == 0
    assert_equal(case, server, "t", "pair")


def test_a_server_that_forgot_parks_its_tables_and_a_resnapshot_brings_them_back(scenario: Make) -> None:
    with servers.valkey({"appendonly": "no"}) as server:
        case = pipeline_into(scenario, server)
        case.server.execute(
            "CREATE TABLE a (id INT PRIMARY KEY, v INT)", "INSERT INTO a VALUES (1, 1), (2, 2)"
        )
        with case.running() as pipeline:
            case.drain(pipeline)
            server.kill9()
            server.start()
            case.server.execute("UPDATE a SET v = 3 WHERE id = 1")
            wait_for(lambda: any(one["parked"] for one in case.status()["tables"]), "parking")
            [parked] = case.status()["tables"]
            assert "has lost" in parked["parked"]["reason"] and "resnapshot" in parked["parked"]["hint"]
            done = case.command("resnapshot", f"{case.database}.a", "--recreate")
            assert done.returncode == 0, done.stderr
            wait_for(lambda: not any(one["parked"] for one in case.status()["tables"]), "the return")
            case.drain(pipeline)
            assert pipeline.stop() == 0
        assert_equal(case, server, "a")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"password": "wrong"}, "sink.password"),
        ({"url": "redis://127.0.0.1:1"}, "sink.url"),
        ({"url": "redis://:secret@127.0.0.1:1"}, "sink.password"),
        ({"key": "x"}, "{key}"),
    ],
)
def test_what_cannot_work_is_refused(scenario: Make, change: dict[str, Any], named: str) -> None:
    case = pipeline_into(scenario, with_servers.server("valkey"), **change)
    case.server.execute("CREATE TABLE a (id INT PRIMARY KEY)")
    assert "secret" not in refusal(case.command("run", "--once"), named)


def test_a_server_that_evicts_is_refused(scenario: Make) -> None:
    with servers.valkey({"maxmemory": "50mb", "maxmemory-policy": "allkeys-lru"}) as server:
        case = pipeline_into(scenario, server)
        case.server.execute("CREATE TABLE a (id INT PRIMARY KEY)")
        refusal(case.command("run", "--once"), "allkeys-lru", "allow_eviction")
