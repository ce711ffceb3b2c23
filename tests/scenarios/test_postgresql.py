"""A real PostgreSQL into Iceberg, while it is written to, altered and killed."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.scenarios.postgresql import LOGICAL, PgScenario, connected

from penstock.testing.servers.postgresql import PostgreSqlServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSqlServer]:
    with PostgreSqlServer(settings=LOGICAL) as server:
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


def test_a_pipeline_follows_a_database_though_everything_is_killed(
    server: PostgreSqlServer, scenario: Callable[..., PgScenario]
) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    shop = scenario("shop", snapshot={"chunk_rows": 200})
    shop.execute(ORDERS, "CREATE TABLE pairs (a int, b text, c int, PRIMARY KEY (a, b))")
    shop.execute(ROW.format(first=1, last=2000), "INSERT INTO pairs VALUES (1, 'it''s', 0)")
    ended = threading.Event()
    writers = [
        threading.Thread(target=_write, args=(server, "shop", seed + number, ended)) for number in range(2)
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
