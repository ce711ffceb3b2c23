"""Damage that only Spark, or only time, brings to light: targets that are not as they were left, a relay log
whose rows were damaged, a disk that is full. Named with the cure, and then source and target are equal."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.testing import small_disk
from penstock.testing.scenario import Scenario, refusal, wait_for

Make = Callable[..., Scenario]


def run_once(case: Scenario) -> None:
    done = case.command("run", "--once")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_target_that_is_not_as_it_was_left_is_refused_until_it_is_mended_or_read_again(
    scenario: Make,
) -> None:
    case = scenario()
    state, older, newest = (case.folder / name for name in ("state", "older", "newest"))
    a, b = (f"{case.database}.{name}" for name in "ab")
    case.server.execute(
        "CREATE TABLE a (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE b (id INT PRIMARY KEY, v INT)",
        "INSERT INTO a VALUES (1, 1), (2, 2), (3, 3)",
        "INSERT INTO b VALUES (1, 1), (2, 2)",
    )
    run_once(case)
    shutil.copytree(state, older)
    case.server.execute(
        "UPDATE a SET v = 5 WHERE id = 1", "DELETE FROM a WHERE id = 2", "DELETE FROM b WHERE id = 2"
    )
    run_once(case)

    state.rename(newest)
    older.rename(state)
    refusal(case.command("run", "--once"), str(state), "ahead", "older copy of the state", "newest `state`")
    state.rename(case.folder / "refused")  # the JVM of the command may still remove files of its own in it
    newest.rename(state)

    first = case.spark.sql(f"SELECT snapshot_id FROM lake.{case.namespace}.a.snapshots ORDER BY committed_at")
    case.spark.sql(f"CALL lake.system.rollback_to_snapshot('{case.namespace}.a', {first.collect()[0][0]})")
    refusal(case.command("run", "--once"), a, "rolled back", f"penstock resnapshot FILE {a}")
    again = case.command("resnapshot", a)
    assert again.returncode == 0 and "when the pipeline runs" in again.stdout, again.stderr

    case.spark.sql(f"DROP TABLE lake.{case.namespace}.b PURGE")
    refusal(case.command("run", "--once"), b, "is gone", f"penstock resnapshot FILE {b}")
    assert case.command("resnapshot", b).returncode == 0
    case.server.execute("INSERT INTO a VALUES (7, 7)", "INSERT INTO b VALUES (7, 7)")
    run_once(case)
    case.assert_equal("a", "b")


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["iceberg", "delta"])
def test_a_target_that_somebody_rolls_back_while_the_pipeline_runs_is_parked(
    scenario: Make, sink: str
) -> None:
    case = scenario(sink)
    a = f"{case.database}.a"
    case.server.execute("CREATE TABLE a (id INT PRIMARY KEY, v INT)", "INSERT INTO a VALUES (1, 1), (2, 2)")

    def go_to(place: str, *, back: bool) -> str:
        """Makes another version the newest one. Returns what was the newest one."""
        if sink == "delta":
            name = f"delta.`{case.sink_path}/{case.namespace}/a`"
            newest = case.spark.sql(f"DESCRIBE HISTORY {name} LIMIT 1").collect()[0]["version"]
            case.spark.sql(f"RESTORE TABLE {name} TO VERSION AS OF {newest - 1 if back else place}")
            return str(newest)
        name = f"lake.{case.namespace}.a"
        case.spark.catalog.refreshTable(name)
        found = case.spark.sql(f"SELECT snapshot_id FROM {name}.snapshots ORDER BY committed_at DESC")
        newest, before = [row[0] for row in found.collect()][:2]
        wanted = before if back else place
        case.spark.sql(f"CALL lake.system.set_current_snapshot('{case.namespace}.a', {wanted})")
        return str(newest)

    def parked() -> str:
        [table] = case.status()["tables"]
        return str(table["parked"]["reason"]) if table["status"] == "parked" else ""

    with case.running() as pipeline:
        case.drain(pipeline)
        case.server.execute("UPDATE a SET v = 5 WHERE id = 1")
        case.drain(pipeline)
        newest = go_to("", back=True)
        case.server.execute("UPDATE a SET v = 6 WHERE id = 2")
        wait_for(parked, "the table to be parked")
        assert "rolled back" in parked()
        refused = case.command("unpark", a)
        assert refused.returncode and "rolled back" in refused.stderr, refused
        go_to(newest, back=False)
        assert case.command("unpark", a).returncode == 0
        case.server.execute("INSERT INTO a VALUES (3, 3)")
        wait_for(lambda: not parked(), "the table to be followed again")
        case.drain(pipeline)
        assert pipeline.stop() == 0
    case.assert_equal("a")


@pytest.mark.slow
def test_a_table_of_somebody_else_at_the_target_is_left_alone(scenario: Make) -> None:
    case = scenario()
    case.server.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    case.spark.sql(f"CREATE NAMESPACE lake.{case.namespace}")
    case.spark.sql(f"CREATE TABLE lake.{case.namespace}.t (id INT) USING iceberg")
    case.spark.sql(f"INSERT INTO lake.{case.namespace}.t VALUES (99)")
    refusal(case.command("run", "--once"), f"{case.database}.t", "Penstock did not create", "sink.namespace")
    assert [row["id"] for row in case.target("t").collect()] == [99]
    case.spark.sql(f"DROP TABLE lake.{case.namespace}.t PURGE")
    run_once(case)
    case.assert_equal("t")


@pytest.mark.slow
def test_rows_damaged_in_the_relay_log_never_reach_the_target(scenario: Make) -> None:
    case = scenario()
    case.server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(100))",
        "CREATE TABLE other (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1, 'a')",
    )
    run_once(case)
    case.server.execute(f"INSERT INTO t VALUES (2, '{'x' * 64}')", "INSERT INTO other VALUES (1)")
    with case.receiving():
        case.wait_until_received()
    segment = next(
        path for path in (case.folder / "state" / "relay").glob("*.binlog") if b"x" * 64 in path.read_bytes()
    )
    data = segment.read_bytes()
    at = data.index(b"x" * 64)
    segment.write_bytes(data[:at] + b"y" * 8 + data[at + 8 :])
    done = case.command("run", "--once")
    assert "Traceback" not in done.stderr and "\tat " not in done.stderr
    [parked] = [table for table in case.status()["tables"] if table["status"] == "parked"]
    assert parked["table"] == f"{case.database}.t"
    assert "offset" in parked["parked"]["reason"] and "resnapshot" in parked["parked"]["hint"]
    assert parked["table"] in done.stderr
    case.assert_equal("other")
    assert case.command("resnapshot", f"{case.database}.t").returncode == 0
    run_once(case)
    case.assert_equal("t", "other")


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["iceberg", "delta", "parquet"])
def test_a_target_whose_disk_is_full_is_told_by_status_and_written_once_there_is_room(
    scenario: Make, tmp_path: Path, sink: str
) -> None:
    if why := small_disk.missing():
        pytest.skip(why)
    with small_disk.SmallDisk(tmp_path / "disk", mib=16) as disk:
        target = disk.folder / "lake"
        case = scenario(sink, sink_options={"path": str(target)})
        case.server.execute(
            "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v TEXT)", "INSERT INTO t VALUES (1, '')"
        )
        with case.running() as pipeline:
            case.drain(pipeline)
            disk.fill()
            case.server.execute("INSERT INTO t (v) SELECT repeat('x', 1000) FROM information_schema.columns")
            wait_for(lambda: case.status()["retrying"], "status to say that the epoch is tried again")
            [retry] = case.status()["retrying"]
            assert retry["what"] == "epoch" and "A disk is full" in retry["reason"], retry
            shown = " ".join(case.command("status").stdout.split())
            assert "retrying epoch" in shown and " since " in shown, shown
            disk.free()
            status = case.drain(pipeline)
            assert status["retrying"] == []
            assert pipeline.stop() == 0
        ids = [
            row["id"] for row in case.spark.read.format(sink).load(f"{target}/{case.namespace}/t").collect()
        ]
        assert sorted(ids) == [row[0] for row in case.server.query("SELECT id FROM t ORDER BY id")]


@pytest.fixture
def relay_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m", "none", str(path)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a file system of its own is needed, and cannot be mounted: {mounted.stderr.strip()}")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.slow
def test_a_full_disk_makes_the_receiver_wait_and_say_so_and_nothing_is_lost(
    scenario: Make, relay_disk: Path
) -> None:
    case = scenario(relay_log={"path": str(relay_disk / "relay"), "disk_free_min": "1MiB"})
    case.server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v TEXT)", "INSERT INTO t VALUES (1, '')"
    )
    with case.running() as pipeline:
        case.drain(pipeline)
        ballast = relay_disk / "ballast"
        room = os.statvfs(relay_disk)
        ballast.write_bytes(bytes(room.f_bavail * room.f_frsize - 1_500_000))
        for _ in range(6):
            case.server.execute(
                "INSERT INTO t (v) SELECT repeat('x', 1000) FROM information_schema.columns LIMIT 400"
            )
        wait_for(
            lambda: "disk_full" in case.status()["receiver"], "the receiver to say that its disk is full"
        )
        shown = case.command("status").stdout
        for name in (str(relay_disk / "relay"), "relay_log.disk_free_min", "nothing is lost"):
            assert name in " ".join(shown.split()), shown
        assert pipeline.alive
        ballast.unlink()
        case.drain(pipeline)
        assert pipeline.stop() == 0
    case.assert_equal("t")
