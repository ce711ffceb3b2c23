from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pymysql
import pytest

import penstock
from penstock.errors import ConfigError, InternalError
from penstock.testing import servers

Factory = Callable[..., servers.MySqlServer]


def wait_until(condition: Callable[[], bool], timeout_s: float = 60) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_server_has_the_settings_a_receiver_needs(mysql_factory: Factory) -> None:
    server = mysql_factory()
    wanted = {
        "gtid_mode": "ON",
        "binlog_format": "ROW",
        "binlog_row_image": "FULL",
        "log_bin": 1,
        "server_id": 1,
    }
    assert {name: server.variable(name) for name in wanted} == wanted
    assert server.variable("bind_address") == "127.0.0.1"
    assert server.query("SELECT plugin FROM mysql.user WHERE user = 'root' AND host = '127.0.0.1'") == [
        ("caching_sha2_password",)
    ]


def test_options_override_defaults_and_none_leaves_one_out(mysql_factory: Factory) -> None:
    server = mysql_factory(binlog_row_image="MINIMAL", gtid_mode="OFF", enforce_gtid_consistency=None)
    assert server.variable("binlog_row_image") == "MINIMAL"
    assert server.variable("gtid_mode") == "OFF"
    assert server.variable("enforce_gtid_consistency") == "OFF"


def test_tls_works(mysql_factory: Factory) -> None:
    with mysql_factory().connect(ssl={"check_hostname": False}) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW STATUS LIKE 'Ssl_cipher'")
        assert cursor.fetchone()[1] != ""


def test_several_servers_have_their_own_identity_port_and_data(mysql_factory: Factory) -> None:
    first, second = mysql_factory(), mysql_factory()
    assert first.port != second.port
    assert first.datadir != second.datadir
    assert first.variable("server_uuid") != second.variable("server_uuid")


def test_committed_rows_and_port_survive_kill9_and_stop(mysql_factory: Factory) -> None:
    server = mysql_factory(innodb_flush_log_at_trx_commit=1, sync_binlog=1)
    port = server.port
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)")
    server.kill9()
    assert not server.running
    with pytest.raises(pymysql.err.OperationalError):
        server.connect()
    server.start()
    server.execute("INSERT INTO d.t VALUES (2)")
    server.stop()
    assert [path.stat().st_size > 150 for path in server.binlog_files()] == [True, True]
    server.start({"binlog_row_image": "NOBLOB"})
    assert server.query("SELECT id FROM d.t ORDER BY id") == [(1,), (2,)]
    assert server.variable("binlog_row_image") == "NOBLOB"
    assert server.port == port
    assert len(server.binlog_files()) == 3


def test_a_server_that_does_not_start_tells_its_log(mysql_factory: Factory) -> None:
    with pytest.raises(servers.ServerFailed, match="unknown variable 'no-such-option=1'"):
        mysql_factory(no_such_option=1)


def test_close_removes_process_and_folder_and_may_be_repeated() -> None:
    server = servers.MySqlServer()
    server.close()
    server.close()
    assert not server.folder.exists()
    assert not psutil.pid_exists(server.pid or 0)
    with pytest.raises(InternalError):
        server.start()


CALLER = """
import os, sys, time
from pathlib import Path
from penstock.testing import servers
server = servers.MySqlServer(folder=Path(sys.argv[2]) if sys.argv[2:] else None)
if sys.argv[1] == "fork" and os.fork() == 0:
    time.sleep(600)  # a child that still holds the pipe to the guardian
print(server.pid, server._guardian.pid, server.folder, flush=True)
time.sleep(600)
"""


def start_caller(mode: str, *folder: Path) -> tuple[subprocess.Popen[str], int, int, Path]:
    caller = subprocess.Popen(
        [sys.executable, "-c", CALLER, mode, *map(str, folder)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path(penstock.__file__).parents[1])},
    )
    assert caller.stdout is not None
    server, guardian, place = caller.stdout.readline().split()
    return caller, int(server), int(guardian), Path(place)


@pytest.mark.parametrize("mode", [pytest.param("plain", marks=pytest.mark.slow), "fork"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_server_and_folder_are_gone_when_the_caller_is_killed(mode: str, number: signal.Signals) -> None:
    caller, server, guardian, folder = start_caller(mode)
    assert psutil.pid_exists(server) and folder.exists()
    caller.send_signal(number)
    caller.wait()
    try:
        assert wait_until(lambda: not psutil.pid_exists(server) and not folder.exists())
        assert wait_until(lambda: not psutil.pid_exists(guardian))
    finally:
        os.killpg(caller.pid, signal.SIGKILL) if mode == "fork" else None


def test_server_dies_with_its_guardian_and_the_next_one_sweeps_its_folder(tmp_path: Path) -> None:
    # In a place of their own: where others start servers meanwhile, one of those would sweep it.
    caller, server, guardian, folder = start_caller("plain", tmp_path)
    os.kill(guardian, signal.SIGKILL)
    assert wait_until(lambda: not psutil.pid_exists(server))
    assert folder.exists()
    caller.kill()
    caller.wait()
    with servers.MySqlServer(folder=tmp_path):
        assert not folder.exists()


def test_ctrl_c_of_the_group_does_not_take_the_server_before_the_caller_closes_it(
    mysql_factory: Factory,
) -> None:
    server = mysql_factory()
    assert server._guardian is not None
    os.kill(server._guardian.pid, signal.SIGINT)
    assert server.query("SELECT 1") == [(1,)]
    assert server.running


def test_each_test_gets_a_database_of_its_own(mysql: servers.Database) -> None:
    mysql.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    assert mysql.query(f"SELECT id FROM {mysql.name}.t") == [(1,)]
    other = servers.Database(mysql.server)
    assert other.name != mysql.name
    assert other.query("SHOW TABLES") == []
    other.drop()
    assert mysql.server.query(f"SHOW DATABASES LIKE '{other.name}'") == []


def test_an_address_in_the_environment_is_used_instead(
    mysql_factory: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = mysql_factory()
    monkeypatch.setenv("PENSTOCK_MYSQL", f"root:{server.password}@127.0.0.1:{server.port}")
    with servers.mysql() as external:
        assert isinstance(external, servers.ExternalMySqlServer)
        assert external.variable("server_uuid") == server.variable("server_uuid")
    assert server.query("SELECT 1") == [(1,)]
    monkeypatch.setenv("PENSTOCK_MYSQL", "nonsense")
    with pytest.raises(ConfigError, match="user:password@host:port"):
        servers.mysql()
