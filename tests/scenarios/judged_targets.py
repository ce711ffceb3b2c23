"""One target of each sink with a reader that knows nothing of Penstock. The judge is the server's SELECT."""

from __future__ import annotations

import atexit
import functools
import json
import uuid
from collections.abc import Callable
from contextlib import closing
from typing import Any

from tests.change_log import newest_rows
from tests.scenarios import test_clickhouse, test_hbase, test_opensearch
from tests.scenarios.test_sql import Target
from tests.sinks.conformance import with_servers
from tests.sinks.conformance.brokers import BROKERS

from penstock.secret import REVEALED
from penstock.testing import oracle, topics
from penstock.testing.scenario import Scenario

Make = Callable[..., Scenario]
Judge = Callable[..., None]
"""Fails if one of the tables that are named, `judge(case, *tables)`, differs from its target."""
LAKE = ("iceberg", "delta", "parquet")
FILES = ("sqlite", "duckdb")
SQL = ("postgresql", "mysql80", "mariadb1011")
STORES = ("redis-hash", "redis-json", "clickhouse", "clickhouse-modern", "opensearch", "hbase")
MESSAGES = tuple(BROKERS)


def judged(scenario: Make, sink: str, **options: Any) -> tuple[Scenario, Judge]:
    """A pipeline into `sink`, and the judge of its targets."""
    case = scenario(sink, **options)
    if sink in LAKE:
        return case, _by_rows(rows_in_lake)
    history = f"penstock.history_{uuid.uuid4().hex}"  # all tests write to one server
    case.options["schema"] = {**case.options.get("schema", {}), "history_table": history}
    if sink in (*FILES, *SQL):
        target = Target(sink, case.folder)
        case.options["sink"], judge = target.options, _by_rows(target.rows)
    elif sink in STORES:
        section = with_servers.options(sink)
        if sink == "hbase":
            with_servers.add_jars(case.spark, section)
        case.options["sink"] = section.model_dump(mode="json", context=REVEALED)
        judge = _store(sink, case)
    else:
        broker = _broker(sink)
        case.options["sink"] = broker.section()
        judge = _by_rows(rows_in(broker))
    case.write_file()
    return case, judge


@functools.cache
def _broker(sink: str) -> Any:
    made = BROKERS[sink]()
    atexit.register(made.close)
    return made


def _by_rows(rows: Callable[[Scenario, str], list[oracle.Row]]) -> Judge:
    def judge(case: Scenario, *tables: str) -> None:
        for table in tables:
            expected = oracle.rows_of(case.server, f"{case.database}.{table}")
            oracle.assert_same_rows(expected, rows(case, table))

    return judge


def _store(sink: str, case: Scenario) -> Judge:
    if sink == "opensearch":
        return test_opensearch.assert_equal
    if sink == "hbase":
        return lambda of, *tables: test_hbase.assert_equal(case.spark, of, *tables)
    return test_clickhouse.assert_equal if sink.startswith("clickhouse") else _by_rows(rows_in_redis)


def rows_in_lake(case: Scenario, table: str) -> list[oracle.Row]:
    columns = oracle.columns_of(case.server, f"{case.database}.{table}")
    frame = case.target(table)
    if case.sink == "parquet":
        [[emptied]] = frame.where("_change_type = 'truncate'").selectExpr("max(_sequence)").collect()
        frame = newest_rows(frame.where(f"_sequence > {emptied or -1}"), columns)
    names = [f"`{column.name}`" for column in columns]
    return oracle.canonical_rows((tuple(row) for row in frame.select(*names).collect()), columns)


def rows_in(broker: Any) -> Callable[[Scenario, str], list[oracle.Row]]:
    def rows(case: Scenario, table: str) -> list[oracle.Row]:
        name = f"{case.database}.{table}"
        entries = enumerate(broker.entries(case.options["sink"], name))
        columns = {name: oracle.columns_of(case.server, name)}
        found = topics.rebuild([topics.Record(name, 0, at, *one) for at, one in entries], columns)
        assert found.repeated == 0
        return found.rows[name]

    return rows


def rows_in_redis(case: Scenario, table: str) -> list[oracle.Row]:
    import redis

    section = case.options["sink"]
    columns = oracle.columns_of(case.server, f"{case.database}.{table}")
    client: Any = redis.Redis.from_url(section["url"], password=section["password"])
    with closing(client):
        found = []
        for key in client.scan_iter(match=f"{case.database}:{table}:*", count=1000):
            if section["value"] == "json":
                found.append({one.name: json.loads(client.get(key)).get(one.name) for one in columns})
            else:
                row = client.hgetall(key)
                found.append({one.name: _text(row.get(one.name.encode())) for one in columns})
    return oracle.canonical_rows(found, columns)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
