"""Limits on how many requests somebody may send."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.serve.raw_client import Failed, RawClient
from tests.serve.serving import LONG_MS, rows_of, serving

from penstock.access.rates import RequestLimit, TooMany
from penstock.client import connect
from penstock.errors import TransientError
from penstock.testing.servers import MySqlServer

TOKEN = "0123456789abcdef"


def test_a_bucket_is_filled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    limit = RequestLimit(4, "somebody")
    for _ in range(4):
        limit.take()
    with pytest.raises(TooMany, match="somebody may send 4 a second") as raised:
        limit.take()
    now[0] += raised.value.retry_s
    limit.take()
    now[0] += 60
    for _ in range(4):
        limit.take()
    with pytest.raises(TooMany):
        limit.take()


def test_who_sends_too_many_requests_gets_an_error_and_others_go_on(
    source: MySqlServer, tmp_path: Path
) -> None:
    source.execute("CREATE DATABASE IF NOT EXISTS rated", "CREATE TABLE rated.orders (id INT PRIMARY KEY)")
    options = {
        "listen": {"canal": "127.0.0.1:0", "grpc": "127.0.0.1:0"},
        "http": {"listen": "127.0.0.1:0"},
        "destinations": {"example": {"filter": r"rated\..*", "start": "earliest", "ddl": False}},
        "users": {
            "few": {"password": "x", "requests_per_second_max": 5}, "many": {"password": "x"}
        },
        "tokens": {"few": {"token": TOKEN, "requests_per_second_max": 2}},
        "requests_per_second_max": 1000,
    }  # fmt: skip
    with serving(source, tmp_path, **options) as server:
        clients = {}
        for user in ("few", "many"):
            clients[user] = RawClient(server.address, client_id=user, login=False)
            clients[user].log_in(user, b"x")
            clients[user].subscribe()
        with pytest.raises(Failed, match=r"the user few may send 5 a second.*try again in"):
            for _ in range(100):
                clients["few"].get(1, 1)
        for _ in range(20):
            clients["many"].get(1, 1)
        source.execute("INSERT INTO rated.orders VALUES (1)")
        time.sleep(1.1)  # the bucket of `few` is full again
        batch, entries = clients["few"].get(3, LONG_MS)
        assert len(rows_of(entries)) == 1
        for _ in range(20):
            clients["few"].acknowledge(batch)  # has no answer, and does not count
        with pytest.raises(Failed, match="does not exist"):
            clients["few"].get(1, 1)
        for one in clients.values():
            one.close()
        url = f"http://{server.listening['http']}/destinations"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
        with pytest.raises(urllib.error.HTTPError) as raised:
            for _ in range(100):
                urllib.request.urlopen(request, timeout=10).close()
        assert raised.value.code == 429 and raised.value.headers["Retry-After"] == "1"
        with (
            connect(server.listening["grpc"], token=TOKEN) as other,
            pytest.raises(TransientError, match="the token few may send 2 a second"),
        ):
            for _ in range(100):
                other.destinations()
