"""The receiver against real servers. The judge is the source's own binlog, compared byte for byte."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sources.mysql.receiving import Receiving, log_events, receiving, source_events

from penstock import config as configuration
from penstock._core import GtidSet
from penstock.model.offset import LogRange, Offset
from penstock.model.schema import TableId
from penstock.sources.mysql import preflight
from penstock.sources.mysql.ddl.server import sql_mode
from penstock.testing.servers import MySqlServer

T = TableId("d", "t")
SCHEMA = ("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, pad VARBINARY(2000))")


@pytest.fixture(scope="module")
def shared() -> Iterator[MySqlServer]:
    with MySqlServer() as server:
        server.execute(*SCHEMA)
        yield server


@pytest.fixture(params=["ON", "OFF"], scope="module")
def either(request: Any) -> Iterator[MySqlServer]:
    with MySqlServer({"gtid_mode": request.param, "enforce_gtid_consistency": request.param}) as server:
        server.execute(*SCHEMA)
        yield server


def write(server: MySqlServer, transactions: int, *, rows: int = 1) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for _ in range(transactions):
            cursor.execute("BEGIN")
            for _ in range(rows):
                cursor.execute("INSERT INTO d.t (pad) VALUES (REPEAT('x', RAND() * 200))")
            cursor.execute("COMMIT")


def grow(server: MySqlServer, rows: int, size: int = 200) -> None:
    """One transaction of many rows."""
    digits = "(SELECT 0 n" + "".join(f" UNION ALL SELECT {n}" for n in range(1, 10)) + ")"
    tables = ", ".join(f"{digits} t{n}" for n in range(6))
    server.execute(
        "SET SESSION cte_max_recursion_depth = 10000000",
        f"INSERT INTO d.t (pad) SELECT REPEAT('y', {size}) FROM {tables} LIMIT {rows}",
    )


def test_the_log_holds_the_sources_events_byte_for_byte(either: MySqlServer, tmp_path: Path) -> None:
    write(either, 20)
    with receiving(either, tmp_path, segment_size="64KiB") as receiver:
        write(either, 50, rows=3)
        grow(either, 3000)
        either.execute(
            "FLUSH BINARY LOGS", "ALTER TABLE d.t ADD COLUMN c INT", "ALTER TABLE d.t DROP COLUMN c"
        )
        write(either, 20)
        receiver.wait_until_level()
        assert receiver.stop() == 0
        assert log_events(receiver.log_path) == source_events(either)
        log = receiver.log
        assert log.executed_at(log.end) == GtidSet(either.gtid_executed())
        assert str(log.position_at(log.end)) == "{}:{}".format(*either.position())
        found = log.statements(LogRange(log.start, log.end))
        altered = [statement for statement in found if statement.sql.startswith("ALTER")]
        assert [statement.sql for statement in altered] == [
            "ALTER TABLE d.t ADD COLUMN c INT",
            "ALTER TABLE d.t DROP COLUMN c",
        ]
        [(mode,)] = either.query("SELECT @@sql_mode")
        assert {sql_mode(statement.sql_mode or 0) for statement in altered} == {sql_mode(str(mode))}


def test_a_restart_goes_on_without_a_gap_or_a_double(either: MySqlServer, tmp_path: Path) -> None:
    receiver = Receiving(either, tmp_path)
    for _ in range(3):
        receiver.start()
        write(either, 10)
        receiver.wait_until_level()
        assert receiver.stop() == 0
        write(either, 5)
    receiver.start()
    receiver.wait_until_level()
    receiver.stop()
    assert log_events(receiver.log_path) == source_events(either)


def test_latest_begins_after_what_is_there_and_knows_the_executed_set(
    shared: MySqlServer, tmp_path: Path
) -> None:
    before = GtidSet(shared.gtid_executed())
    with receiving(shared, tmp_path, start="latest") as receiver:
        receiver.wait_for(lambda: receiver.log_path.exists() and receiver.status().get("offset"), "start")
        log = receiver.log
        assert (
            log.executed_at(log.start) == before
            and log.transactions_between(LogRange(log.start, log.end)) == 0
        )
        write(shared, 1)
        receiver.wait_until_level()
        log.refresh()
        received = GtidSet(str(log.executed_at(log.end))).difference(before)
        assert received == GtidSet(shared.gtid_executed()).difference(before)
        assert log.tables(LogRange(log.start, log.end))[T][0] == 1


@pytest.mark.parametrize("way", ["gtid", "position", "timestamp"])
def test_starts_in_the_middle_begin_at_exactly_that_transaction(
    shared: MySqlServer, tmp_path: Path, way: str
) -> None:
    shared.execute("FLUSH BINARY LOGS")
    write(shared, 3)
    gtids, (file, position) = shared.gtid_executed(), shared.position()
    shared.query("SELECT SLEEP(0.01)")
    [(timestamp,)] = shared.query("SELECT DATE_FORMAT(UTC_TIMESTAMP(6), '%Y-%m-%dT%H:%i:%s.%fZ')")
    shared.query("SELECT SLEEP(0.01)")
    write(shared, 4)
    shared.execute("FLUSH BINARY LOGS")
    write(shared, 2)
    start = {
        "gtid": {"gtid": gtids},
        "position": {"file": file, "position": position},
        "timestamp": {"timestamp": timestamp},
    }[way]
    with receiving(shared, tmp_path, start=start) as receiver:
        receiver.wait_until_level()
        log = receiver.log
        assert log.executed_at(log.start) == GtidSet(gtids)
        assert log.transactions_between(LogRange(log.start, log.end)) == 6
        assert log.executed_at(log.end) == GtidSet(shared.gtid_executed())


def test_an_idle_source_moves_on(shared: MySqlServer, tmp_path: Path) -> None:
    with receiving(shared, tmp_path, start="latest") as receiver:
        receiver.wait_until_level()
        end = receiver.log.end
        shared.execute("FLUSH BINARY LOGS")
        receiver.wait_until_level()
        log = receiver.log
        assert str(log.position_at(log.end)) == "{}:{}".format(*shared.position()) and log.end == end


def test_a_second_receiver_is_told_of_the_first(shared: MySqlServer, tmp_path: Path) -> None:
    with receiving(shared, tmp_path, start="latest") as receiver:
        receiver.wait_until_level()
        command = [sys.executable, "-m", "penstock", "receive", str(receiver.file)]
        second = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert second.returncode == 3 and receiver.process is not None
        assert f"process {receiver.process.pid}" in second.stderr


def test_a_child_ends_with_its_parent(shared: MySqlServer, tmp_path: Path) -> None:
    receiver = Receiving(shared, tmp_path, start="latest")
    child = subprocess.Popen(
        [sys.executable, "-m", "penstock", "receive", str(receiver.file), "--child"], stdin=subprocess.PIPE
    )
    receiver.wait_for(lambda: receiver.status().get("state") == "streaming", "stream")
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(60) == 0


def test_tls_and_both_ways_to_authenticate(shared: MySqlServer, tmp_path: Path) -> None:
    ca = shared.datadir / "ca.pem"
    shared.execute(
        "CREATE USER old@'%' IDENTIFIED WITH mysql_native_password BY 'päss'",
        "CREATE USER new@'%' IDENTIFIED WITH caching_sha2_password BY 'päss'",
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO old@'%', new@'%'",
    )
    write(shared, 2)
    ways: list[dict[str, Any]] = [
        {"user": "new", "tls": "verify_ca", "tls_ca": str(ca)},
        {"user": "new", "tls": "disabled"},
        {"user": "old", "tls": "required"},
        {"user": "old", "tls": "disabled"},
    ]
    for number, way in enumerate(ways):
        with receiving(shared, tmp_path / str(number), source={"password": "päss", **way}) as receiver:
            receiver.wait_until_level()
            assert receiver.stop() == 0
            assert log_events(receiver.log_path) == source_events(shared)


def test_what_the_operator_must_mend_is_said_with_the_cure(shared: MySqlServer, tmp_path: Path) -> None:
    shared.execute("CREATE USER poor@'%' IDENTIFIED BY 'p'")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"password": "wrong"}, "source.password"),
        ({"port": 1}, "source.port"),
        (
            {"user": "poor", "password": "p"},
            "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'poor'@'%'",
        ),
        ({"server_id": 1}, "server_id"),
    ]
    for number, (source, expected) in enumerate(cases):
        receiver = Receiving(shared, tmp_path / str(number), source=source)
        said = receiver.fails()
        assert expected in said and "Traceback" not in said
        assert receiver.status()["error"]["error"] == "ConfigError"


def test_a_source_that_was_reset_is_not_followed(mysql_factory: Any, tmp_path: Path) -> None:
    server = mysql_factory()
    server.execute(*SCHEMA)
    write(server, 5)
    receiver = Receiving(server, tmp_path)
    receiver.start()
    receiver.wait_until_level()
    receiver.stop()
    before = server.gtid_executed()
    server.execute("RESET MASTER")
    write(server, 2)
    said = receiver.fails()
    assert receiver.status()["error"]["error"] == "LogDiverged" and before.split(":")[0] in said
    # More transactions than before, under the GTIDs that we hold for others: only their bytes tell.
    write(server, 20)
    assert "another transaction" in receiver.fails()
    assert receiver.status()["error"]["error"] == "LogDiverged"


def test_a_reset_source_without_gtids_is_not_followed(mysql_factory: Any, tmp_path: Path) -> None:
    server = mysql_factory(gtid_mode="OFF", enforce_gtid_consistency="OFF")
    server.execute(*SCHEMA)
    write(server, 5)
    receiver = Receiving(server, tmp_path)
    receiver.start()
    receiver.wait_until_level()
    receiver.stop()
    server.execute("RESET MASTER")
    write(server, 30)
    receiver.fails()
    assert receiver.status()["error"]["error"] == "LogDiverged"


def test_a_purged_log_is_named_with_its_cure(mysql_factory: Any, tmp_path: Path) -> None:
    server = mysql_factory()
    server.execute(*SCHEMA)
    receiver = Receiving(server, tmp_path)
    receiver.start()
    receiver.wait_until_level()
    receiver.stop()
    write(server, 5)
    server.execute("FLUSH BINARY LOGS")
    server.execute(f"PURGE BINARY LOGS TO '{server.position()[0]}'")
    assert "binlog_expire_logs_seconds" in receiver.fails()
    error = receiver.status()["error"]
    assert error["error"] == "LogPurged" and error["oldest"] == server.position()[0]
    [told] = [one for one in preflight.check(configuration.load(receiver.file)) if one.check == "backlog"]
    assert told.level == "error" and "no longer has" in told.message


def test_a_server_restart_is_only_a_pause(mysql_factory: Any, tmp_path: Path) -> None:
    server = mysql_factory()
    server.execute(*SCHEMA)
    with receiving(server, tmp_path) as receiver:
        write(server, 5)
        receiver.wait_until_level()
        server.stop()
        receiver.wait_for(lambda: receiver.status().get("state") == "reconnecting", "reconnect")
        server.start()
        write(server, 5)
        receiver.wait_until_level()
        assert receiver.stop() == 0
        assert log_events(receiver.log_path) == source_events(server)


def test_a_full_disk_is_waited_out_and_nothing_is_lost(mysql_factory: Any, tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("mounting a small file system needs root")
    server = mysql_factory()
    server.execute(*SCHEMA)
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("no tmpfs can be mounted here")
    try:
        with receiving(server, tmp_path / "state", path=str(small / "relay")) as receiver:
            receiver.log_path = small / "relay"
            write(server, 5)
            receiver.wait_until_level()
            grow(server, 30_000)
            receiver.wait_for(lambda: receiver.status().get("state") == "disk_full", "disk_full")
            assert "disk_free_min" in receiver.status()["message"]
            said = receiver.errors.read_text()
            assert "the receiver waits: The file system of the relay log" in said and "MiB are left" in said
            subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
            write(server, 5)
            receiver.wait_until_level()
            assert receiver.stop() == 0
            assert log_events(receiver.log_path) == source_events(server)
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


@pytest.mark.parametrize("refusal", ["password", "locked", "expired"])
def test_a_refused_login_is_waited_out_and_the_password_is_read_again(
    mysql_factory: Any, tmp_path: Path, refusal: str
) -> None:
    server = mysql_factory()
    server.execute(*SCHEMA, "CREATE USER cdc IDENTIFIED BY 'old'", "GRANT ALL ON *.* TO cdc")
    file = tmp_path / "password"
    file.write_text("old\n")
    Path(tmp_path / "state").mkdir()
    source = {"user": "cdc", "password_file": str(file), "reconnect_max": "1s"}
    with receiving(server, tmp_path / "state", source=source) as receiver:
        receiver.wait_until_level()
        bad = {"password": "IDENTIFIED BY 'new'", "locked": "ACCOUNT LOCK", "expired": "PASSWORD EXPIRE"}
        code = {"password": 1045, "locked": 3118, "expired": 1862}
        server.execute(f"ALTER USER cdc {bad[refusal]}")
        connections = server.query("SELECT ID FROM information_schema.PROCESSLIST WHERE USER = 'cdc'")
        assert connections
        server.execute(*(f"KILL {row[0]}" for row in connections))
        receiver.wait_for(lambda: "refuses the login since" in str(receiver.status().get("message")), "word")
        assert receiver.status()["state"] == "reconnecting"
        assert receiver.status()["error"]["code"] in (code[refusal], 1820)
        write(server, 5)
        if refusal == "password":
            file.write_text("new\n")
        else:
            server.execute(
                f"ALTER USER cdc {'ACCOUNT UNLOCK' if refusal == 'locked' else 'PASSWORD EXPIRE NEVER'}"
            )
            server.execute("ALTER USER cdc IDENTIFIED BY 'old'")
        receiver.wait_until_level()
        said = receiver.errors.read_text()
        assert said.count("refuses the login since") == 1 and "the receiver goes on after" in said
        assert receiver.stop() == 0
        assert log_events(receiver.log_path) == source_events(server)


def test_a_wrong_password_is_refused_at_the_first_start(mysql_server: Any, tmp_path: Path) -> None:
    receiver = Receiving(mysql_server, tmp_path / "state", source={"password": "wrong"})
    assert receiver.start().wait(60) == 1
    assert "refuses user" in receiver.errors.read_text()
    assert receiver.status()["error"]["error"] == "ConfigError"


def runs(receiver: Receiving) -> bool:
    """The process started last has written its status."""
    return receiver.process is not None and receiver.status().get("pid") == receiver.process.pid


@pytest.mark.slow
@pytest.mark.parametrize("gtid_mode", ["ON", "OFF"])
def test_killed_anywhere_it_neither_loses_nor_doubles(
    mysql_factory: Any, tmp_path: Path, gtid_mode: str
) -> None:
    server = mysql_factory(gtid_mode=gtid_mode, enforce_gtid_consistency=gtid_mode)
    server.execute(*SCHEMA)
    chance, done = random.Random(7), threading.Event()

    def writer() -> None:
        order = random.Random(8)
        while not done.is_set():
            if order.random() < 0.02:
                grow(server, 20_000)
            elif order.random() < 0.02:
                server.execute("FLUSH BINARY LOGS")
            else:
                write(server, 3, rows=order.randint(1, 5))

    thread = threading.Thread(target=writer)
    thread.start()
    try:
        receiver = Receiving(server, tmp_path, segment_size="1MiB")
        end = Offset(0)
        for _ in range(12):
            receiver.start()
            receiver.wait_for(lambda: runs(receiver), "start")
            time.sleep(chance.random() * 1.5)  # the moment of the kill, not a wait for anything
            receiver.kill()
            if (receiver.log_path / "relay.json").exists():
                assert receiver.log.end >= end, "an offset that was visible was taken back"
                end = receiver.log.end
    finally:
        done.set()
        thread.join()
    receiver.start()
    receiver.wait_until_level()
    assert receiver.stop() == 0
    assert log_events(receiver.log_path) == source_events(server)


def test_a_huge_transaction_cut_by_a_crash_comes_once(mysql_factory: Any, tmp_path: Path) -> None:
    server = mysql_factory()
    server.execute(*SCHEMA)
    grow(server, 200_000, 150)
    receiver = Receiving(server, tmp_path, span_size="256KiB")

    def received() -> int:
        return sum(path.stat().st_size for path in receiver.log_path.glob("*.binlog"))

    for _ in range(3):
        receiver.start()
        receiver.wait_for(lambda: received() > 2_000_000, "part of it")
        receiver.kill()
    receiver.start()
    receiver.wait_until_level()
    assert receiver.stop() == 0
    assert log_events(receiver.log_path) == source_events(server)
    log = receiver.log
    whole = LogRange(log.start, log.end)
    splits = log.splits(whole, T, bytes_aim=4 * 1024**2)
    assert len(splits) > 5 and not splits[0].preamble and all(split.preamble for split in splits[1:])
    assert [a.end for a in splits[:-1]] == [b.start for b in splits[1:]]
