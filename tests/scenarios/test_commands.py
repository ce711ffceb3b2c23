"""Every command on every server of the matrix, on one pipeline that lives through what operators do with it.

The account has the grants of the README and no more. What a command answers is compared with the server.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.scenarios.test_flavors import MARKS

from penstock.changes import ChangeBatch, follow
from penstock.testing import servers
from penstock.testing.running import RunningPipeline
from penstock.testing.scenario import Scenario, wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VARIANTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "mysql57": ("mysql57", {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}, "5.7.22"),
    "mysql80": ("mysql80", {}, "8.0"),
    "mysql97": ("mysql97", {}, "9.7"),
    "mariadb1011": ("mariadb1011", {}, "mariadb-10.11"),
    "mariadb118": ("mariadb118", {}, "mariadb-11.8"),
}
"""Server, its options (5.7 has no GTIDs unless they are asked for), and its version for `penstock schema`."""
TABLES = {
    "orders": "(id INT PRIMARY KEY AUTO_INCREMENT, state VARCHAR(20) NOT NULL, price DECIMAL(10,2),"
    " at DATETIME(3))",
    "items": "(order_id INT, line INT, note TEXT, PRIMARY KEY (order_id, line))",
    "keyless": "(a INT, b VARCHAR(10))",
    "moved": "(id INT PRIMARY KEY)",
    "gone": "(id INT PRIMARY KEY)",
}
ACCOUNT = ("CREATE USER cdc@'%' IDENTIFIED BY 'secret'",
           "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO cdc@'%'")  # fmt: skip


class Commands:
    """Runs commands and takes their exit codes and JSON."""

    def __init__(self, case: Scenario) -> None:
        self.case = case

    def __call__(self, *arguments: str, code: int = 0) -> Any:
        done = self.case.command(*arguments, "--json", timeout=900)
        assert done.returncode == code, (
            f"{arguments}: {done.returncode} {done.stdout[-3000:]} {done.stderr[-3000:]}"
        )
        assert "Traceback" not in done.stderr, done.stderr[-3000:]
        return json.loads(done.stdout)

    def table(self, name: str) -> dict[str, Any]:
        [found] = [one for one in self("status")["tables"] if one["table"] == f"shop.{name}"]
        assert isinstance(found, dict)
        return found

    def verdicts(self, *names: str, code: int) -> tuple[dict[str, bool], dict[str, str]]:
        """Which tables are equal, and why others were not compared."""
        found = self("verify", *(f"shop.{name}" for name in names), code=code)
        assert found["equal"] == (code == 0)
        return (
            {one["table"].partition(".")[2]: one["equal"] for one in found["tables"]},
            {one["table"].partition(".")[2]: one["why"] for one in found["not_compared"]},
        )


@contextmanager
def pipeline_over(
    variant: str, spark: SparkSession, lake_root: Path, folder: Path
) -> Iterator[tuple[Scenario, servers.DatabaseServer]]:
    name, options, _ = VARIANTS[variant]
    with servers.FLAVORS[name](options) as server:
        server.execute("CREATE DATABASE shop", "CREATE DATABASE marks", MARKS, *ACCOUNT)
        for table, columns in TABLES.items():
            server.execute(f"CREATE TABLE shop.{table} {columns} CHARSET utf8mb4")
        numbers = range(1, 301)
        server.execute(
            "INSERT INTO shop.orders VALUES "
            + ", ".join(f"({n}, 'new', {n} / 7, '2024-02-29 12:13:14.156')" for n in numbers),
            "INSERT INTO shop.items VALUES " + ", ".join(f"({n}, 1, REPEAT('ä', {n}))" for n in numbers),
            "INSERT INTO shop.keyless VALUES (1, 'x')",
            "INSERT INTO shop.moved VALUES (1), (2)",
            "INSERT INTO shop.gone VALUES (1)",
        )
        source: dict[str, Any] = {}
        if options:
            server.execute("GRANT INSERT, UPDATE ON marks.t TO cdc@'%'")
            source = {"watermark_table": "marks.t"}
        case = Scenario(server, "shop", folder, spark, lake_root, source_options=source)
        document = yaml.safe_load(case.file.read_text())
        document["source"] |= {"user": "cdc", "password": "secret"}
        case.file.write_text(yaml.safe_dump(document))
        yield case, server


def check_schema(case: Scenario, server: servers.DatabaseServer, version: str) -> None:
    """`schema` understands what the server itself prints of its tables."""
    script = case.folder / "shop.sql"
    made = [server.query(f"SHOW CREATE TABLE shop.{table}")[0][1] for table in TABLES]
    script.write_text(";\n".join(made) + ";\n")
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "schema", str(script), "--server-version", version, "--database",
         "shop", "--json"], capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert not found["problems"], found["problems"]
    columns = {
        f"{table['database']}.{table['table']}": [column["name"] for column in table["columns"]]
        for table in found["tables"]
    }
    expected: dict[str, list[str]] = {}
    for table, column in server.query(
        "SELECT TABLE_NAME, COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = 'shop' "
        "ORDER BY TABLE_NAME, ORDINAL_POSITION"
    ):
        expected.setdefault(f"shop.{table}", []).append(column)
    assert columns == expected


def check_follow(case: Scenario, server: servers.DatabaseServer) -> None:
    """A change is seen in Python, with the server's own values."""
    with follow(case.file, ["shop.orders"], start="latest") as changes:
        stopper = threading.Timer(120, changes.stop)  # a limit, for a change that never comes
        stopper.start()
        server.execute("INSERT INTO shop.orders (id, state, price) VALUES (5000, 'followed', 1.25)")
        seen = []
        for item in changes:
            if isinstance(item, ChangeBatch):
                seen += item.batch.select(["id", "state", "_change_type"]).to_pylist()
                break
        stopper.cancel()
    assert seen == [{"id": 5000, "state": "followed", "_change_type": "insert"}]


def check_repair(run: Commands, server: servers.DatabaseServer) -> None:
    server.execute(
        "SET sql_log_bin = 0",
        "UPDATE shop.orders SET price = 0 WHERE id = 7",
        "DELETE FROM shop.items WHERE order_id = 9",
        "SET sql_log_bin = 1",
    )
    equal, left_out = run.verdicts(code=1)
    assert equal == {"orders": False, "items": False, "moved": True, "gone": True}
    assert left_out == {"keyless": "parked"}
    repaired = run("repair", "shop.orders", "shop.items")["tables"]
    assert {one["table"]: one["signal"]["status"] for one in repaired} == {
        "shop.orders": "done",
        "shop.items": "done",
    }
    assert run.verdicts("orders", "items", code=0) == ({"orders": True, "items": True}, {})


def check_changes_of_tables(
    run: Commands, case: Scenario, server: servers.DatabaseServer, pipeline: Any
) -> None:
    """A table is read again, one comes back from being parked, and two leave."""
    assert run("resnapshot", "shop.items")["shop.items"]["ok"]
    wait_for(lambda: run.table("items")["snapshot"] == "done", "items to be read again", seconds=300)
    server.execute("ALTER TABLE shop.keyless ADD COLUMN id INT NOT NULL AUTO_INCREMENT PRIMARY KEY")
    case.drain(pipeline)
    assert run("unpark", "shop.keyless")["shop.keyless"]["action"] == "resnapshot"
    wait_for(lambda: run.table("keyless")["snapshot"] == "done", "keyless to be read", seconds=300)
    server.execute("DROP TABLE shop.gone", "RENAME TABLE shop.moved TO shop.there")
    case.drain(pipeline)
    equal, left_out = run.verdicts(code=0)
    assert equal == dict.fromkeys(("orders", "items", "keyless", "there"), True)
    assert left_out == {"gone": "gone", "moved": "gone"}
    assert run.verdicts("gone", code=6) == ({}, {"gone": "gone"})


def check_readers(run: Commands, case: Scenario, server: servers.DatabaseServer) -> None:
    done = case.command(
        "query", "SELECT count(*) AS n, sum(price) AS total FROM orders", "--json", timeout=900
    )
    assert done.returncode == 0, done.stderr
    [(count, total)] = server.query("SELECT COUNT(*), SUM(price) FROM shop.orders")
    assert json.loads(done.stdout) == {"n": count, "total": str(total)}
    assert set(run("compact")["tables"]) >= {"shop.orders", "shop.items"}
    found = subprocess.run(
        [sys.executable, "-m", "penstock", "inspect", str(case.folder / "state" / "relay"), "--summary",
         "--json"], capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    summary = json.loads(found.stdout)
    assert summary["transactions"] > 0 and summary["error"] is None
    assert summary["rows"]["insert shop.orders"] == 1
    assert run("signals")[-1]["status"] in ("done", "failed", "refused")


def lived(case: Scenario, server: servers.DatabaseServer, pipeline: RunningPipeline) -> None:
    run = Commands(case)
    pipeline.wait_until(
        lambda s: len(s["tables"]) == 5 and s["snapshot"]["done"], "the snapshot", seconds=900
    )
    case.drain(pipeline)
    now = run("status")
    assert now["running"] and now["lag"]["bytes"] == 0
    assert {one["table"]: one["status"] for one in now["tables"]} == {
        f"shop.{table}": "parked" if table == "keyless" else "live" for table in TABLES
    }
    check_follow(case, server)
    told = run("signal", "execute-snapshot", "shop.orders", "--key", "7", "--wait")
    assert told["status"] == "done"
    case.drain(pipeline)
    check_repair(run, server)
    check_changes_of_tables(run, case, server, pipeline)
    check_readers(run, case, server)


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_command_answers_what_the_server_says(
    variant: str, spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    with pipeline_over(variant, spark, lake_root, tmp_path) as (case, server):
        run = Commands(case)
        check_schema(case, server, VARIANTS[variant][2])
        findings = run("doctor")["findings"]
        assert {one["subject"] for one in findings if one["parks"]} == {"shop.keyless"}
        assert not [one for one in findings if one["level"] == "error"]
        with case.running() as pipeline:
            lived(case, server, pipeline)
            assert pipeline.stop() == 0
        assert not run("status")["running"]
        server.execute("DELETE FROM shop.orders WHERE id = 3")
        with case.receiving():
            case.wait_until_received()
        done = case.command("verify", timeout=900)
        assert done.returncode == 1 and "not running" in done.stderr, "what is received is not applied yet"
        done = case.command("run", "--once", "--json", timeout=900)
        assert done.returncode == 0, done.stderr[-3000:]
        with case.receiving():  # where verify leaves a mark in the log, somebody has to fetch it
            case.wait_until_received()
            equal, _ = run.verdicts(code=0)
        assert equal == dict.fromkeys(("orders", "items", "keyless", "there"), True)
        assert {one["decision"] for one in run("status", "--history")} >= {"captured"}
        assert not [one for one in run("doctor")["findings"] if one["parks"]]
        case.assert_equal("orders", "items", "keyless", "there")
