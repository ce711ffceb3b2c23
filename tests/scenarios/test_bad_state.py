"""What was changed behind a pipeline's back, on disk, at the target or at the source, is noticed before
anything is done, named with its cure, and nothing is lost by it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock import Pipeline
from penstock.relaylog.index import recovered_end
from penstock.relaylog.reader import RelayLog
from penstock.state import StateStore
from penstock.testing.scenario import Completed, Scenario, refusal
from penstock.testing.servers import Database, MySqlServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SPARK: Any = None


@pytest.fixture(scope="module")
def established(
    spark: SparkSession, lake_root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scenario]:
    """A pipeline that has run twice, in the session of the tests. Tests break one thing, see it refused, and
    mend it; the last test of this group runs it again."""
    with MySqlServer() as server:
        database = Database(server, "shop")
        folder = tmp_path_factory.mktemp("established")
        case = Scenario(database, "shop", folder, spark, lake_root)
        database.execute(
            "CREATE TABLE orders (id INT PRIMARY KEY, v INT)", "INSERT INTO orders VALUES (1, 1), (2, 2)"
        )
        Pipeline.load(case.file).run(once=True, spark=spark)
        database.execute("INSERT INTO orders VALUES (3, 3)", "UPDATE orders SET v = 5 WHERE id = 1")
        Pipeline.load(case.file).run(once=True, spark=spark)
        yield case


@pytest.fixture
def case(established: Scenario) -> Iterator[Scenario]:
    """Something is committed before each refusal, which must arrive after all."""
    established.server.execute("INSERT INTO orders (id, v) SELECT max(id) + 1, 0 FROM orders")
    for log in logs_of(established):
        log.unlink(missing_ok=True)
    yield established
    established.write_file()


def logs_of(case: Scenario) -> list[Path]:
    return [case.folder / "state" / "logs" / name for name in ("spark.log", "spark.stderr")]


def refused(case: Scenario, *named: str, command: str = "run") -> str:
    """... before Spark is started."""
    arguments = ("run", "--once") if command == "run" else (command,)
    paragraph = refusal(case.command(*arguments), *named)
    assert not any(log.exists() for log in logs_of(case))
    return paragraph


@contextmanager
def kept(path: Path) -> Iterator[Path]:
    """Whatever happens to a file or directory inside the block, it is as before after it."""
    copy = path.with_name(path.name + ".kept")
    if path.is_dir():
        shutil.copytree(path, copy, symlinks=True)
    else:
        shutil.copy2(path, copy)
    try:
        yield path
    finally:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        copy.rename(path)


def relay_of(case: Scenario) -> Path:
    return case.folder / "state" / "relay"


def newest(case: Scenario, kind: str) -> Path:
    return sorted(relay_of(case).glob(f"*.{kind}"))[-1]


def flip(path: Path, at: int, count: int = 8) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + count] = bytes(byte ^ 0xFF for byte in data[at : at + count])
    path.write_bytes(data)


def binlogs(case: Scenario) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in relay_of(case).glob("*.binlog")}


# paths ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "section"),
    [
        ("state", lambda path: {"state": path}),
        ("relay_log.path", lambda path: {"relay_log": {"path": path}}),
        ("sink's path", lambda path: {"sink": {"path": path}}),
    ],
    ids=["state", "relay log", "sink"],
)
def test_a_path_that_is_a_file_is_named(
    case: Scenario, tmp_path: Path, option: str, section: Callable[[str], dict[str, Any]]
) -> None:
    file = tmp_path / "taken"
    file.write_text("mine")
    case.write_file(**section(str(file)))
    refused(case, option, str(file), "is a file", "directory of its own")
    case.write_file(**section(str(file / "below")))
    refused(case, option, str(file))
    assert file.read_text() == "mine"


def test_the_receiver_alone_names_a_path_that_is_a_file(case: Scenario, tmp_path: Path) -> None:
    file = tmp_path / "taken"
    file.write_text("mine")
    case.write_file(relay_log={"path": str(file)})
    refused(case, "relay_log.path", str(file), command="receive")


def test_a_sink_path_that_holds_something_else_is_named(case: Scenario, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    case.write_file(sink={"path": str(tmp_path)})
    refused(case, str(tmp_path), "thesis.tex", "sink.path")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


# two at once ------------------------------------------------------------------------------------------------


def test_two_runs_on_one_state_are_refused_and_so_are_two_receivers(case: Scenario, tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        source = {"host": "127.0.0.1", "port": silent.getsockname()[1], "user": "u", "connect_timeout": "60s"}
        case.write_file(source=source)
        with case.started("run", "--once") as first:
            greeting = silent.accept()  # it has the state, and waits for the source to greet
            refused(case, str(case.folder / "state"), "Another process", "Stop it")
            assert first.poll() is None
            greeting[0].close()
    case.write_file(relay_log={"path": str(tmp_path / "relay")})
    with case.receiving() as first:
        case.wait_until_received()
        paragraph = refusal(case.command("receive"), str(tmp_path / "relay"), "stop it first", code=3)
        assert str(first.pid) in paragraph and first.poll() is None


# the state --------------------------------------------------------------------------------------------------


def test_a_damaged_state_is_named_by_every_command(case: Scenario) -> None:
    path = case.folder / "state" / "state.sqlite"
    with kept(path):
        path.write_bytes(b"not a database at all" * 1000)
        for command in ("run", "status", "verify"):
            refused(case, str(path), "damaged", "newest copy", command=command)
    with kept(path):
        flip(path, path.stat().st_size // 2 // 4096 * 4096, 200)
        refused(case, str(path), "damaged")


def test_a_state_of_a_later_version_is_left_alone(case: Scenario) -> None:
    import sqlite3

    path = case.folder / "state" / "state.sqlite"
    with kept(path):
        with sqlite3.connect(path) as database:
            database.execute("UPDATE meta SET value = '99' WHERE name = 'format'")
        database.close()
        refused(case, str(path), "format 99", "version of Penstock")


# the relay log ----------------------------------------------------------------------------------------------


def relay_damage() -> list[Any]:
    def half_an_index(case: Scenario) -> str:
        path = newest(case, "index")
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:1]))
        return str(relay_of(case))

    def torn_index(case: Scenario) -> str:
        path = newest(case, "index")
        path.write_bytes(path.read_bytes()[:-20])
        return str(relay_of(case))

    def empty_index(case: Scenario) -> str:
        newest(case, "index").write_bytes(b"")
        return str(relay_of(case))

    def flipped_index(case: Scenario) -> str:
        path = newest(case, "index")
        flip(path, path.stat().st_size // 2)
        return str(path)

    def no_index(case: Scenario) -> str:
        newest(case, "index").unlink()
        return str(relay_of(case))

    def short_segment(case: Scenario) -> str:
        path = newest(case, "binlog")
        os.truncate(path, path.stat().st_size - 50)
        return str(path)

    def no_segment(case: Scenario) -> str:
        newest(case, "binlog").unlink()
        return str(relay_of(case))

    def no_identity(case: Scenario) -> str:
        path = relay_of(case) / "relay.json"
        path.write_text("{}")
        return str(path)

    def emptied(case: Scenario) -> str:
        shutil.rmtree(relay_of(case))
        relay_of(case).mkdir()
        return str(relay_of(case))

    def anothers(case: Scenario) -> str:
        path = relay_of(case) / "relay.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"uuid": "another"}))
        return str(relay_of(case))

    found = [half_an_index, torn_index, empty_index, flipped_index, no_index]
    found += [short_segment, no_segment, no_identity, emptied, anothers]
    quick = (half_an_index, short_segment, anothers)
    return [
        pytest.param(one, id=one.__name__, marks=[] if one in quick else [pytest.mark.slow]) for one in found
    ]


@pytest.mark.parametrize("damage", relay_damage())
def test_a_relay_log_that_lacks_what_was_read_is_refused_and_not_touched(
    case: Scenario, damage: Callable[[Scenario], str]
) -> None:
    with kept(relay_of(case)):
        place = damage(case)
        before = binlogs(case)
        refusal(case.command("run", "--once"), place, "start over")
        assert binlogs(case) == before
        if damage.__name__ not in ("emptied", "anothers"):  # only the pipeline knows what it has followed
            refused(case, place, "start over", command="receive")
            assert binlogs(case) == before


# the source -------------------------------------------------------------------------------------------------


def test_trouble_with_the_source_between_two_runs_is_refused(case: Scenario) -> None:
    source = {"host": "127.0.0.1", "port": case.server.port, "user": "root", "password": "wrong"}
    case.write_file(source=source)
    refused(case, "source.password")
    case.write_file()
    for name, value, before in (("binlog_format", "STATEMENT", "ROW"),):
        case.server.execute(f"SET GLOBAL {name} = '{value}'")
        refused(case, name, value)
        case.server.execute(f"SET GLOBAL {name} = '{before}'")


def test_log_that_was_purged_after_it_was_received_is_no_trouble(case: Scenario) -> None:
    receive_all(case)
    case.server.execute("FLUSH BINARY LOGS")
    case.server.execute(f"PURGE BINARY LOGS TO '{case.server.position()[0]}'")
    done = case.command("doctor", "--json")
    assert json.loads(done.stdout)["ok"], done.stdout


@pytest.fixture(scope="module")
def next_run(established: Scenario, spark: SparkSession) -> None:
    """After all these refusals. The newest segment holds what it planned."""
    Pipeline.load(established.file).run(once=True, spark=spark)


@pytest.mark.usefixtures("next_run")
def test_after_all_these_refusals_the_next_run_ends_equal_to_the_source(established: Scenario) -> None:
    established.assert_equal("orders")


@pytest.mark.slow  # tests/changes/test_reader.py has a quick one
@pytest.mark.usefixtures("next_run")
def test_a_line_of_the_index_that_lost_its_newline_with_the_power_is_still_there(case: Scenario) -> None:
    """The line itself was durable when the pipeline planned up to it; the newline never is."""
    with contextlib.closing(StateStore(case.folder / "state")) as state:
        planned = state.position
    assert planned is not None
    path = newest(case, "index")
    lines = path.read_bytes().splitlines()
    last = next(at for at, line in enumerate(lines) if json.loads(line[:-9])["committed"] >= planned)
    path.write_bytes(b"\n".join(lines[: last + 1]))
    assert RelayLog.open(relay_of(case)).end < planned <= recovered_end(relay_of(case))
    done = case.command("run", "--once")
    assert done.returncode == 0, done.stderr
    case.assert_equal("orders")


# a source that is not what it was ---------------------------------------------------------------------------


@pytest.fixture
def received(mysql_factory: Callable[..., MySqlServer], tmp_path: Path) -> Scenario:
    """A relay log that ends with the source's."""
    database = Database(mysql_factory(), "d")
    case = Scenario(database, "d", tmp_path, NO_SPARK, tmp_path / "lake")
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    receive_all(case)
    database.execute("INSERT INTO t VALUES (1)")
    receive_all(case)
    return case


def receive_all(case: Scenario) -> None:
    with case.receiving():
        case.wait_until_received()


@pytest.mark.parametrize("command", ["run", pytest.param("receive", marks=pytest.mark.slow)])
def test_a_source_that_was_reset_is_not_followed(received: Scenario, command: str) -> None:
    received.server.execute("RESET MASTER", "INSERT INTO t VALUES (2)")
    before = binlogs(received)
    diverged = "does not have transactions that the relay log has"
    refused(received, diverged, "reset", "start over", command=command)
    assert binlogs(received) == before


@pytest.mark.parametrize("command", [pytest.param("run", marks=pytest.mark.slow), "receive"])
def test_log_that_was_purged_before_it_was_received_is_named(received: Scenario, command: str) -> None:
    received.server.execute("INSERT INTO t VALUES (2)", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (3)")
    received.server.execute("FLUSH BINARY LOGS")
    oldest = received.server.position()[0]
    received.server.execute(f"PURGE BINARY LOGS TO '{oldest}'")
    refused(received, "no longer has", oldest, "start over", command=command)


def test_gtids_turned_off_are_named_with_the_statement(received: Scenario) -> None:
    for mode in ("ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF"):
        received.server.execute(f"SET GLOBAL gtid_mode = {mode}")
    refused(received, "gtid_mode", "SET GLOBAL gtid_mode = ON", command="receive")


# what was done with the paragraph ---------------------------------------------------------------------------


def test_with_json_damage_is_one_object_with_path_and_offset(received: Scenario) -> None:
    path = sorted(relay_of(received).glob("*.index"))[-1]
    flip(path, path.stat().st_size // 2)
    done: Completed = received.command("receive", "--json")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    found = json.loads(line)
    assert found["error"] == "RelayLogCorrupt" and found["path"] == str(path) and "offset" in found
