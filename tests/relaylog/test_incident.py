"""INCIDENT: the source says in its log that events were lost. A server writes one where a change of a table
without transactions does not fit into `max_binlog_stmt_cache_size`: rows changed, and are in no log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.sources.mysql.receiving import receiving, source_events

from penstock.changes import Committed, TableChanged, follow
from penstock.commands.encode import encode
from penstock.commands.inspect import inspect
from penstock.model.schema import TableId
from penstock.testing import servers

OPTIONS = {"max_binlog_stmt_cache_size": 4096, "binlog_stmt_cache_size": 4096}
INCIDENT = 26


@pytest.mark.slow_for("mysql57", "mysql97", "mariadb118")
@pytest.mark.parametrize("flavor", sorted({*servers.FLAVORS} - {"mariadb1011"}))
def test_lost_events_are_said_by_everything_that_reads_the_log(
    flavor: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with servers.FLAVORS[flavor](OPTIONS) as server:
        server.execute(
            "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)",
            "CREATE TABLE d.m (id INT, b LONGBLOB) ENGINE=MyISAM",
        )  # fmt: skip
        with receiving(server, tmp_path, start="latest") as receiver:
            receiver.wait_until_level()
            followers = [follow(receiver.file, ["d.*"], order=order) for order in ("table", "log")]
            server.execute("FLUSH BINARY LOGS")
            first = len(server.binlog_files()) - 1
            server.execute("INSERT INTO d.t VALUES (1)")
            with pytest.raises(Exception, match="max_binlog_stmt_cache_size"):
                server.execute("INSERT INTO d.m VALUES (1, REPEAT('x', 100000)), (2, REPEAT('y', 100000))")
            server.execute("INSERT INTO d.t VALUES (2)")
            assert server.query("SELECT COUNT(*) FROM d.m") == [(2,)], "rows that are in no log"
            assert [event[4] for event in source_events(server)].count(INCIDENT) == 1
            files = [str(path) for path in server.binlog_files()[first:]]
            receiver.wait_until_level()
            assert "events were lost (INCIDENT)" in receiver.errors.read_text()
            for paths in (files, [str(receiver.log_path)]):
                _inspected(paths, capfd)
            for follower in followers:
                _followed(follower, receiver.log.end)
            ddl = tmp_path / "tables.sql"
            ddl.write_text("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)")
            code = encode(
                files, format="json", options=(), ddl=[ddl], ddl_version="8.0", server=None, tables=[],
                keys=False, as_json=False,
            )  # fmt: skip
            captured = capfd.readouterr()
            assert code == 0 and "the source says that events were lost (INCIDENT)" in captured.err
            assert [json.loads(line)["after"]["id"] for line in captured.out.splitlines()] == [1, 2]


def _inspected(paths: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert inspect(paths, summary=False, tables=["d.t"], limit=None, as_json=True) == 1
    captured = capfd.readouterr()
    changes = [json.loads(line) for line in captured.out.splitlines()]
    assert len(changes) == 2, "what comes after is printed, too"
    [line] = captured.err.splitlines()
    assert "lost events" in json.loads(line)["error"]["message"]
    assert inspect(paths, summary=True, tables=[], limit=None, as_json=True) == 1
    summary = json.loads(capfd.readouterr().out)
    assert summary["events"]["INCIDENT_EVENT"] == 1 and summary["error"] is None
    [problem] = summary["problems"]
    assert "lost events" in problem["message"] and problem["position"] > 4
    assert inspect(paths, summary=True, tables=[], limit=None, as_json=False) == 1
    assert inspect(paths, summary=False, tables=[], limit=None, as_json=False) == 1
    assert capfd.readouterr().err.count("lost events") == 2


def _followed(follower: Any, end: int) -> None:
    unseen = {}
    with follower as changes:
        for item in changes:
            if isinstance(item, TableChanged) and item.unseen:
                unseen[item.table] = item.unseen
            if isinstance(item, Committed) and item.offset >= end:
                break
    assert unseen.keys() == {TableId("d", "t"), TableId("d", "m")}
    assert all("INCIDENT" in reason for reason in unseen.values())


def test_a_file_without_a_format_description_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with servers.MySqlServer() as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "FLUSH BINARY LOGS")
        server.execute("INSERT INTO d.t VALUES (1)")
        whole = server.binlog_files()[-1].read_bytes()
    size = int.from_bytes(whole[4 + 9 : 4 + 13], "little")
    assert whole[4 + 4] == 15
    for name, head in (("with its magic number", whole[:4]), ("without it", b"")):
        cut = tmp_path / name
        cut.write_bytes(head + whole[4 + size :])
        assert inspect([str(cut)], summary=False, tables=[], limit=None, as_json=True) == 1
        captured = capfd.readouterr()
        assert len(captured.out.splitlines()) == 1, "what can be read is printed"
        assert "does not begin with a format description" in captured.err
        assert inspect([str(cut)], summary=True, tables=[], limit=None, as_json=False) == 1
        assert "does not begin with a format description" in capfd.readouterr().err
