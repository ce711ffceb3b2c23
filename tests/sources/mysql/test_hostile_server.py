"""A broken or hostile server at the source's address: every answer is limited, and the error names it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pymysql
import pytest
from tests.sources.mysql.hostile import BROKEN, ENDLESS, Hostile, drip, once

from penstock.config import PipelineConfig
from penstock.errors import PenstockError, SourceUnreachable, TransientError
from penstock.model.schema import TableId
from penstock.sources.mysql import connection as mysql_connection
from penstock.sources.mysql import preflight
from penstock.sources.mysql.connection import connect, hang_up, query
from penstock.sources.mysql.faults import explain
from penstock.sources.mysql.options import MySqlOptions
from penstock.sources.mysql.session import SourceSession
from penstock.sources.mysql.snapshot.server_load import WatchedServers

MIB = 1024 * 1024
LIMIT_S = 60.0
"""For a busy machine. Without limits, nothing here would ever end."""


def source(port: int, **options: Any) -> MySqlOptions:
    told = {"port": port, "user": "u", "password": "hunter2-hunter2", "read_timeout": "2s"}
    return MySqlOptions.model_validate(told | options)


def pipeline(config: MySqlOptions) -> PipelineConfig:
    told: dict[str, Any] = {"name": "p", "state": "s", "tables": {"include": ["*.*"]}}
    told |= {"sink": {"type": "console"}, "source": {"type": "mysql", "user": "u"}}
    return PipelineConfig.model_validate(told).model_copy(update={"source": config})


def ask(config: MySqlOptions, sql: str = "SELECT @@version") -> PenstockError:
    """The error of one question, as callers see it."""
    connection = connect(config)
    with pytest.raises((pymysql.Error, OSError)) as caught:
        query(connection, sql)
    assert connection._sock is None, "after a broken answer, the connection cannot be used"
    return explain(caught.value, config)


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.slow if one == "small rows" else ()) for one in ENDLESS]
)
def test_an_answer_without_end_is_given_up(name: str) -> None:
    with Hostile(ENDLESS[name]) as server:
        error = ask(source(server.port))
        assert server.played == 1
    assert isinstance(error, SourceUnreachable)
    assert f"127.0.0.1:{server.port} does not speak MySQL's protocol" in error.message
    assert "its answer" in error.message


@pytest.mark.parametrize("at", ["greeting", "login", "switch", "SET NAMES", "SET SESSION sql_select_limit"])
@pytest.mark.parametrize(
    "name", ["packets of 16 MB", "results", "a web page", "an OK that is cut", "nothing"]
)
def test_connecting_ends_whatever_is_sent(name: str, at: str) -> None:
    fault = ENDLESS[name] if name in ENDLESS else once(BROKEN[name])
    with Hostile(fault, at) as server:
        began = time.monotonic()
        with pytest.raises(TransientError, match=f"127.0.0.1:{server.port}"):
            connect(source(server.port, connect_timeout="3s"))
        assert server.played == 1
    assert time.monotonic() - began < LIMIT_S


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_answer_is_never_called_a_bug(name: str) -> None:
    """In whatever is asked: the whole catalog, the load, the checks of `doctor`."""
    with Hostile(once(BROKEN[name])) as server:
        config = source(server.port, connect_timeout="3s")
        catalog, errors = SourceSession(config), list[TransientError]()
        for question in (
            lambda: catalog.read_table(TableId("a", "b")),
            catalog.server_uuid,
            catalog.clock_us,
            lambda: WatchedServers().dialect(config),
        ):
            try:
                question()  # some broken answers are also what a server might say
            except TransientError as error:
                errors.append(error)
        assert errors and server.played >= 4
        assert all(f"127.0.0.1:{server.port}" in one.message and len(one.message) < 1000 for one in errors)
        findings = preflight.check(pipeline(config))
    assert any(one.level == "error" for one in findings)
    assert not any("bug in Penstock" in one.message for one in findings)


def test_an_answer_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mysql_connection, "GRACE_S", 0)
    with Hostile(drip) as server:
        began = time.monotonic()
        error = ask(source(server.port, read_timeout="500ms"))
    assert time.monotonic() - began < LIMIT_S
    assert "its answer began 1 s ago and has not ended" in error.message


def test_a_server_that_talks_on_does_not_hold_up_the_goodbye() -> None:
    with Hostile(ENDLESS["packets of 16 MB"], at="SELECT 7") as server:
        connection = connect(source(server.port))
        connection._sock.sendall(b"\x09\0\0\0\x03SELECT 7")
        end = threading.Thread(target=hang_up, args=(connection,), daemon=True)
        end.start()
        end.join(LIMIT_S)
        assert server.played == 1 and not end.is_alive()


MEASURED = """
import atexit, os, sys
from penstock.cli import main
from penstock.testing.memory import peak_bytes
atexit.register(lambda: print(peak_bytes(os.getpid()), file=sys.stderr))
main()
"""  # runs a command, and prints the most memory that it had


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=() if one == "large rows" else pytest.mark.slow) for one in ENDLESS]
)
def test_doctor_needs_little_memory_for_an_answer_without_end(name: str, tmp_path: Path) -> None:
    with Hostile(ENDLESS[name]) as server:
        file = tmp_path / "p.yaml"
        file.write_text(
            f"name: p\nstate: s\nsource: {{type: mysql, host: 127.0.0.1, port: {server.port}, user: u}}\n"
            "tables: {include: ['a.*']}\nsink: {type: iceberg, path: lake}\n"
        )
        command = [sys.executable, "-c", MEASURED, "doctor", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert server.played > 0, done.stderr
    *errors, peak = done.stderr.splitlines()
    output = done.stdout + "\n".join(errors)
    assert done.returncode == 1 and f"127.0.0.1:{server.port}" in output and "bug" not in output, output
    assert int(peak) < 600 * MIB, (peak, output)
