"""A real PostgreSQL into Iceberg, while it is written to, altered and killed."""

from __future__ import annotations

import contextlib
import json
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.scenarios.postgresql import LOGICAL, PgScenario, connected
from tests.sources.postgresql.upgraded import upgrade

from penstock.testing.servers.postgresql import PostgreSqlServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[PostgreSqlServer]:
    """Of the version that the test asks for."""
    version = getattr(request, "param", None)
    with PostgreSqlServer(settings=LOGICAL, **({} if version is None else {"version": version})) as server:
        yield server


@pytest.fixture
def scenario(
    server: PostgreSqlServer, spark: SparkSession, lake_root: Path, tmp_path: Path, request: Any
) -> Iterator[Callable[..., PgScenario]]:
    made: list[PgScenario] = []

    def make(name: str, **options: Any) -> PgScenario:
        made.append(PgScenario(server, name, tmp_path, spark, lake_root, **options))
        return made[-1]

    yield make
    for one in made:
        one.sql.close()


ORDERS = """CREATE TABLE orders (
    id bigint PRIMARY KEY, customer text, price numeric(12,2), free numeric, day date, at timestamp,
    seen timestamptz, kind text, body text, raw bytea, flag boolean, tag uuid)"""
ROW = """INSERT INTO orders SELECT i, 'käse 🧀 ' || i, i * 1.25, i / 7.0, '2024-02-29',
    '1969-02-28 23:59:59.123456', now(), 'b', repeat('x', (i % 300)::int), '\\x00ff', i % 2 = 0,
    gen_random_uuid()
    FROM generate_series({first}, {last}) i ON CONFLICT DO NOTHING"""


def _write(server: PostgreSqlServer, schema: str, seed: int, ended: threading.Event) -> None:
    """Transactions of all kinds until the event."""
    chance = random.Random(seed)
    with connected(server) as sql:
        sql.execute(f'SET search_path = "{schema}"'.encode())
        while not ended.is_set():
            statements = [_change(chance) for _ in range(chance.randrange(1, 6))]
            with (
                contextlib.suppress(psycopg.errors.DeadlockDetected),
                sql.transaction(force_rollback=chance.random() < 0.15),
            ):
                for statement in statements:
                    sql.execute(statement.encode())


def _change(chance: random.Random) -> str:
    first, row = chance.randrange(1, 3000), chance.randrange(1, 3000)
    moved = f"NOT EXISTS (SELECT 1 FROM orders WHERE id = {row} + 100000)"
    pairs = "INSERT INTO pairs SELECT i, 'p' || i, i FROM generate_series(1, 5) i"
    return chance.choice(
        [
            ROW.format(first=first, last=first + chance.randrange(30)),
            f"UPDATE orders SET price = price + 1, kind = 'u' WHERE id = {row}",
            f"DELETE FROM orders WHERE id BETWEEN {row} AND {row + 3}",
            f"UPDATE orders SET id = id + 100000 WHERE id = {row} AND {moved}",
            f"{pairs} ON CONFLICT (a, b) DO UPDATE SET c = pairs.c + 1",
            f"DELETE FROM pairs WHERE a = {chance.randrange(1, 6)}",
        ]
    )


@pytest.mark.slow
@pytest.mark.parametrize("server", PostgreSqlServer.RELEASES, indirect=True)
def test_a_pipeline_follows_a_database_though_everything_is_killed(
    server: PostgreSqlServer, scenario: Callable[..., PgScenario]
) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    shop = scenario(f"shop{server.version}", snapshot={"chunk_rows": 200})
    shop.execute(ORDERS, "CREATE TABLE pairs (a int, b text, c int, PRIMARY KEY (a, b))")
    shop.execute(ROW.format(first=1, last=2000), "INSERT INTO pairs VALUES (1, 'it''s', 0)")
    ended = threading.Event()
    writers = [
        threading.Thread(target=_write, args=(server, shop.name, seed + number, ended)) for number in range(2)
    ]
    for one in writers:
        one.start()
    try:
        with shop.running() as pipeline:
            for victim in ("receiver", "driver", "receiver"):
                pipeline.next_epoch(seconds=300, restart=True)
                pipeline.kill(victim)
                pipeline.ensure_alive()
            pipeline.next_epoch(seconds=300, restart=True)
            shop.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'walsender'"
            )
            shop.execute("ALTER TABLE orders ADD COLUMN extra int NOT NULL DEFAULT 7")
            shop.execute(f"TRUNCATE pairs; INSERT INTO pairs VALUES ({chance.randrange(9)}, 'after', 1)")
            pipeline.next_epoch(seconds=300, restart=True)
            ended.set()
            for one in writers:
                one.join()
            shop.drain(pipeline, restart=True)
            shop.assert_equal("orders", "pairs")
            verified = shop.command("verify", "--json")
            assert verified.returncode == 0, verified.stdout + verified.stderr
    finally:
        ended.set()
        for one in writers:
            one.join()


KINDS = (
    "CREATE TYPE mood AS ENUM ('ok', 'so so')",
    "CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
    (
        "CREATE TABLE typed (id uuid PRIMARY KEY, m mood, p positive, c char(5), j jsonb, t time, i inet, "
        "twice int GENERATED ALWAYS AS (p * 2) STORED)"
    ),
    "CREATE TABLE parts (id int, region text, v text, PRIMARY KEY (id, region)) PARTITION BY LIST (region)",
    "CREATE TABLE parts_a PARTITION OF parts FOR VALUES IN ('a')",
    "CREATE TABLE parts_b PARTITION OF parts FOR VALUES IN ('b')",
    "CREATE TABLE bag (a int, b text)",
    "ALTER TABLE bag REPLICA IDENTITY FULL",
    "CREATE TABLE large (id int PRIMARY KEY, small int, body text)",
    "ALTER TABLE large ALTER body SET STORAGE EXTERNAL",
    "CREATE TABLE by_index (id int PRIMARY KEY, code text NOT NULL UNIQUE, v int)",
    "ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_code_key",
    (
        "INSERT INTO typed SELECT gen_random_uuid(), 'ok', i, 'ab', '{\"a\": 1}', '12:34:56.5', '10.0.0.1/8' "
        "FROM generate_series(1, 300) i"
    ),
    "INSERT INTO parts SELECT i, CASE i % 2 WHEN 0 THEN 'a' ELSE 'b' END, 'v' FROM generate_series(1, 300) i",
    "INSERT INTO large SELECT i, i, repeat(i::text, 3000) FROM generate_series(1, 250) i",
    "INSERT INTO by_index SELECT i, 'c' || i, i FROM generate_series(1, 250) i",
)


@pytest.mark.slow
def test_tables_of_all_kinds_are_equal(scenario: Callable[..., PgScenario]) -> None:
    """Partitions, tables without a key, values that are stored apart, enums and domains; before and after
    changes that PostgreSQL's log does not tell of."""
    kinds = scenario("kinds", snapshot={"chunk_rows": 100})
    kinds.execute(*KINDS)
    everything = ("typed", "parts", "large", "by_index")
    with kinds.running() as pipeline:
        kinds.drain(pipeline)
        kinds.assert_equal(*everything)
        kinds.execute(
            "UPDATE typed SET m = 'so so', j = '[1]' WHERE p <= 100",
            "DELETE FROM typed WHERE p > 290",
            "UPDATE parts SET region = 'b' WHERE region = 'a' AND id <= 50",
            "UPDATE large SET small = -small WHERE id <= 100",
            "UPDATE large SET body = 'short' WHERE id = 7",
            "UPDATE by_index SET v = v + 1, id = id + 1000 WHERE id <= 100",
            "UPDATE by_index SET code = 'new' || code WHERE id > 200",
        )
        kinds.drain(pipeline)
        kinds.assert_equal(*everything)
        kinds.execute(
            "TRUNCATE by_index, large",  # both, in one transaction
            "INSERT INTO large VALUES (1, 1, 'again')",
            "TRUNCATE parts_a",
            "CREATE TABLE parts_c (id int, region text, v text, PRIMARY KEY (id, region))",
            "INSERT INTO parts_c SELECT i, 'c', 'attached' FROM generate_series(1, 50) i",
            "ALTER TABLE parts ATTACH PARTITION parts_c FOR VALUES IN ('c')",
            "ALTER TABLE parts DETACH PARTITION parts_b",
            "ALTER TABLE typed ALTER c TYPE char(5) USING upper(c)",
        )

        def are_read_again(status: dict[str, Any]) -> bool:
            seen = {one["table"]: one for one in status["tables"]}
            return all(seen[f"kinds.{name}"]["schema_version"] > 1 for name in ("typed", "parts"))

        pipeline.wait_until(are_read_again, "tables that are read again", seconds=120)
        kinds.drain(pipeline)
        kinds.assert_equal(*everything)
        verified = json.loads(kinds.command("verify", "--json").stdout)
        # One has no key. The other may have been seen before it became a partition.
        assert {one["table"] for one in verified["not_compared"]} <= {"kinds.bag", "kinds.parts_c"}
        assert all(one["equal"] for one in verified["tables"]) and len(verified["tables"]) == 5


@pytest.mark.slow
def test_a_pipeline_goes_on_after_a_major_upgrade(
    spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    with PostgreSqlServer(settings=LOGICAL) as server:
        up = PgScenario(server, "upgraded", tmp_path, spark, lake_root, snapshot={"chunk_rows": 50})
        up.execute(ORDERS, ROW.format(first=1, last=1500))
        with up.running() as pipeline:
            pipeline.next_epoch(seconds=300)
            up.execute("UPDATE orders SET kind = 'u' WHERE id % 3 = 0", "DELETE FROM orders WHERE id % 7 = 0")
            up.drain(pipeline)
        up.sql.close()
        upgrade(server, "penstock_upgraded")
        up.sql = connected(server)
        up.execute('SET search_path = "upgraded"', ROW.format(first=5000, last=5100))
        done = up.command("adopt-server", "--yes", "--json")
        assert done.returncode == 0 and json.loads(done.stdout)["changed"] == 0, done.stderr
        with up.running() as pipeline:
            up.execute("UPDATE orders SET kind = 'v' WHERE id % 5 = 0")
            up.drain(pipeline)
            up.assert_equal("orders")
        assert up.command("verify").returncode == 0
        up.sql.close()
