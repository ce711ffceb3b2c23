"""What an operator asks over HTTP."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

import pytest
from tests.serve.conftest import database_of, options_of
from tests.serve.raw_client import Failed, RawClient
from tests.serve.serving import LONG_MS, Serving, rows_of, serving

from penstock.testing.servers import MySqlServer

TOKEN, OTHER = "an-operators-token", "a-readers-token-only"


def ask(served: Serving, method: str, path: str, token: str = TOKEN) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(served.listening["http"], timeout=20)
    connection.request(method, path, headers={"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def test_a_destination_is_stopped_and_started_without_losing_a_clients_place(
    source: MySqlServer, tmp_path: Path
) -> None:
    database = database_of(source, f"admin_{tmp_path.name[-1]}")
    options = options_of(source, {"example": database.name})
    tokens = {"operator": {"token": TOKEN, "role": "operator"}, "other": {"token": OTHER}}
    with serving(source, tmp_path, **options, http={"listen": "127.0.0.1:0"}, tokens=tokens) as served:
        listener = http.client.HTTPConnection(served.listening["http"], timeout=20)
        headers = {"Authorization": f"Bearer {OTHER}"}
        client = RawClient(served.address)
        client.subscribe()
        database.execute("INSERT INTO orders VALUES (1, 'a')")
        batch, _ = client.get(3, LONG_MS)
        client.acknowledge(batch)
        client.get(1, 1)
        for path in ("/states", "/logs", "/destinations/example/stop"):
            method = "POST" if path.endswith("stop") else "GET"
            assert ask(served, method, path, OTHER)[0] == 403
        assert ask(served, "POST", "/destinations/none/stop")[0] == 404
        for _ in range(2):
            status, answer = ask(served, "POST", "/destinations/example/stop")
            assert (status, answer["state"]) == (200, "stopped")
        states = {"example": "stopped", "example-later": "running", "example-kib": "running"}
        assert ask(served, "GET", "/states") == (200, states)
        with pytest.raises((Failed, OSError)):
            client.get(100, 100)
        with pytest.raises(Failed, match="stopped by an operator"):
            RawClient(served.address).subscribe()
        database.execute("INSERT INTO orders VALUES (2, 'a')")
        assert ask(served, "POST", "/destinations/example/start")[1]["state"] == "running"
        client = RawClient(served.address)
        client.subscribe()
        assert [row[3]["id"] for row in rows_of(client.get(3, LONG_MS)[1])] == ["2"]
        listener.request("GET", "/destinations/example/events?start=earliest", headers=headers)
        changes = listener.getresponse()
        assert changes.readline().startswith(b"id: ")
        ask(served, "POST", "/destinations/example/stop")
        database.execute("INSERT INTO orders VALUES (3, 'a')")
        read = changes.read()  # up to the end of the connection
        assert b'"id":2' in read and b'"id":3' not in read and b"not served here any more" in read
        logs = ask(served, "GET", "/logs?lines=5")[1]
        assert set(logs) == {"server", "receiver"} and all(TOKEN not in line for line in logs["server"])
