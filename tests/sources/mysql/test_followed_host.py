"""A list of hosts: the receiver goes on at a promoted replica, where it left off."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pymysql.cursors import DictCursor
from tests.sources.mysql.receiving import Receiving
from tests.sources.mysql.test_receiver_flavors import SCHEMA, rows_of, write

from penstock import config as configuration
from penstock.config import PipelineConfig
from penstock.sources.mysql import followed_host, preflight
from penstock.sources.mysql.options import MySqlOptions
from penstock.sources.preflight import Finding
from penstock.testing import servers
from penstock.testing.servers import Database, DatabaseServer, MariaDbServer


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def replicate(primary: DatabaseServer, replica: DatabaseServer, *, delay_s: int = 0) -> None:
    place = f"MASTER_HOST = '127.0.0.1', MASTER_PORT = {primary.port}"
    place += f", MASTER_USER = 'root', MASTER_PASSWORD = '{primary.password}'"
    how = "MASTER_AUTO_POSITION = 1, GET_MASTER_PUBLIC_KEY = 1"
    if isinstance(primary, MariaDbServer):
        how = "MASTER_USE_GTID = slave_pos"
        replica.execute("SET GLOBAL gtid_slave_pos = @@gtid_binlog_pos")
    how += f", MASTER_DELAY = {delay_s}"
    replica.execute(f"CHANGE MASTER TO {place}, {how}", "START SLAVE")


def start(name: str, number: int, **more: Any) -> DatabaseServer:
    """One that keeps its rows when it is killed."""
    durable = {"innodb_flush_log_at_trx_commit": 1}
    options: dict[str, Any] = {"server_id": number, "log_slave_updates": "ON", **durable, **more}
    return servers.FLAVORS[name](options)


@pytest.mark.parametrize("name", ["mysql80", pytest.param("mariadb1011", marks=pytest.mark.slow)])
def test_the_receiver_goes_on_at_the_promoted_replica_without_loss_or_repetition(
    name: str, tmp_path: Path
) -> None:
    with start(name, 1) as primary, start(name, 2) as replica:
        primary.execute(*SCHEMA)
        replicate(primary, replica)
        address = [f"127.0.0.1:{primary.port}", f"127.0.0.1:{replica.port}"]
        receiver = Receiving(primary, tmp_path, source={"host": address})
        receiver.start()
        write(primary, 40)
        receiver.wait_until_level()
        wait_until(lambda: replica.gtid_executed() == primary.gtid_executed())
        primary.kill9()
        replica.execute("STOP SLAVE", "RESET SLAVE ALL")
        write(replica, 40)
        receiver.server = replica
        receiver.wait_for(lambda: receiver.status()["source"].get("port") == replica.port, "switch")
        receiver.wait_until_level()
        receiver.stop()
        receiver.start()  # a new process goes on where the last one was
        write(replica, 5)
        receiver.wait_until_level()
        assert receiver.stop() == 0
        rows = dict(replica.query("SELECT id, pad FROM d.t"))
        assert rows_of(receiver, replica) == rows and len(rows) == 85


def following(tmp_path: Path, *those: DatabaseServer, **source: Any) -> Receiving:
    address = [f"127.0.0.1:{server.port}" for server in those]
    return Receiving(those[0], tmp_path, source={"host": address, "failover_wait": "1s", **source})


def switched(receiver: Receiving, server: DatabaseServer) -> None:
    def done() -> bool:
        report = receiver.status()
        return report.get("state") == "streaming" and report["source"].get("port") == server.port

    receiver.server = server
    receiver.wait_for(done, "switch")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mysql80", "mariadb1011"])
def test_a_replica_that_lags_is_waited_for_however_long_and_a_demoted_primary_is_followed_again(
    name: str, tmp_path: Path
) -> None:
    with start(name, 1) as first, start(name, 2, read_only="ON") as second:
        first.execute(*SCHEMA)
        replicate(first, second, delay_s=6)
        receiver = following(tmp_path, first, second)
        receiver.start()
        write(first, 30)
        receiver.wait_until_level()
        expected = first.gtid_executed()
        # The replica fetches all of it long before it may apply it.
        wait_until(lambda: fetched(first, second))
        first.kill9()
        receiver.wait_for(lambda: "has not yet applied" in receiver.status()["message"], "waiting")
        assert second.gtid_executed() != expected
        switched(receiver, second)  # still a replica, and read-only
        assert second.gtid_executed() == expected
        second.execute("STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = OFF")
        write(second, 30)
        receiver.wait_until_level()
        first.start({"read_only": "ON"})
        replicate(second, first)
        write(second, 10)
        wait_until(lambda: first.gtid_executed() == second.gtid_executed())
        receiver.wait_until_level()
        second.kill9()
        switched(receiver, first)
        first.execute("STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = OFF")
        write(first, 5)
        receiver.wait_until_level()
        assert receiver.stop() == 0
        rows = dict(first.query("SELECT id, pad FROM d.t"))
        assert rows_of(receiver, first) == rows and len(rows) == 75


def fetched(primary: DatabaseServer, replica: DatabaseServer) -> bool:
    with replica.connect(cursorclass=DictCursor) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW SLAVE STATUS")
        row = cursor.fetchone()
    return (row["Master_Log_File"], row["Read_Master_Log_Pos"]) == primary.position()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mysql80", "mariadb1011"])
def test_after_a_lossy_failover_the_lost_transactions_are_named_with_the_cure(
    name: str, tmp_path: Path
) -> None:
    with start(name, 1) as primary, start(name, 2) as replica:
        primary.execute(*SCHEMA)
        replicate(primary, replica)
        receiver = following(tmp_path, primary, replica)
        receiver.start()
        write(primary, 20)
        wait_until(lambda: replica.gtid_executed() == primary.gtid_executed())
        replica.execute("STOP SLAVE")
        shared = primary.gtid_executed()
        write(primary, 3)
        receiver.wait_until_level()
        lost = primary.gtid_executed()
        if name == "mysql80":
            [(lost,)] = primary.query("SELECT GTID_SUBTRACT(@@gtid_executed, %s)", (shared,))
        primary.kill9()
        replica.execute("RESET SLAVE ALL")
        write(replica, 20)
        assert receiver.process is not None and receiver.process.wait(60) == 1
        said = receiver.errors.read_text()
        assert lost in said and "does not have transactions that the relay log has" in said
        assert "start over" in said
        assert receiver.status()["error"]["error"] == "LogDiverged"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mysql80", "mariadb1011"])
def test_a_replica_that_does_not_log_what_it_applies_does_not_take_over(name: str, tmp_path: Path) -> None:
    with start(name, 1) as primary, start(name, 2, log_slave_updates="OFF") as replica:
        primary.execute(*SCHEMA)
        replicate(primary, replica)
        receiver = following(tmp_path, primary, replica)
        receiver.start()
        write(primary, 20)
        receiver.wait_until_level()
        findings = preflight.check(configuration.load(receiver.file))
        assert [(one.level, one.subject) for one in findings if "updates" in one.check] == [
            ("warning", f"127.0.0.1:{replica.port}")
        ]
        primary.kill9()
        assert receiver.process is not None and receiver.process.wait(60) == 1
        assert "what it applies is not in its own log" in receiver.errors.read_text()


def test_doctor_looks_at_every_host_and_one_that_is_gone_is_no_error(mysql: Database, tmp_path: Path) -> None:
    mysql.execute(f"CREATE TABLE {mysql.name}.t (id INT PRIMARY KEY)")
    source = {"user": mysql.user, "password": mysql.password}

    def checked(*addresses: str) -> list[Finding]:
        document = {
            "name": "t",
            "source": {"host": list(addresses), **source},
            "tables": [f"{mysql.name}.*"],
            "state": str(tmp_path),
        }
        return preflight.check(PipelineConfig.model_validate(document))

    found = checked("127.0.0.1:1", f"127.0.0.1:{mysql.port}")
    assert not [one for one in found if one.level == "error"]
    gone = [(one.level, one.subject) for one in found if "cannot be reached" in one.message]
    assert gone == [("warning", "127.0.0.1:1")]
    assert [one.level for one in checked("127.0.0.1:1", "127.0.0.1:2")] == ["error", "warning"]


def test_hosts_are_a_list_or_one(tmp_path: Path) -> None:
    config = MySqlOptions.model_validate({"host": ["a", "b:3307"], "port": 3310, "user": "u"})
    assert [(one.host, one.port) for one in followed_host.candidates(config)] == [("a", 3310), ("b", 3307)]
    assert followed_host.followed(config, tmp_path).host == "a"
    (tmp_path / "receiver.json").write_text('{"source": {"host": "b", "port": 3307}}')
    assert followed_host.followed(config, tmp_path).host == "b"
