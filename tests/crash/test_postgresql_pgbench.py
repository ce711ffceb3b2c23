"""pgbench writes to PostgreSQL while everything between it and the target is killed. The judge is the
server's SELECT, and what pgbench itself promises: all balances change by the same sums."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import psycopg
import pytest
from tests.scenarios.postgresql import LOGICAL, PgScenario, connected

from penstock.testing.running import RunningPipeline
from penstock.testing.scenario import wait_for
from penstock.testing.servers.postgresql import PostgreSqlServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TABLES = ("pgbench_accounts", "pgbench_branches", "pgbench_tellers", "pgbench_history")
CLIENTS, RATE, ROUND_S = 4, 150, 8
"""Transactions per second of all clients, and how long they write around each kill."""


@pytest.fixture(scope="module")
def pgbench() -> str:
    places = [shutil.which("pgbench"), *map(str, Path("/usr/lib/postgresql").glob("*/bin/pgbench"))]
    found = next((place for place in places if place), None)
    if found is None:
        pytest.skip("no pgbench; Debian, Ubuntu: apt-get install postgresql-contrib")
    return found


@pytest.fixture
def case(spark: SparkSession, lake_root: Path, tmp_path: Path) -> Iterator[PgScenario]:
    with PostgreSqlServer(settings=LOGICAL) as server:
        made = PgScenario(server, "banking", tmp_path, spark, lake_root, snapshot={"chunk_rows": 5000})
        yield made
        made.sql.close()


def started(pgbench: str, case: PgScenario, *arguments: str) -> subprocess.Popen[bytes]:
    server = case.server
    environment = {
        "PGHOST": server.host, "PGPORT": str(server.port), "PGUSER": server.user,
        "PGPASSWORD": server.password,
        "PGOPTIONS": "-c search_path=banking", "PATH": os.defpath,
    }  # fmt: skip
    return subprocess.Popen(
        [pgbench, *arguments, server.database], env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


Victim = Literal["receiver", "driver", "walsender"]


def kill(victim: Victim, case: PgScenario, pipeline: RunningPipeline) -> None:
    """With the walsender, the server ends all sessions and recovers."""
    if victim != "walsender":
        pipeline.kill(victim)
        return
    wait_for(lambda: walsenders(case), "a walsender", seconds=120)
    os.kill(walsenders(case)[0], signal.SIGKILL)
    wait_for(lambda: is_back(case), "the server to be back", seconds=60)


def walsenders(case: PgScenario) -> list[int]:
    return [pid for (pid,) in case.sql.execute("SELECT pid FROM pg_stat_replication").fetchall()]


def is_back(case: PgScenario) -> bool:
    try:
        case.sql.close()
        case.sql = connected(case.server)
        case.execute("SET search_path = banking")
        return not case.sql.execute("SELECT pg_is_in_recovery()").fetchall()[0][0]
    except psycopg.OperationalError:
        return False


def test_pgbench_is_followed_through_kills(pgbench: str, case: PgScenario) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    assert started(pgbench, case, "-i", "-q", "-s", "1").wait(120) == 0
    case.execute("ALTER TABLE pgbench_history ADD id bigserial PRIMARY KEY")
    victims: list[Victim] = ["receiver", "driver", "walsender"]
    victims += chance.choices(victims, k=2)
    chance.shuffle(victims)
    with case.running() as pipeline:
        for victim in victims:
            writing = started(
                pgbench, case, "-n", "-c", str(CLIENTS), "-j", "2", "-T", str(ROUND_S), "-R", str(RATE)
            )
            try:
                goal = transactions(case) + chance.randrange(20, 400)
                wait_for_transactions(case, goal)
                kill(victim, case, pipeline)
                pipeline.ensure_alive()
                writing.wait(60)
            finally:
                writing.kill()
                writing.wait(10)
        case.drain(pipeline, restart=True)
        case.assert_equal(*TABLES)
        verified = case.command("verify", "--json")
        assert verified.returncode == 0, verified.stdout + verified.stderr
    lake = case.spark.sql
    sums = {name: lake(f"SELECT sum({name[0]}balance) FROM lake.banking.pgbench_{name}").collect()[0][0]
            for name in ("accounts", "branches", "tellers")}  # fmt: skip
    [history] = lake("SELECT sum(delta) AS sum, count(*) AS n FROM lake.banking.pgbench_history").collect()
    assert set(sums.values()) == {history["sum"]} and history["n"] > 100


def wait_for_transactions(case: PgScenario, goal: int) -> None:
    wait_for(lambda: transactions(case) > goal, f"{goal} transactions")


def transactions(case: PgScenario) -> int:
    [(count,)] = case.sql.execute("SELECT count(*) FROM pgbench_history").fetchall()
    return int(count)
