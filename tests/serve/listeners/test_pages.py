"""HTTP of the server: reports, and changes as server-sent events."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.serve.raw_client import RawClient
from tests.serve.serving import LONG_MS, Serving, serving

from penstock.testing.servers import Database, MySqlServer

TOKEN = "0123456789abcdef"


@pytest.fixture
def database(source: MySqlServer) -> Iterator[Database]:
    made = Database(source)
    made.execute("CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(20))")
    yield made
    made.drop()


@pytest.fixture
def served(source: MySqlServer, database: Database, tmp_path: Path) -> Iterator[Serving]:
    options: dict[str, Any] = {
        "listen": {"canal": "127.0.0.1:0"},
        "http": {"listen": "127.0.0.1:0"},
        "tokens": {"all": {"token": TOKEN}},
        "destinations": {"example": {"filter": rf"{database.name}\..*", "start": "earliest"}},
    }
    with serving(source, tmp_path, **options) as server:
        yield server


def ask(served: Serving, path: str, token: str = TOKEN, **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(served.listening["http"], timeout=20)
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}", **headers})
    return connection.getresponse()


def events(answer: http.client.HTTPResponse, count: int) -> list[tuple[str, Any]]:
    assert answer.status == 200
    found: list[tuple[str, Any]] = []
    place = ""
    while len(found) < count:
        line = answer.readline().decode().rstrip("\n")
        if line.startswith("id: "):
            place = line[4:]
        elif line.startswith("data: "):
            found.append((place, json.loads(line[6:])))
    answer.close()
    return found


def test_events_are_all_changes_in_order_and_go_on_behind_the_last_one(
    served: Serving, database: Database
) -> None:
    database.execute(
        "INSERT INTO orders VALUES (1, 'a'), (2, 'b\n')", "UPDATE orders SET note = 'c'",
        "ALTER TABLE orders ADD price INT",
    )  # fmt: skip
    path = "/destinations/example/events?format=json&start=earliest"
    found = events(ask(served, path), 7)
    assert [one["op"] for _, one in found] == ["statement"] * 2 + ["c", "c", "u", "u", "statement"]
    assert found[3][1]["after"] == {"id": 2, "note": "b\n"}
    assert found[6][1]["kind"] == "ALTER"
    for number in (2, 3, 5):
        again = events(ask(served, path, **{"Last-Event-ID": found[number - 1][0]}), 7 - number)
        assert again == found[number:]
    live = ask(served, "/destinations/example/events")
    database.execute("DELETE FROM orders WHERE id = 1")
    assert events(live, 1)[0][1]["op"] == "d"


def test_reports_say_how_far_clients_are(served: Serving, database: Database) -> None:
    database.execute("INSERT INTO orders VALUES (1, 'a')")
    with RawClient(served.address) as client:
        client.subscribe()
        client.get(3, LONG_MS)
        report = json.load(ask(served, "/destinations/example"))
        assert report["clients"]["1001"]["outstanding"] == 1
        client_report = report["clients"]["1001"]
        assert client_report["behind_bytes"] > 0 and client_report["behind_transactions"] >= 1
        assert 0 < client_report["behind_seconds"] < 600 and ":" in client_report["position"]
        everything = json.load(ask(served, "/destinations"))
        batch_id = 1
        while batch_id != -1:  # the row may come in a batch of its own
            client.acknowledge(batch_id)
            batch_id, _ = client.get(100, 500)
        report = json.load(ask(served, "/destinations/example"))["clients"]["1001"]
        assert (report["behind_bytes"], report["behind_seconds"], report["outstanding"]) == (0, 0.0, 0)
        assert everything.keys() == {"example"}


def test_only_health_needs_no_token_and_what_is_not_known_is_refused(served: Serving) -> None:
    assert json.load(ask(served, "/health", token="x")) == {"healthy": True}
    for path in ("/destinations", "/destinations/example/events"):
        assert ask(served, path, token="wrong").status == 401
    assert ask(served, "/destinations/nothing").status == 404
    assert ask(served, "/destinations/example/events?nonsense=1").status == 400
    refused = ask(served, "/destinations/example/events?start=nonsense")
    reason = "`start` cannot be 'nonsense': Input should be 'latest' or 'earliest'."
    assert (refused.status, json.load(refused)["message"]) == (400, reason)
    assert ask(served, "/destinations/example/events", **{"Last-Event-ID": "1.x"}).status == 400
    connection = http.client.HTTPConnection(served.listening["http"], timeout=20)
    connection.request("POST", "/destinations", body="x" * 100_000)
    assert connection.getresponse().status == 405


def test_a_reader_of_the_latest_changes_gets_none_that_came_while_the_server_was_down(
    served: Serving, database: Database
) -> None:
    """The server listens once its receiver has caught up."""
    database.execute("INSERT INTO orders VALUES (1, 'before')")
    everything = "/destinations/example/events?start=earliest"
    assert events(ask(served, everything), 3)[-1][1]["after"]["id"] == 1  # behind CREATE DATABASE and TABLE
    served.kill()
    database.execute(*(f"INSERT INTO orders VALUES ({n}, 'meanwhile')" for n in range(2, 300)))
    served.start()
    answer = ask(served, "/destinations/example/events")
    database.execute("INSERT INTO orders VALUES (1000, 'after')")
    assert [change["after"]["id"] for _, change in events(answer, 1)] == [1000]
