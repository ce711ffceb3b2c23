"""How commands end when something goes wrong: one paragraph or one JSON object, a known exit code, and the
stack trace in a file."""

from __future__ import annotations

import json
import logging
import os
import socket
import socketserver
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock import cli
from penstock.errors import ConfigError
from penstock.state import StateStore
from penstock.testing.scenario import refusal

CANARY = "CANARY9137"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A pipeline that seems to have run."""
    StateStore(tmp_path / "state").close()
    status = {"pid": os.getpid(), "updated": time.time() + 3600}  # as a pipeline that runs writes it
    (tmp_path / "state" / "status.json").write_text(json.dumps(status))
    path = tmp_path / "shop.yaml"
    document = {"name": "shop", "source": {"user": "u", "port": 1}, "tables": ["shop.*"], "state": "state"}
    path.write_text(yaml.safe_dump(document))
    return path


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def command(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("penstock.commands.status.status", command)


def end_of(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    monkeypatch.setattr(socketserver.BaseServer, "handle_error", socketserver.BaseServer.handle_error)
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", list(root.handlers))
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


class PanicException(BaseException):
    pass


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(CANARY),
        KeyError(CANARY),
        RecursionError(CANARY),
        AssertionError(),
        PanicException(CANARY),
    ],
)
def test_what_nobody_expected_is_a_bug_told_in_one_paragraph(
    error: BaseException, file: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fail_with(error, monkeypatch)
    assert end_of("status", str(file), monkeypatch=monkeypatch) == 1
    said = capfd.readouterr().err
    log = file.parent / "state" / "logs" / "errors.log"
    assert said.startswith("penstock: This is a bug in Penstock: ") and type(error).__name__ in said
    assert str(log) in said and "Traceback" not in said and CANARY not in said
    assert "Traceback" in log.read_text() and type(error).__name__ in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600 and stat.S_IMODE(log.parent.stat().st_mode) == 0o700


def test_with_json_a_bug_is_one_object(
    file: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fail_with(RuntimeError(CANARY), monkeypatch)
    assert end_of("status", str(file), "--json", monkeypatch=monkeypatch) == 1
    found = json.loads(capfd.readouterr().err)
    assert found["error"] == "InternalError" and "bug in Penstock" in found["message"]
    assert CANARY not in json.dumps(found)


def test_a_stack_trace_is_printed_if_it_is_asked_for(
    file: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENSTOCK_DEBUG", "0")
    fail_with(RuntimeError("x"), monkeypatch)
    assert end_of("--debug", "status", str(file), monkeypatch=monkeypatch) == 1
    said = capfd.readouterr().err
    assert "Traceback (most recent call last)" in said and "penstock: This is a bug" in said


def test_what_the_operating_system_refuses_is_no_bug(
    file: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fail_with(OSError(28, "No space left on device", "/data/x"), monkeypatch)
    assert end_of("status", str(file), monkeypatch=monkeypatch) == 1
    said = capfd.readouterr().err
    assert "bug" not in said and "/data/x" in said and "Free space" in said and "Traceback" not in said


def test_a_failure_without_a_pipeline_is_kept_in_the_cache_or_the_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fail_with(RuntimeError("x"), monkeypatch)
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    missing = str(tmp_path / "missing.yaml")
    assert end_of("status", missing, monkeypatch=monkeypatch) == 1
    assert str(tmp_path / "cache" / "logs" / "errors.log") in capfd.readouterr().err
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert end_of("status", missing, monkeypatch=monkeypatch) == 1
    [kept] = tmp_path.glob("penstock-error-*.log")
    assert str(kept) in capfd.readouterr().err and "Traceback" in kept.read_text()


def test_a_link_in_place_of_the_log_is_not_followed(
    file: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    logs = file.parent / "state" / "logs"
    logs.mkdir()
    (logs / "errors.log").symlink_to(tmp_path / "somewhere")
    fail_with(RuntimeError("x"), monkeypatch)
    assert end_of("status", str(file), monkeypatch=monkeypatch) == 1
    assert not (tmp_path / "somewhere").exists()
    assert str(tmp_path / "cache") in capfd.readouterr().err


def test_an_error_of_ours_keeps_its_exit_code(
    file: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fail_with(ConfigError("No.", hint="Do."), monkeypatch)
    assert end_of("status", str(file), monkeypatch=monkeypatch) == 1
    assert capfd.readouterr().err == "penstock: No.\nDo.\n"
    assert not (file.parent / "state" / "logs").exists()


def test_log_lines_and_threads_show_no_stack_trace(
    file: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def command(*_: Any, **__: Any) -> None:
        try:
            raise ValueError(CANARY)
        except ValueError:
            logging.getLogger("penstock.x").exception("it failed")

        def broken() -> None:
            raise RuntimeError(CANARY)

        thread = threading.Thread(target=broken)
        thread.start()
        thread.join()
        raise ConfigError("No.")

    monkeypatch.setattr("penstock.commands.status.status", command)
    assert end_of("status", str(file), monkeypatch=monkeypatch) == 1
    said = capfd.readouterr().err
    assert "Traceback" not in said and CANARY not in said
    assert "it failed Details are in" in said and "a thread ended: This is a bug" in said
    assert "Traceback" in (file.parent / "state" / "logs" / "errors.log").read_text()


def test_a_request_that_fails_shows_no_stack_trace(
    file: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """PySpark's server of accumulators loses its client when the JVM is killed."""

    class Broken(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            raise EOFError(CANARY)

    def command(*_: Any, **__: Any) -> None:
        with socketserver.TCPServer(("127.0.0.1", 0), Broken) as server:
            socket.create_connection(("127.0.0.1", server.server_address[1])).close()
            server.handle_request()
        raise ConfigError("No.")

    monkeypatch.setattr("penstock.commands.status.status", command)
    assert end_of("status", str(file), monkeypatch=monkeypatch) == 1
    assert capfd.readouterr().err == "penstock: No.\n"
    assert "EOFError" in (file.parent / "state" / "logs" / "errors.log").read_text()


WITH_SPARK = [
    ("verify",), ("query", "SELECT 1"), ("compact",), ("repair",),
]  # fmt: skip


@pytest.mark.parametrize("command", WITH_SPARK, ids=lambda command: command[0])
def test_every_command_that_needs_java_says_so(command: tuple[str, ...], file: Path) -> None:
    name, *rest = command
    done = subprocess.run(
        [sys.executable, "-m", "penstock", name, str(file), *rest],
        env={**os.environ, "JAVA_HOME": "/nowhere"},
        capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    refusal(done, "/nowhere/bin/java")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["inspect", "/nowhere"], 1), (["inspect", "/proc/self/mem"], 1), (["inspect", "{file}"], 1),
        (["schema", "/nowhere"], 1), (["schema", "/dev/null", "--server-version", "x"], 1),
        (["prepare", "nonsense"], 1), (["signal", "{file}", "nonsense"], 1),
        (["signals", "{file}", "none"], 1),
        (["resnapshot", "{file}", "nodot"], 1), (["unpark", "{file}", "shop.none"], None),
        (["demo", "--sink", "nonsense"], 2), (["doctor", "{file}"], 1), (["receive", "{file}"], 1),
        (["status", "{file}", "--history"], 0), (["init", "{file}"], 1), (["init", "/nowhere/x.yaml"], 1),
        (["run", "{file}", "--once"], 1),
    ],
)  # fmt: skip
def test_bad_input_of_any_command_shows_no_stack_trace(
    arguments: list[str], code: int | None, file: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *[one.replace("{file}", str(file)) for one in arguments]],
        capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode in ((code,) if code is not None else (0, 1)), done.stderr
    for sign in ("Traceback", "\tat ", "bug in Penstock"):
        assert sign not in done.stdout + done.stderr, done.stderr


def test_more_files_may_be_open_than_the_soft_limit_says() -> None:
    code = (
        "import resource, penstock.cli as cli\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 4096))\n"
        "cli.app = lambda: print(*resource.getrlimit(resource.RLIMIT_NOFILE))\n"
        "cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "4096 4096\n"), done.stderr
