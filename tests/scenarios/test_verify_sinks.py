"""`penstock verify` on targets that have no older versions. Differences are planted on both sides."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
import redis
from pyspark.sql import SparkSession
from tests.core import alltypes
from tests.scenarios.test_clickhouse import ZERO
from tests.scenarios.test_sql import Target
from tests.sinks.conformance import with_servers

from penstock.model.schema import TableId
from penstock.secret import REVEALED
from penstock.sinks.clickhouse.client import Client
from penstock.sinks.clickhouse.options import ClickHouseOptions
from penstock.sinks.hbase.cluster import Cluster
from penstock.sinks.hbase.options import HBaseOptions
from penstock.sinks.opensearch import client as opensearch
from penstock.sinks.opensearch.options import OpenSearchOptions
from penstock.sinks.sql.options import JdbcOptions
from penstock.sinks.sql.registration import dialect_of
from penstock.testing import oracle
from penstock.testing.scenario import Scenario

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Make = Callable[..., Scenario]
ON_SERVERS = ("clickhouse", "clickhouse-modern", "redis-hash", "redis-json", "opensearch", "hbase")


@pytest.fixture(params=["postgresql", "mysql80", "mariadb1011", "sqlite", "duckdb", *ON_SERVERS])
def case(request: pytest.FixtureRequest, scenario: Make, tmp_path: Any) -> Iterator[Scenario]:
    if request.param == "duckdb":
        pytest.importorskip("duckdb")
    if request.param in ON_SERVERS:
        options = with_servers.options(request.param).model_dump(mode="json", context=REVEALED)
        if request.param == "hbase":
            with_servers.add_jars(request.getfixturevalue("spark"), with_servers.options(request.param))
    else:
        options = Target(request.param, tmp_path).options
    history = f"penstock.history_{uuid.uuid4().hex}"  # all tests write to one server
    made = scenario(options["type"], epoch={"interval": "50ms"}, schema={"history_table": history})
    made.options["sink"] = options
    made.write_file()
    yield made


def plant(case: Scenario) -> None:
    """Changes the price of order 5 at the target, and adds order 5000."""
    options, database = case.options["sink"], case.database
    if options["type"] == "redis":
        cache = redis.Redis.from_url(options["url"], password=options["password"])
        for order in (5, 5000):
            row: dict[Any, Any] = {"_sequence": 1, "id": order, "state": "new", "price": "0.01"}
            name = f"{database}:orders:{order}"
            if options["value"] == "json":
                cache.set(name, json.dumps(row, separators=(",", ":")))
            else:
                cache.hset(name, mapping=row)
        cache.close()
        return
    if options["type"] == "opensearch":
        search = opensearch.Client(OpenSearchOptions(**options))
        for order in (5, 5000):
            document = {"_sequence": 1, "id": order, "state": "new", "price": "0.01"}
            search.ask("PUT", f"/{database}.orders/_doc/{order}", document)
        search.close()
        return
    if options["type"] == "hbase":
        plant_in_hbase(HBaseOptions(**options), TableId(database, "orders"))
        return
    if options["type"] == "clickhouse":
        client = Client(ClickHouseOptions(**options))
        [[rows]] = client.rows(
            f"SELECT name FROM system.tables WHERE database = '{database}' AND name LIKE 'orders\\_\\_rows%'"
        )
        [[newest]] = client.rows(f"SELECT max(_sequence) FROM `{database}`.`{rows}`")
        for order in (5, 5000):
            client.run(
                f"INSERT INTO `{database}`.`{rows}` (id, state, price, _sequence, _penstock_deleted) "
                f"VALUES ({order}, 'new', 0.01, {newest}, 0)"
            )
        client.close()
        return
    dialect = dialect_of(JdbcOptions(**options))
    place = dialect.place([f"{database}_orders"] if dialect.name == "sqlite" else [database, "orders"])
    target, session = dialect.target(place), dialect.connect()
    price = "'0.01'" if dialect.name == "sqlite" else "0.01"
    dialect.run(session, f"UPDATE {target} SET price = {price} WHERE id = 5")
    dialect.run(
        session, f"INSERT INTO {target} (id, state, price, _sequence) VALUES (5000, 'new', {price}, 1)"
    )
    session.close()


def plant_in_hbase(options: HBaseOptions, table: TableId) -> None:
    spark = SparkSession.getActiveSession()
    assert spark is not None
    cluster = Cluster(options, spark)
    with cluster.table(cluster.name(*options.full_name(table))) as orders:
        [cell, *_] = orders.get(cluster.client.Get(b"5")).rawCells()
        orders.put(cluster.client.Put(b"5").addColumn(b"d", b"price", cell.getTimestamp() + 1, b"0.01"))
        row = {"_sequence": b"1", "id": b"5000", "state": b"new", "price": b"0.01"}
        put = cluster.client.Put(b"5000")
        for name, value in row.items():
            put.addColumn(b"d", name.encode(), value)
        orders.put(put)
    cluster.close()


def verified(case: Scenario, code: int, *arguments: str) -> dict[str, dict[str, Any]]:
    done = case.command("verify", "--json", *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    return {report["table"].partition(".")[2]: report for report in json.loads(done.stdout)["tables"]}


def without_nul(case: Scenario) -> None:
    """PostgreSQL cannot have it, and its sink leaves it out."""
    columns = oracle.columns_of(case.server, f"{case.database}.t")
    rows = oracle.rows_of(case.server, f"{case.database}.t")
    for number, column in enumerate(columns):
        if any("\0" in (row[number] or "") for row in rows):
            name = f"`{column.name}`"
            with contextlib.suppress(pymysql.err.OperationalError):  # it is generated from another one
                case.server.execute(f"UPDATE t SET {name} = REPLACE({name}, CHAR(0 USING utf8mb4), '')")


def test_planted_differences_are_found_named_and_repaired_and_nothing_else_is(case: Scenario) -> None:
    case.server.execute(
        "SET time_zone = '+00:00', sql_mode = ''",
        alltypes.create_table("t"),
        *alltypes.inserts("t"),
        "ALTER TABLE t " + ", ".join(f"DROP COLUMN {name}" for name in ZERO),
        "CREATE TABLE pair (x VARCHAR(10), y BIGINT UNSIGNED, v JSON, PRIMARY KEY (x, y))",
        "INSERT INTO pair VALUES ('a\n\"', 18446744073709551615, '[1.50]'), ('', 0, NULL)",
        "CREATE TABLE orders (id INT PRIMARY KEY, state VARCHAR(20), price DECIMAL(10,2))",
        *(f"INSERT INTO orders VALUES ({n}, 'new', {n} / 7)" for n in range(1, 300)),
    )
    postgresql = case.options["sink"].get("url", "").startswith("jdbc:postgresql")
    if postgresql:
        without_nul(case)
    with case.running() as pipeline:
        case.drain(pipeline)
        found = verified(case, 0)
        assert set(found) == {"t", "pair", "orders"} and all(one["equal"] for one in found.values())
        assert found["orders"]["rows_target"] == 299
        ended = threading.Event()

        def write() -> None:
            number = 0
            while not ended.wait(0.02):
                number += 1
                case.server.execute(f"UPDATE orders SET price = {number} WHERE id = {200 + number % 50}")

        writer = threading.Thread(target=write)
        writer.start()
        assert all(one["equal"] for one in verified(case, 0).values())
        ended.set()
        writer.join()
        case.drain(pipeline)
        case.server.execute(
            "SET sql_log_bin = 0",
            "INSERT INTO orders VALUES (1000, 'unseen', 1)",
            "UPDATE orders SET state = 'paid' WHERE id = 7",
            "DELETE FROM orders WHERE id = 9",
            "SET sql_log_bin = 1",
        )
        plant(case)
        report = verified(case, 1)["orders"]
        keys = {(int(one["key"]["id"]), one["kind"]) for one in report["keys_different"]}
        assert keys == {
            (1000, "missing"), (7, "different"), (9, "extra"), (5, "different"), (5000, "extra")
        }  # fmt: skip
        done = case.command("repair", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        case.drain(pipeline)
        assert verified(case, 0)["orders"]["equal"]
        assert pipeline.stop() == 0
    assert all(one["equal"] for one in verified(case, 0).values()), "the pipeline is stopped"


def test_transformed_rows_are_compared_with_what_the_rules_make_of_the_sources(
    scenario: Make, tmp_path: Path
) -> None:
    rule = {
        "tables": "*.orders", "where": "id % 2 = 1", "columns": {"twice": "price * 2"},
        "hash": ["state"], "rename": {"price": "amount"}, "to": "{database}.odd",
    }  # fmt: skip
    case = scenario("jdbc", transforms=[rule], transform_key="a key of sixteen characters")
    file = tmp_path / "targets.db"
    case.options["sink"] = {"type": "jdbc", "url": f"sqlite://{file}"}
    case.write_file()
    case.server.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, state VARCHAR(20), price DECIMAL(10,2))",
        *(f"INSERT INTO orders VALUES ({n}, 'new', {n} / 7)" for n in range(1, 100)),
    )
    with case.running() as pipeline:
        case.drain(pipeline)
        [report] = verified(case, 0).values()
        assert report["equal"] and report["rows_target"] == 50
        with contextlib.closing(sqlite3.connect(file)) as session:
            session.execute(f"UPDATE \"{case.database}_odd\" SET twice = '0.01' WHERE id = 5")
            session.commit()
        [report] = verified(case, 1).values()
        assert [(int(one["key"]["id"]), one["kind"]) for one in report["keys_different"]] == [
            (5, "different")
        ]
        assert pipeline.stop() == 0
