"""The receiver as a child: it comes back, it hands over, and its errors arrive as themselves."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.sources.mysql.receiving import Receiving, log_events, source_events

from penstock.backoff import Schedule
from penstock.errors import LogDiverged
from penstock.model.offset import Offset
from penstock.relaylog.reader import RelayLog
from penstock.sources.supervisor import Supervisor
from penstock.testing import small_disk
from penstock.testing.scenario import wait_for
from penstock.testing.servers import MySqlServer


def grown(log: RelayLog, end: Offset) -> bool:
    return log.refresh() > end


def test_the_receiver_is_restarted_handed_over_and_its_errors_arrive(
    mysql_factory: Any, tmp_path: Path
) -> None:
    server: MySqlServer = mysql_factory()
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    receiver = Receiving(server, tmp_path)
    first, second = Supervisor(receiver.file), Supervisor(receiver.file)
    first.start()
    try:
        receiver.wait_until_level()
        killed = first.pid
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        receiver.wait_for(lambda: first.pid not in (None, killed), "restart")
        server.execute("INSERT INTO d.t VALUES (1)")
        receiver.wait_until_level()

        second.start()
        receiver.wait_for(lambda: second.describe().startswith("streaming (process"), "sharing")
        first.stop()
        receiver.wait_for(lambda: second.pid is not None, "take-over")
        server.execute("INSERT INTO d.t VALUES (2)")
        receiver.wait_until_level()
        first.check()
        second.check()
        assert log_events(receiver.log_path) == source_events(server)

        server.execute("RESET MASTER")

        def told() -> bool:
            try:
                second.check()
            except LogDiverged as error:
                assert "does not have transactions that the relay log has" in error.message
                return True
            return False

        # The reset cuts the connection; what comes after it is not followed.
        server.restart()
        receiver.wait_for(told, "LogDiverged")
    finally:
        first.stop()
        second.stop()


def test_the_logs_end_moves_on_each_time_the_receiver_connects_anew(
    mysql_factory: Any, tmp_path: Path
) -> None:
    receiver = Receiving(mysql_factory(), tmp_path)
    supervisor = Supervisor(receiver.file)
    supervisor.start()
    try:
        receiver.wait_for(lambda: receiver.status().get("state") == "streaming", "stream")
        log, pid = RelayLog.open(receiver.log_path), supervisor.pid
        for _ in range(20):
            end = log.refresh()
            supervisor.renew()
            receiver.wait_for(partial(grown, log, end), "the log's end to move on")
        receiver.wait_for(lambda: receiver.status().get("state") == "streaming", "stream")
        supervisor.check()
        assert supervisor.restarts == 0 and supervisor.pid == pid
    finally:
        supervisor.stop()


def test_the_receiver_ends_when_its_supervisor_is_killed(mysql_factory: Any, tmp_path: Path) -> None:
    receiver = Receiving(mysql_factory(), tmp_path)
    script = (
        "import sys, time; from pathlib import Path\n"
        "from penstock.sources.supervisor import Supervisor\n"
        "supervisor = Supervisor(Path(sys.argv[1])); supervisor.start()\n"
        "while supervisor.pid is None: time.sleep(0.02)\n"
        "print(supervisor.pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script, str(receiver.file)], stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        receiver.wait_for(lambda: receiver.status().get("state") == "streaming", "stream")
    finally:
        parent.kill()
        parent.wait()
    try:
        child.wait(60)
    except psutil.TimeoutExpired:
        pytest.fail("the receiver outlived its supervisor")


@pytest.mark.skipif(bool(small_disk.missing()), reason=small_disk.missing())
def test_a_full_disk_and_its_end_are_told_in_the_log_of_the_pipeline(
    mysql_factory: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server: MySqlServer = mysql_factory()
    with small_disk.SmallDisk(tmp_path / "disk", mib=24) as disk:
        receiver = Receiving(server, tmp_path / "state", path=str(disk.folder / "relay"), disk_free_min="2MB")
        receiver.log_path = disk.folder / "relay"
        supervisor = Supervisor(receiver.file)
        supervisor.start()
        try:
            wait_for(lambda: receiver.status().get("state") == "streaming", "the stream")
            disk.fill()  # and the source has nothing to write
            full = "the receiver waits: The file system of the relay log"
            wait_for(lambda: full in caplog.text, "the word of the full disk")
            assert " MiB are left" in caplog.text
            disk.free()
            wait_for(lambda: "the receiver goes on after" in caplog.text, "the word of its end")
            assert caplog.text.count(full) == 1
        finally:
            supervisor.stop()


def test_a_receiver_that_cannot_be_started_for_want_of_room_is_started_when_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"name: shop\nsource: {{user: u}}\ntables: [shop.*]\nsink: {{type: console}}\nstate: {tmp_path}/state"
    )
    supervisor = Supervisor(file)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "receiver.log")
    found: list[str] = []

    def spawn() -> subprocess.Popen[bytes]:
        found.append(supervisor.describe())
        if len(found) < 3:
            raise full
        return subprocess.Popen(["sleep", "60"], stdin=subprocess.PIPE)

    monkeypatch.setattr("penstock.sources.supervisor.SPAWN_RETRY", Schedule.steady(0.1))
    monkeypatch.setattr(supervisor, "_spawn", spawn)
    supervisor.start()
    try:
        wait_for(lambda: len(found) == 3, "the third attempt")
        assert found[0] == "starting" and "cannot be started: [Errno 28] No space left" in found[2]
        wait_for(lambda: supervisor.describe() == "starting", "its start")
    finally:
        monkeypatch.setattr(supervisor, "_child", None)
        supervisor._stopping.set()
        for child in psutil.Process().children():
            if child.name() == "sleep":
                child.kill()
        supervisor.stop()
