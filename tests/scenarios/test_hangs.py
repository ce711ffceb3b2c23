"""A network that passes nothing on, and closes nothing: everything goes on by itself when it is well again,
and ends in time when it is told to meanwhile."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.runtime.shutdown import BY_FORCE
from penstock.testing.meanwhile import meanwhile
from penstock.testing.proxy import Proxy
from penstock.testing.running import RunningPipeline
from penstock.testing.scenario import Scenario, wait_for
from penstock.testing.servers import Database

END_SECONDS_MAX = 15.0
ROWS = 20_000


@pytest.fixture
def proxy(mysql: Database) -> Iterator[Proxy]:
    with Proxy(mysql.host, mysql.port) as proxy:
        yield proxy


@pytest.fixture
def case(mysql: Database, proxy: Proxy, scenario: Callable[..., Scenario]) -> Scenario:
    """A table of many chunks, behind the proxy; limits are short."""
    mysql.execute("CREATE TABLE big (id INT PRIMARY KEY, text VARCHAR(200))")
    for first in range(0, ROWS, 2000):
        values = ", ".join(f"({n}, '{n} {'x' * 100}')" for n in range(first, first + 2000))
        mysql.execute(f"INSERT INTO big VALUES {values}")
    return scenario(
        source={
            "host": "127.0.0.1", "port": proxy.port, "user": mysql.user, "password": mysql.password,
            "connect_timeout": "1s", "read_timeout": "1s", "heartbeat": "500ms", "reconnect_max": "1s",
        },
        snapshot={"chunk_rows": 500, "parallel": 2},
        signals={},
    )  # fmt: skip


def begun(status: dict[str, Any]) -> bool:
    return bool(status["snapshot"]["chunks_placed"] >= 3) and not status["snapshot"]["done"]


def half_open(proxy: Proxy, pipeline: RunningPipeline) -> None:
    """In the middle of the snapshot. Some chunks are cut in their rows."""
    pipeline.wait_until(begun, "the snapshot to begin", seconds=120)
    proxy.drop()


@pytest.mark.slow
def test_a_snapshot_through_a_dead_network_says_so_goes_on_by_itself_and_ends_in_time(
    case: Scenario, proxy: Proxy, mysql: Database
) -> None:
    with case.running() as pipeline:
        half_open(proxy, pipeline)

        def says(status: dict[str, Any]) -> bool:
            return any(one["table"] == f"{mysql.name}.big" for one in status["retrying"])

        status = pipeline.wait_until(says, "status to say that the snapshot waits", seconds=60)
        retry = next(one for one in status["retrying"] if one["table"])
        assert retry["what"] == "snapshot" and retry["since"] and "127.0.0.1" in retry["reason"]
        mysql.execute("UPDATE big SET text = 'later' WHERE id < 10")
        proxy.pass_on()
        case.drain(pipeline)
        assert not pipeline.latest["retrying"] or pipeline.wait_until(
            lambda status: not status["retrying"], "status to forget it", seconds=30
        )
        case.assert_equal("big")
        proxy.drop()
        began = time.monotonic()
        ended(pipeline, pipeline.stop(seconds=30))
        assert time.monotonic() - began < END_SECONDS_MAX


def ended(pipeline: RunningPipeline, code: int) -> None:
    """In order; or by force, where a busy machine took too long, and then with what still ran."""
    assert code == 0 or (code == BY_FORCE and "Still running: " in pipeline.errors), pipeline.errors


@pytest.mark.slow
@pytest.mark.parametrize("network", ["stall", "drop"])
def test_sigterm_in_the_middle_of_a_snapshot_ends_the_run_though_the_network_is_dead(
    case: Scenario, proxy: Proxy, network: str
) -> None:
    """With limits as they are by default, so that only SIGTERM ends the waits."""
    slow = {"connect_timeout": "10s", "read_timeout": "30s"}
    case.options["source"] |= slow
    case.write_file()
    with case.running() as pipeline:
        pipeline.wait_until(begun, "the snapshot to begin", seconds=120)
        getattr(proxy, network)()
        time.sleep(3)  # so that reads wait
        began = time.monotonic()
        ended(pipeline, pipeline.stop(seconds=30))
        assert time.monotonic() - began < END_SECONDS_MAX
        assert "the jobs that read chunks are cancelled" in pipeline.errors
    proxy.pass_on()
    with case.running() as pipeline:
        case.drain(pipeline)
    case.assert_equal("big")


@pytest.mark.slow
def test_a_snapshot_that_looks_at_the_load_goes_on_when_the_network_is_well_again(
    case: Scenario, proxy: Proxy
) -> None:
    snapshot = {"chunk_rows": 500, "parallel": 2, "load": {"threads_running_max": 1000}}
    case.write_file(snapshot=snapshot)
    with case.running() as pipeline:
        half_open(proxy, pipeline)

        def says(status: dict[str, Any]) -> bool:
            return "is unknown" in (status["snapshot"]["throttled"] or "")

        pipeline.wait_until(says, "status to say that the load is not known", seconds=60)
        proxy.pass_on()
        case.drain(pipeline)
    case.assert_equal("big")


@pytest.mark.slow
@pytest.mark.parametrize("network", ["stall", "drop"])
def test_the_planning_session_goes_on_when_the_network_is_well_again(
    case: Scenario, proxy: Proxy, mysql: Database, network: str
) -> None:
    """A new table and a new column are asked for at the source."""
    with case.running() as pipeline:
        case.drain(pipeline)
        mysql.execute(
            "ALTER TABLE big ADD COLUMN more INT DEFAULT 7",
            "CREATE TABLE late (id INT PRIMARY KEY)",
            "INSERT INTO late VALUES (1), (2)",
        )
        getattr(proxy, network)()
        time.sleep(4)  # longer than the limits together
        assert pipeline.alive and case.status()["running"]
        proxy.pass_on()
        case.drain(pipeline)
        pipeline.wait_until(
            lambda status: status["snapshot"]["done"] and len(status["tables"]) == 2,
            "the new table",
            seconds=60,
        )
        case.drain(pipeline)
    case.assert_equal("big", "late")


@pytest.mark.slow
@pytest.mark.parametrize("network", ["stall", "drop"])
def test_the_receiver_goes_on_by_itself_and_ends_in_time(
    case: Scenario, proxy: Proxy, mysql: Database, network: str
) -> None:
    with case.receiving() as process:
        case.wait_until_received()
        getattr(proxy, network)()
        mysql.execute("UPDATE big SET text = 'later' WHERE id < 10")
        time.sleep(4)  # longer than its limits together
        proxy.pass_on()
        case.wait_until_received()
        getattr(proxy, network)()
        time.sleep(4)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert time.monotonic() - began < END_SECONDS_MAX


@pytest.mark.slow
def test_a_receiver_that_waits_for_an_answer_ends_in_time(case: Scenario, proxy: Proxy) -> None:
    """With limits as they are by default."""
    case.options["source"] |= {"connect_timeout": "60s", "read_timeout": "60s"}
    case.write_file()
    with case.receiving():
        case.wait_until_received()
    proxy.stall()
    accepted = proxy.accepted
    with case.receiving() as process:
        wait_for(lambda: proxy.accepted > accepted, "the receiver to connect")
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert time.monotonic() - began < END_SECONDS_MAX


@pytest.mark.slow
@pytest.mark.parametrize("network", ["stall", "drop"])
def test_verify_goes_on_by_itself_and_finds_both_sides_equal(
    case: Scenario, proxy: Proxy, network: str
) -> None:
    assert case.command("run", "--once").returncode == 0
    accepted = proxy.accepted

    def breaks() -> None:
        wait_for(lambda: proxy.accepted > accepted, "verify to connect", seconds=120)
        getattr(proxy, network)()
        time.sleep(3)  # longer than its limits together
        proxy.pass_on()

    with meanwhile(lambda ending: breaks()):
        done = case.command("verify", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["equal"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "word"), [("stall", "did not greet"), ("drop", "did not accept"), ("refuse", "refuses")]
)
def test_commands_say_that_the_source_cannot_be_reached_and_end(
    case: Scenario, proxy: Proxy, network: str, word: str
) -> None:
    getattr(proxy, network)()
    for command in ("doctor", "run"):
        done = case.command(command, timeout=60)
        said = done.stdout + done.stderr
        assert done.returncode == 1 and "cannot be reached" in said and word in said, said
        assert "GRANT" not in said and "Traceback" not in said
