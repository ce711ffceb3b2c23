"""Signals to a running pipeline: one pipeline for several, each with tables of its own."""

from __future__ import annotations

import itertools
import json
import threading
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from penstock.state import StateStore
from penstock.testing.running import RunningPipeline
from penstock.testing.scenario import Scenario, wait_for
from penstock.testing.servers import MySqlClient

ROWS = 3000
ENDED = ("done", "failed", "refused")


def fill(server: MySqlClient, table: str, rows: int = ROWS) -> None:
    server.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, kind VARCHAR(20), n INT NOT NULL)")
    with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
        sql = f"INSERT INTO {table} VALUES (%s, %s, %s)"
        cursor.executemany(sql, [(n, "odd" if n % 2 else "even", 0) for n in range(rows)])
        connection.commit()


def send(case: Scenario, *arguments: str) -> dict[str, Any]:
    done = case.command("signal", *arguments, "--json")
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    if found["status"] == "accepted":  # the pipeline is starting
        return until(case, found["id"], ("running", *ENDED))
    return found


def ended(case: Scenario, signal_id: str) -> dict[str, Any]:
    return until(case, signal_id, ENDED)


def until(case: Scenario, signal_id: str, status: tuple[str, ...]) -> dict[str, Any]:
    """What became of a signal that was sent some way, as the command shows it. That is asked once: each time
    would take the pipeline a core for a second."""
    state = StateStore(case.folder / "state", read_only=True)

    def is_so() -> bool:
        signal = state.signal(signal_id)
        return signal is not None and signal.status in status

    try:
        wait_for(is_so, f"signal {signal_id} being one of {status}", seconds=300)
    finally:
        state.close()
    done = case.command("signals", signal_id, "--json")
    assert done.returncode == 0, done.stderr
    [found] = json.loads(done.stdout)
    assert found["status"] in status
    return dict(found)


def rows(case: Scenario, table: str) -> dict[int, int]:
    """`n` of each row of the target."""
    return {row["id"]: row["n"] for row in case.target(table).collect()}


def without_log(case: Scenario, *statements: str) -> None:
    """At the source, but not in its log: only reading can bring it."""
    with case.server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_log_bin = 0")
        for statement in statements:
            cursor.execute(statement)


@pytest.mark.slow
def test_parts_of_tables_are_read_again_beside_the_log(scenario: Callable[..., Scenario]) -> None:
    """By condition, by keys and by a range; rows that no log tells of tell what was read."""
    case = scenario(snapshot={"chunk_rows": 400})
    at = case.database
    for name in ("some", "keyed", "ranged", "quiet", "anew"):
        fill(case.server, f"{at}.{name}")
    with case.running() as pipeline:
        case.drain(pipeline)
        without_log(
            case,
            *[f"UPDATE {at}.{name} SET n = 1 WHERE id < 1000" for name in ("some", "keyed", "ranged")],
            f"DELETE FROM {at}.keyed WHERE id = 7",
            f"DELETE FROM {at}.anew WHERE id < 1000",
        )
        case.server.execute(
            f"UPDATE {at}.quiet SET n = 2 WHERE id = 1", f"DELETE FROM {at}.some WHERE id = 11"
        )
        even = send(case, "execute-snapshot", f"{at}.some", "--where", "kind = 'even'", "--wait")
        assert even["status"] == "done", even
        [part] = even["answer"]["tables"].values()
        assert part["rows"] == ROWS // 2
        keys = [option for key in (5, 7, 9) for option in ("--key", str(key))]
        assert send(case, "execute-snapshot", f"{at}.keyed", *keys, "--wait")["status"] == "done"
        bounds = json.dumps({"data-collections": [f"{at}.ranged"], "from": 100, "to": 900})
        assert send(case, "execute-snapshot", "--data", bounds, "--wait")["status"] == "done"
        done = case.command("resnapshot", f"{at}.anew", "--recreate")
        assert done.returncode == 0 and "into a new target" in done.stdout, done.stderr
        case.server.execute(f"UPDATE {at}.anew SET n = 3 WHERE id = 2000")
        case.drain(pipeline)
        assert pipeline.stop() == 0
    found = {name: rows(case, name) for name in ("some", "keyed", "ranged")}
    assert {n for n, value in found["some"].items() if value} == set(range(0, 1000, 2))
    assert {n for n, value in found["keyed"].items() if value} == {5, 9} and 7 not in found["keyed"]
    assert {n for n, value in found["ranged"].items() if value} == set(range(100, 900))
    assert 11 not in found["some"]
    case.assert_equal("quiet", "anew")


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["iceberg", "delta"])
def test_a_broken_target_is_left_behind_though_the_driver_is_killed(
    scenario: Callable[..., Scenario], sink: str
) -> None:
    case = scenario(sink=sink, snapshot={"chunk_rows": 100})
    at = case.database
    fill(case.server, f"{at}.broken")
    fill(case.server, f"{at}.other", 10)
    with case.running() as pipeline:
        case.drain(pipeline)
        assert pipeline.stop() == 0
    files = list((case.sink_path / case.namespace / "broken").rglob("*.json*"))
    assert files
    for file in files:
        file.write_bytes(b"{ torn")
    case.server.execute(
        f"DELETE FROM {at}.broken WHERE id < 10", f"INSERT INTO {at}.other VALUES (99, 'x', 1)"
    )
    done = case.command("resnapshot", f"{at}.broken", "--recreate")
    assert done.returncode == 0 and "when the pipeline runs" in done.stdout, done.stderr
    epoch = case.status()["epoch"]
    with case.running() as pipeline:
        for _ in range(3):
            epoch = pipeline.next_epoch(after=epoch, seconds=400, restart=True)["epoch"]
            pipeline.kill("driver")
            pipeline.ensure_alive()
            case.server.execute(f"UPDATE {at}.broken SET n = n + 1 WHERE id % 7 = 0")
        case.drain(pipeline, restart=True)
        assert pipeline.stop() == 0
    case.assert_equal("broken", "other")


@pytest.mark.slow
def test_tables_come_and_go_and_rest_while_the_others_go_on(scenario: Callable[..., Scenario]) -> None:
    case = scenario(snapshot={"chunk_rows": 400})
    at = case.database
    for name in ("first", "second", "third"):
        fill(case.server, f"{at}.{name}")
    case.write_file(tables=[f"{at}.first", f"{at}.third"])
    with case.running() as pipeline:
        case.drain(pipeline)
        added = send(case, "add-table", f"{at}.second", "--wait")
        assert added["status"] == "done" and list(added["answer"]["tables"]) == [f"{at}.second"]
        assert send(case, "park", f"{at}.first")["status"] == "done"
        assert send(case, "remove-table", f"{at}.third")["status"] == "done"
        case.server.execute(
            *[f"UPDATE {at}.{name} SET n = 5 WHERE id < 10" for name in ("first", "second", "third")]
        )
        case.drain(pipeline)
        assert pipeline.stop() == 0
    case.assert_equal("second")
    assert not any(rows(case, "first").values()) and not any(rows(case, "third").values())
    with case.running() as pipeline:  # all of it holds after a restart
        case.drain(pipeline)
        back = send(case, "unpark", f"{at}.first", "--wait")
        assert back["answer"]["tables"][f"{at}.first"]["action"] == "continue"
        assert send(case, "add-table", f"{at}.third", "--wait")["status"] == "done"
        case.server.execute(f"UPDATE {at}.second SET n = 6 WHERE id < 3")
        case.drain(pipeline)
        wait_for(lambda: not [t for t in case.status()["tables"] if t["catching_up"]], "catching up")
        assert pipeline.stop() == 0
    case.assert_equal("first", "second", "third")


@pytest.mark.slow
def test_a_snapshot_is_paused_resumed_and_stopped(scenario: Callable[..., Scenario]) -> None:
    case = scenario(snapshot={"chunk_rows": 100, "parallel": 1})
    at = case.database
    fill(case.server, f"{at}.large")
    with case.running() as pipeline:
        case.drain(pipeline)
        assert send(case, "pause-snapshot")["status"] == "done"
        begun = send(case, "execute-snapshot", f"{at}.large", "--where", "n >= 0", "--id", "part")
        assert begun["status"] == "running"
        again = send(case, "execute-snapshot", f"{at}.large", "--where", "n >= 0", "--id", "part")
        assert again["received"] == begun["received"], "an id that is known is the same signal"
        case.server.execute(f"UPDATE {at}.large SET n = 1 WHERE id = 1")
        case.drain(pipeline)  # the log goes on meanwhile
        [part] = send(case, "log", "--data", '{"message": "at {}"}', "--wait")["answer"]["message"].split()[
            1:
        ]
        assert int(part) > 0
        pipeline.kill("driver")
        case.drain(pipeline, restart=True)
        assert json.loads(case.command("signals", "part", "--json").stdout)[0]["status"] == "running"
        assert send(case, "resume-snapshot")["answer"] == {"paused": []}
        assert ended(case, "part")["status"] == "done"
        send(case, "pause-snapshot", f"{at}.large")
        send(case, "execute-snapshot", f"{at}.large", "--where", "n = 0", "--id", "stopped")
        assert send(case, "stop-snapshot", f"{at}.large")["status"] == "done"
        assert ended(case, "stopped")["status"] == "failed"
        assert pipeline.stop() == 0
    case.assert_equal("large")


TOKEN = str(uuid.uuid4())


def say_by_file(case: Scenario, pipeline: RunningPipeline, signal_id: str, kind: str, data: str) -> None:
    with open(case.folder / "signals.jsonl", "a") as file:
        file.write(f'{{"id": "{signal_id}", "type": "{kind}", "data": {data}}}\nno signal\n')


def say_by_table(case: Scenario, pipeline: RunningPipeline, signal_id: str, kind: str, data: str) -> None:
    with case.server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {case.database}.signals VALUES (%s, %s, %s)", (signal_id, kind, data))


def say_by_http(case: Scenario, pipeline: RunningPipeline, signal_id: str, kind: str, data: str) -> None:
    """Until it is accepted, as a client does to whom nobody listens for a while; then once more."""
    body = json.dumps({"id": signal_id, "type": kind, "data": json.loads(data)}).encode()

    def answer() -> int:
        pipeline.ensure_alive()
        address = pipeline.latest.get("http")
        if address is None:
            return 0  # it is starting
        request = Request(
            f"http://{address}/signals", body, {"Authorization": f"Bearer {TOKEN}"}, method="POST"
        )
        try:
            with urlopen(request, timeout=60) as response:
                return int(response.status)
        except (URLError, ConnectionError):
            return 0

    wait_for(lambda: answer() in (200, 202), f"signal {signal_id} being accepted", seconds=300)
    assert answer() == 200


CHANNELS = {"file": say_by_file, "table": say_by_table, "http": say_by_http}


@pytest.mark.slow  # tests/signals has quick ones of each channel
@pytest.mark.parametrize("channel", [*CHANNELS])
def test_signals_come_by_each_channel_once_though_the_driver_is_killed(
    channel: str, scenario: Callable[..., Scenario]
) -> None:
    case = scenario()
    at = case.database
    fill(case.server, f"{at}.orders", 500)
    columns = "id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048)"
    case.server.execute(f"CREATE TABLE {at}.signals ({columns})")
    path = case.folder / "signals.jsonl"
    options: dict[str, Any] = {
        "file": str(path),
        "table": f"{at}.signals",
        "http": {"listen": "127.0.0.1:0", "tokens": {"one": {"token": TOKEN, "role": "operator"}}},
    }
    chosen = {channel: options[channel]}
    sections = chosen if channel == "http" else {"signals": chosen}
    case.write_file(tables=[f"{at}.orders"], **sections)
    where = json.dumps(
        {
            "type": "incremental",
            "data-collections": [f"{at}.orders"],
            "additional-conditions": [{"data-collection": f"{at}.orders", "filter": "n = 0"}],
        }
    )
    with case.running() as pipeline:
        say = partial(CHANNELS[channel], case, pipeline)
        case.drain(pipeline)
        first, second = str(uuid.uuid4()), str(uuid.uuid4())
        say(first, "execute-snapshot", where)
        assert ended(case, first)["answer"]["tables"][f"{at}.orders"]["rows"] == 500
        say(second, "execute-snapshot", where)
        pipeline.kill("driver")
        say("bad", "execute-snapshot", '{"data-collections": ["nowhere.none"]}')
        case.drain(pipeline, restart=True)
        assert ended(case, second)["status"] == "done"
        refused = ended(case, "bad")
        assert refused["status"] == "refused" and "nowhere.none" in refused["answer"]["message"]
        known = json.loads(case.command("signals", "--json").stdout)
        assert [one["id"] for one in known] == [first, second, "bad"]
        assert {one["channel"] for one in known} == {channel}
        assert pipeline.stop() == 0
    case.assert_equal("orders")
    if channel == "file":
        lines = [
            json.loads(line) for line in path.with_name("signals.jsonl.answers").read_text().splitlines()
        ]
        assert {line["id"]: line["status"] for line in lines} == {
            first: "done",
            second: "done",
            "bad": "refused",
        }


@pytest.mark.slow
def test_a_table_that_is_added_and_read_never_holds_up_one_that_is_streamed(
    scenario: Callable[..., Scenario],
) -> None:
    """The demonstration of read-only incremental snapshots: `customers` is written and streamed all the time,
    `orders` is added meanwhile, and its rows are changed while they are read."""
    case = scenario(snapshot={"chunk_rows": 200, "parallel": 1})
    at = case.database
    fill(case.server, f"{at}.customers")
    fill(case.server, f"{at}.orders")
    case.write_file(tables=[f"{at}.customers"])
    marks = iter(range(10, 1_000_000))

    def arrives() -> None:
        """A change of now comes to the target, whatever else is going on."""
        mark = next(marks)
        case.server.execute(f"UPDATE {at}.customers SET n = {mark} WHERE id = 1")
        wait_for(lambda: rows(case, "customers")[1] == mark, "a change to arrive", seconds=180)

    def some_rows_change(stop: threading.Event) -> None:
        with case.server.connect() as connection, connection.cursor() as cursor:
            for n in itertools.count():
                if stop.wait(0.05):
                    return
                table, row = ("customers", "orders")[n % 2], (n * 37) % ROWS
                if row != 1:
                    cursor.execute(f"REPLACE INTO {at}.{table} VALUES ({row}, 'new', {n})")
                    cursor.execute(f"DELETE FROM {at}.{table} WHERE id = {(row + 5) % ROWS} AND id <> 1")

    stop = threading.Event()
    writer = threading.Thread(target=some_rows_change, args=(stop,))
    with case.running() as pipeline:
        case.drain(pipeline)
        writer.start()
        try:
            send(case, "pause-snapshot")
            added = send(case, "add-table", f"{at}.orders")
            assert added["status"] == "running"
            arrives()  # `orders` is not read at all yet
            send(case, "resume-snapshot")
            while case.command("signals", added["id"], "--json").stdout.count('"running"'):
                arrives()  # while chunk after chunk is
        finally:
            stop.set()
            writer.join(30)
        assert ended(case, added["id"])["status"] == "done"
        case.drain(pipeline)
        assert pipeline.stop() == 0
    case.assert_equal("customers", "orders")
