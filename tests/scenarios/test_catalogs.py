"""A whole pipeline into a REST catalog with its tables on S3, as docs/catalogs.md shows it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.scenarios.canaries import files_with

from penstock.testing.scenario import SHORT_LIVED, Completed, Scenario, refusal
from penstock.testing.servers import Database
from penstock.testing.servers.catalogs import Nessie
from penstock.testing.servers.s3 import SECRET, Moto, S3Server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store() -> Iterator[S3Server]:
    with Moto() as store:
        store.make_bucket("lake")
        yield store


@pytest.fixture
def case(mysql: Database, tmp_path: Path) -> Scenario:
    mysql.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, v VARCHAR(50))",
        "INSERT INTO orders VALUES (1, 'one'), (2, 'two'), (3, 'three')",
    )
    nothing: Any = None
    return Scenario(mysql, mysql.name, tmp_path, nothing, tmp_path / "lake")


def into(case: Scenario, catalog: dict[str, Any]) -> None:
    events = case.folder / "events"
    events.mkdir(exist_ok=True)
    logged = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri()}
    spark = {"master": "local[2]", "driver_memory": "1g", "conf": SHORT_LIVED | logged}
    case.write_file(sink={"type": "iceberg", "namespace": case.namespace, "catalog": catalog}, spark=spark)


def told(done: Completed) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr[-3000:]
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return document


def test_a_pipeline_runs_into_a_rest_catalog_that_vends_keys(
    case: Scenario, mysql: Database, store: S3Server
) -> None:
    with Nessie(store, "lake", vends=True) as nessie:
        into(case, {"type": "rest", "uri": nessie.uri, "warehouse": nessie.WAREHOUSE})
        found = told(case.command("doctor", "--json"))["findings"]
        assert [one["check"] for one in found][-5:] == ["catalog", "namespace", "table", "store", "drop"]
        told(case.command("run", "--once", "--json"))
        mysql.execute(
            "UPDATE orders SET v = 'zwei' WHERE id = 2",
            "DELETE FROM orders WHERE id = 1",
            "INSERT INTO orders VALUES (4, 'four')",
            "ALTER TABLE orders ADD COLUMN more INT DEFAULT 7",
            "INSERT INTO orders VALUES (5, 'five', 8)",
        )
        told(case.command("run", "--once", "--json"))
        assert [one["equal"] for one in told(case.command("verify", "--json"))["tables"]] == [True]
        sql = f"SELECT id, v, more FROM lake.{case.namespace}.orders ORDER BY id"
        rows = [json.loads(line) for line in case.command("query", sql, "--json").stdout.splitlines()]
        assert rows == [
            {"id": 2, "v": "zwei", "more": 7},
            {"id": 3, "v": "three", "more": 7},
            {"id": 4, "v": "four", "more": 7},
            {"id": 5, "v": "five", "more": 8},
        ]


def test_the_private_lake_of_the_docs_works_with_the_section_that_it_prints(case: Scenario) -> None:
    program = [sys.executable, "-m", "penstock.testing", "lake"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as lake:
        assert lake.stdout is not None
        section = yaml.safe_load("".join(iter(lake.stdout.readline, "\n")))
        into(case, section["sink"]["catalog"])
        found = told(case.command("doctor", "--json"))["findings"]
        assert found[-1]["check"] == "drop" and found[-1]["level"] == "ok"
        lake.send_signal(signal.SIGINT)
        assert lake.wait(60) == 0


def test_keys_of_a_store_are_in_no_log_of_spark_and_no_output(case: Scenario, store: S3Server) -> None:
    uri = f"jdbc:sqlite:{case.folder / 'catalog.db'}"
    canary = {"properties": {**store.iceberg_properties, "header.Authorization": f"Bearer {SECRET}"}}
    into(case, {"type": "jdbc", "uri": uri, "warehouse": "s3://lake/keys", **canary})
    done = case.command("run", "--once", "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    assert SECRET not in done.stdout + done.stderr
    assert files_with(case.folder, SECRET) == [case.file]
    assert list((case.folder / "events").rglob("*")), "there is a log of events"


MISTAKES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no catalog": (
        {"type": "rest", "uri": "http://127.0.0.1:9/iceberg"},
        ["127.0.0.1:9", "cannot be reached"],
    ),
    "no bucket": ({"warehouse": "s3://nowhere/x"}, ["The bucket does not exist", "`warehouse`"]),
    "no driver": ({"uri": "jdbc:oracle:thin:@h"}, ["no JDBC driver for jdbc:oracle"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_run_and_doctor_tell_a_mistake_with_the_cure(case: Scenario, store: S3Server, name: str) -> None:
    wrong, said = MISTAKES[name]
    right = {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{case.folder / 'catalog.db'}",
        "warehouse": "s3://lake/x",
        "properties": store.iceberg_properties,
    }
    into(case, wrong if "type" in wrong else {**right, **wrong})
    refusal(case.command("run", "--once"), *said)
    done = case.command("doctor", "--json")
    assert done.returncode == 1, done.stderr[-3000:]
    document = json.loads(done.stdout)
    [error] = [one for one in document["findings"] if one["level"] == "error"]
    for part in said:
        assert part in error["message"]


def test_a_jar_that_cannot_be_fetched_is_named(
    case: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "ivy.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="m"/><resolvers><ibiblio name="m" m2compatible="true" '
        'root="http://127.0.0.1:9/"/></resolvers></ivysettings>'
    )
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PENSTOCK_IVY_SETTINGS", str(settings))
    into(case, {"type": "rest", "uri": "http://127.0.0.1:9/iceberg"})
    refusal(case.command("prepare"), "could not be fetched", "$PENSTOCK_IVY_SETTINGS")
    done = case.command("doctor", "--json")
    [error] = [one for one in json.loads(done.stdout)["findings"] if one["level"] == "error"]
    assert error["check"] == "spark" and "could not be fetched" in error["message"]
