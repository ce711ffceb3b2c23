"""Two drivers of one pipeline: the second one has a copy of the state, as on another machine. What they share
is an S3 server. No lock on a file stands between them, because their tables are in the store, too."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.testing.running import RunningPipeline
from penstock.testing.scenario import SHORT_LIVED, Scenario
from penstock.testing.servers import Database
from penstock.testing.servers.s3 import KEY_ID, SECRET, S3Proxy, S3Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROWS = 3_000


@pytest.fixture(scope="module")
def store() -> Iterator[S3Server]:
    with S3Proxy() as store:
        store.make_bucket("lake")
        yield store


@pytest.fixture
def case(mysql: Database, tmp_path: Path, store: S3Server) -> Scenario:
    mysql.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(50), n INT NOT NULL DEFAULT 0)",
        "INSERT INTO orders (id, note) WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n"
        f" WHERE i < 1000) SELECT a.i + 1000 * b.i, 'first' FROM n a JOIN n b ON b.i < {ROWS // 1000}",
    )
    nothing: Any = None
    case = Scenario(mysql, mysql.name, tmp_path, nothing, tmp_path / "lake")
    in_store(case, store)
    return case


def in_store(case: Scenario, store: S3Server, *, catalog: Path | None = None) -> None:
    prefix = f"s3://lake/{case.database}"
    case.write_file(
        sink={
            "type": "iceberg",
            "namespace": case.namespace,
            "catalog": {
                "type": "jdbc",
                "uri": f"jdbc:sqlite:{(catalog or case.folder) / 'catalog.db'}",
                "warehouse": f"{prefix}/tables",
                "properties": store.iceberg_properties,
            },
        },
        store={"endpoint": store.url, "access_key_id": KEY_ID, "secret_access_key": SECRET},
        staging=f"{prefix}/staging",
        relay_log={"archive": f"{prefix}/log"},
        spark={"master": "local[2]", "driver_memory": "1g", "conf": SHORT_LIVED},
    )


def elsewhere(case: Scenario, store: S3Server) -> Scenario:
    """The same pipeline with a copy of what must survive."""
    folder = case.folder / "elsewhere"
    (folder / "state").mkdir(parents=True, mode=0o700)
    for path in (case.folder / "state").glob("state.sqlite*"):
        shutil.copy(path, folder / "state")
    shutil.copytree(case.folder / "state/relay", folder / "state/relay")
    second = replace(case, folder=folder)
    second.namespace = case.namespace
    in_store(second, store, catalog=case.folder)
    return second


def processes(pipeline: RunningPipeline, *roles: str) -> list[psutil.Process]:
    found = pipeline.processes()
    return [process for role in roles for process in found[role]]


@contextmanager
def changing(case: Scenario, first: int = 0) -> Iterator[None]:
    """Rows are inserted, changed and deleted without a pause."""
    ending = threading.Event()

    def change() -> None:
        number = first
        with case.server.connect() as connection, connection.cursor() as cursor:
            while not ending.wait(0.005):
                number += 1
                cursor.execute(f"UPDATE {case.database}.orders SET n = n + 1 WHERE id % 97 = {number % 97}")
                cursor.execute(f"INSERT INTO {case.database}.orders VALUES ({100_000 + number}, 'new', 0)")
                cursor.execute(f"DELETE FROM {case.database}.orders WHERE id = {100_000 + number - 50}")
                connection.commit()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def assert_equal(case: Scenario) -> None:
    done = case.command("verify", "--json", timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.parametrize(
    "suspended",
    [
        pytest.param(("driver", "jvm", "receiver", "workers"), id="with its JVM"),
        pytest.param(("driver", "receiver"), id="while its JVM goes on"),
    ],
)
def test_a_driver_that_was_suspended_and_replaced_writes_nothing_any_more(
    case: Scenario, store: S3Server, suspended: tuple[str, ...]
) -> None:
    with case.running() as first:
        with changing(case):
            first.wait_until(lambda status: status["epoch"] > 5, "some epochs", seconds=300)
            asleep = processes(first, *suspended)
            for process in asleep:
                process.suspend()
            second = elsewhere(case, store)
        with second.running() as pipeline:
            with changing(case, 1_000_000):
                pipeline.next_epoch(seconds=300)
                for process in asleep:
                    process.resume()
                assert first.wait(seconds=200) == 1
                assert "has taken over" in first.errors, first.errors[-3000:]
                pipeline.next_epoch(seconds=300)
            case.drain(pipeline)
            assert pipeline.stop() == 0, pipeline.errors[-3000:]
    again = second.command("run", "--once", timeout=300)
    assert again.returncode == 0, again.stderr[-3000:]
    assert_equal(second)


def test_a_second_driver_is_refused_while_the_first_one_runs(case: Scenario, store: S3Server) -> None:
    with case.running() as first:
        case.drain(first)
        second = elsewhere(case, store)
        (second.folder / "state/relay/archive-id").unlink()
        refused = second.command("run", "--once", timeout=200)
        assert refused.returncode == 3, refused.stderr[-3000:]
        assert "runs: process" in refused.stderr or "writes the archive" in refused.stderr
        case.drain(first)
        assert first.stop() == 0
    assert_equal(case)
