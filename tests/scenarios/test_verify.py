"""`penstock verify` on servers that tell in different ways what a read view holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.scenarios.test_flavors import MARKS

from penstock.testing import servers
from penstock.testing.scenario import Scenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "mysql80": ("mysql80", {}),
    "mysql80-plain": ("mysql80", {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}),
    "mariadb1011": ("mariadb1011", {}),
}


def verified(case: Scenario, *, code: int) -> dict[str, Any]:
    """The report on the one table."""
    done = case.command("verify", "--json")
    assert done.returncode == code, done.stdout + done.stderr
    [report] = json.loads(done.stdout)["tables"]
    assert isinstance(report, dict)
    return report


@pytest.mark.timeout(900)
@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_changed_behind_the_log_are_found_and_named_and_repaired_alone(
    variant: str, spark: SparkSession, lake_root: Path, tmp_path: Path
) -> None:
    name, options = VARIANTS[variant]
    with servers.FLAVORS[name](options) as server:
        server.execute(
            "CREATE DATABASE shop",
            "CREATE DATABASE marks",
            MARKS,
            "CREATE TABLE shop.orders (id INT PRIMARY KEY, state VARCHAR(20), price DECIMAL(10,2))",
            *(f"INSERT INTO shop.orders VALUES ({n}, 'new', {n} / 7)" for n in range(1, 500)),
        )
        source = {"watermark_table": "marks.t"} if options else {}
        case = Scenario(server, "shop", tmp_path, spark, lake_root, source_options=source)
        with case.running() as pipeline:
            pipeline.wait_until(lambda s: s["snapshot"]["done"], "the snapshot", seconds=300)
            report = verified(case, code=0)
            assert (report["equal"], report["rows_source"], report["rows_target"]) == (True, 499, 499)
            server.execute(
                "SET sql_log_bin = 0",
                "INSERT INTO shop.orders VALUES (1000, 'unseen', 1)",
                "UPDATE shop.orders SET price = 0 WHERE id = 7",
                "DELETE FROM shop.orders WHERE id = 9",
                "SET sql_log_bin = 1",
                "UPDATE shop.orders SET state = 'paid' WHERE id = 8",
            )
            report = verified(case, code=1)
            found = {(int(key["key"]["id"]), key["kind"]) for key in report["keys_different"]}
            assert found == {(1000, "missing"), (7, "different"), (9, "extra")}
            [table] = case.status()["tables"]
            assert (table["verified"]["verdict"], table["verified"]["keys_different"]) == ("different", 3)
            assert table["verified"]["offset"] == report["offset"]
            shown = case.command("status").stdout
            assert "3 keys" in shown and "different" in shown, shown
            done = case.command("repair", "--json")
            assert done.returncode == 0, done.stdout + done.stderr
            [repaired] = json.loads(done.stdout)["tables"]
            assert {int(key) for [key] in repaired["signal"]["data"]["keys"]} == {1000, 7, 9}
            [now] = case.status()["tables"]
            assert now["start"] == table["start"], "the table was not read as a whole"
            case.drain(pipeline)
            assert verified(case, code=0)["equal"]
            assert case.status()["tables"][0]["verified"]["verdict"] == "equal"
            pipeline.stop()
        case.assert_equal("orders")
