"""HTTP of a pipeline, as its clients see it: a real server, real connections."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.runtime.http_client import LOG, READER, TOKEN, Client, section
from tests.serve import certificate

from penstock.config import SignalsConfig
from penstock.errors import ConfigError
from penstock.runtime import http as served
from penstock.state import StateStore


def test_a_signal_is_accepted_once_and_what_became_of_it_is_told(client: Client) -> None:
    status, first = client.post(LOG)
    assert (status, first["status"], first["channel"]) == (202, "accepted", "http")
    client.state.set_signal("a", "done", {"message": "x"})
    status, again = client.post(LOG)
    assert (status, again["status"], again["received"]) == (200, "done", first["received"])
    status, other = client.post({"type": "park", "data": {"tables": ["shop.orders"]}})
    assert status == 202 and other["id"] not in ("", "a")
    assert [one.id for one in client.state.signals()] == ["a", other["id"]]
    status, known = client.ask("GET", "/signals")
    assert status == 200 and [one["id"] for one in known] == ["a", other["id"]]
    assert client.ask("GET", "/signals/a") == (200, again)
    assert client.ask("GET", "/signals/b")[0] == 404


@pytest.mark.parametrize("signal_id", ["a/b", "ä ?#%", "x" * 255, "..", "\0"])
def test_a_signal_is_found_by_any_id(signal_id: str, client: Client) -> None:
    assert client.post(LOG | {"id": signal_id})[0] == 202
    status, found = client.ask("GET", "/signals/" + quote(signal_id, safe=""))
    assert (status, found["id"]) == (200, signal_id)


def test_signals_of_other_channels_are_shown_too(client: Client) -> None:
    client.state.send("by hand", "log", {"message": "ä"}, "command")
    assert client.ask("GET", "/signals/by%20hand")[1]["channel"] == "command"


def deep(levels: int) -> bytes:
    return b'{"type": "log", "data": {"message": ' + b"[" * levels + b"]" * levels + b"}}"


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (400, b"no json", "not JSON"),
        (400, b"[]", "not a JSON object"),
        (400, b"\xff\xfe", "UTF-8"),
        (400, b"[" * 500_000, "nested"),
        (400, b'{"id": ' + b"1" * 5000 + b"}", "not JSON"),
        (422, b"", "type"),
        (422, b"{}", "type"),
        (422, {"type": 7}, "type"),
        (422, {"type": "nonsense"}, "Unknown signal type 'nonsense'"),
        (422, {"type": "x" * 900_000}, "type"),
        (422, LOG | {"id": 5}, "id"),
        (422, LOG | {"id": ""}, "id"),
        (422, LOG | {"id": "x" * 256}, "id"),
        (422, LOG | {"id": "\ud800"}, "UTF-8"),
        (422, LOG | {"data": []}, "data"),
        (422, LOG | {"data": None}, "data"),
        (422, LOG | {"data": {"message": 5}}, "message"),
        (422, LOG | {"data": {"message": "\ud800"}}, "UTF-8"),
        (422, LOG | {"data": {"message": float("nan")}}, "NaN"),
        (422, b'{"type": "log", "data": {"message": 1e999}}', "NaN"),
        (422, LOG | {"data": {"m" * 500_000: ""}}, "log: "),
        (422, LOG | {"date": {}}, "only id, type and data"),
        (422, {"type": "park", "data": {"tables": []}}, "tables"),
        (422, deep(40), "nested"),
        (422, deep(400), "nested"),
    ],
)
def test_what_is_no_signal_is_refused_with_the_reason(
    status: int, body: Any, said: str, client: Client
) -> None:
    found, answer = client.post(body)
    assert found == status and set(answer) == {"message", "hint"}, answer
    assert said in answer["message"] and len(answer["message"]) < 3000
    assert client.state.signals() == []


@pytest.mark.parametrize("method, path", [("POST", "/signals"), ("GET", "/signals"), ("GET", "/signals/a"),
                                          ("GET", "/status")])  # fmt: skip
@pytest.mark.parametrize("given", [None, "Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}",
                                   f"Basic {TOKEN}", TOKEN, "Bearer \xff"])  # fmt: skip
def test_without_the_token_nothing_is_done_or_shown(
    method: str, path: str, given: str | None, client: Client
) -> None:
    client.state.send("a", "log", {}, "command")
    client.report()
    headers = {} if given is None else {"Authorization": given}
    status, answer = client.ask(method, path, LOG | {"id": "b"}, token=None, **headers)
    assert status == 401 and set(answer) == {"message", "hint"} and TOKEN not in json.dumps(answer)
    assert [one.id for one in client.state.signals()] == ["a"]


def test_there_are_no_pages_about_the_interface(client: Client) -> None:
    for path in ("/", "/docs", "/redoc", "/openapi.json", "/signals/"):
        status, answer = client.ask("GET", path)
        assert status == 404 and set(answer) == {"message", "hint"}
    assert client.ask("DELETE", "/signals")[0] == 405
    assert client.ask("OPTIONS", "/signals")[0] == 405
    assert client.ask("OPTIONS", "/signals", Origin="https://example.com")[0] == 403


def test_health_and_status_are_those_of_this_process(client: Client) -> None:
    """A report that another process left behind, or an old one, is no sign of life."""
    assert client.ask("GET", "/health", token=None) == (503, {"healthy": False})
    assert client.ask("GET", "/status")[0] == 503
    client.report(pid=1)
    assert client.ask("GET", "/health", token=None)[0] == client.ask("GET", "/status")[0] == 503
    client.report(updated=time.time() - 600)
    assert client.ask("GET", "/health", token=None)[0] == 503
    client.report(epoch=7)
    assert client.ask("GET", "/health", token=None) == (200, {"healthy": True})
    status, report = client.ask("GET", "/status")
    assert status == 200 and report["epoch"] == 7


def test_many_at_once_are_each_accepted_once(client: Client) -> None:
    def send(number: int) -> int:
        return client.post(LOG | {"id": f"s{number % 50}"})[0]

    with ThreadPoolExecutor(16) as senders:
        answers = list(senders.map(send, range(200)))
    assert answers.count(202) == 50 and answers.count(200) == 150
    assert len(client.state.signals()) == 50


def test_lists_come_in_pages_each_signal_once(client: Client) -> None:
    for number in range(25):
        client.state.send(f"s{number}", "log", {}, "command")
    seen: list[str] = []
    path, pages = "/signals?limit=10", 0
    while path:
        status, found, link = client.get(path)
        assert status == 200 and len(found) <= 10
        seen += [one["id"] for one in found]
        pages += 1
        path = link.partition("<")[2].partition(">")[0]
    assert seen == [f"s{number}" for number in range(25)] and pages == 3


def test_a_page_is_bounded_in_bytes(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.state.signals.PAGE_BYTES_MAX", 5000)
    for number in range(4):
        client.state.send(f"s{number}", "log", {"message": "x" * 2000}, "command")
    client.state.send("huge", "log", {"message": "x" * 9000}, "command")
    assert [one["id"] for one in client.get("/signals")[1]] == ["s0", "s1"]
    last = client.state.signals()[3].number
    assert [one["id"] for one in client.get(f"/signals?after={last}")[1]] == ["huge"]
    assert client.get(f"/signals?after={last + 1}")[1:] == ([], "")


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "limit=-1", "after=-1", "after=1e3", "after=" + "9" * 30,
              "limit=%D9%A3", "page=2", "limit="]
)  # fmt: skip
def test_a_parameter_that_cannot_be_is_refused(query: str, client: Client) -> None:
    status, answer = client.ask("GET", f"/signals?{query}")
    assert status == 400 and set(answer) == {"message", "hint"}


def test_while_too_many_signals_wait_no_more_are_taken(client: Client) -> None:
    client.state.limit_signals(SignalsConfig(waiting_max=2))
    try:
        assert client.post(LOG)[0] == client.post(LOG | {"id": "b"})[0] == 202
        status, answer = client.post(LOG | {"id": "c"})
        assert status == 503 and "No more signals are accepted" in answer["message"]
        assert client.post(LOG)[0] == 200, "one that is known is answered"
        client.state.set_signal("a", "done", {})
        assert client.post(LOG | {"id": "c"})[0] == 202
    finally:
        client.state.limit_signals(SignalsConfig())


def test_an_error_of_ours_is_told_without_a_trace(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("CANARY9137")

    monkeypatch.setattr(StateStore, "signals_page", broken)
    status, answer = client.ask("GET", "/signals")
    assert status == 500 and "bug in Penstock" in answer["message"]
    assert "CANARY9137" not in json.dumps(answer) and "Traceback" not in json.dumps(answer)


def test_answers_do_not_name_the_software(client: Client) -> None:
    with client.say("GET /health HTTP/1.1\nHost: localhost\nConnection: close") as connection:
        answer = b""
        while piece := connection.recv(10_000):
            answer += piece
    assert not [name for name in (b"uvicorn", b"server:", b"python", b"starlette") if name in answer.lower()]


# the server -------------------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_named(client: Client) -> None:
    state = client.state
    with (
        pytest.raises(ConfigError, match=f"{client.address}, which cannot be bound: another process"),
        served.serving(section(client.address), state),
    ):
        pass


def test_an_address_that_is_not_of_this_machine_is_named(tmp_path: Path) -> None:
    config = section("192.0.2.1:0")
    state = StateStore(tmp_path)
    with (
        pytest.raises(ConfigError, match="which cannot be bound: ") as refused,
        served.serving(config, state),
    ):
        pass
    assert "192.0.2.1:0" in refused.value.message
    state.close()


def test_the_port_is_free_again_when_it_has_stopped(tmp_path: Path) -> None:
    state = StateStore(tmp_path)
    listen = "127.0.0.1:0"
    for number in range(3):
        with served.serving(section(listen), state) as listen:
            assert Client(state, listen).post(LOG | {"id": str(number)})[0] == 202
        with pytest.raises(ConnectionRefusedError):
            Client(state, listen).post(LOG)
    state.close()


@pytest.mark.parametrize("path", ["/health", "/status", "/signals", "/signals/a"])
def test_a_page_of_a_stranger_gets_nothing(client: Client, path: str) -> None:
    """By DNS rebinding, or from its own server."""
    client.report()
    for host in ("evil.example", "evil.example:8190", "192.0.2.1"):
        for origin in ({}, {"Origin": f"http://{host}"}):
            status, said = client.ask("GET", path, Host=host, **origin)
            assert status == 403 and "http.hosts" in said["message"]
    assert client.ask("GET", path, Origin="http://evil.example")[0] == 403
    assert client.ask("GET", path, Host="localhost:9000")[0] in (200, 404)


def test_signals_of_a_page_of_a_stranger_are_not_taken(client: Client) -> None:
    assert client.post(LOG, Host="evil.example")[0] == 403
    assert client.post(LOG, Origin="http://evil.example")[0] == 403
    assert client.state.signals() == []


def test_the_token_cannot_be_guessed(tmp_path: Path) -> None:
    state = StateStore(tmp_path)
    config = section("0.0.0.0:0", failed_logins_per_minute_max=5, hosts=["pipeline.svc"])
    with served.serving(config, state) as address:
        client = Client(state, f"127.0.0.1:{address.rpartition(':')[2]}")
        assert client.ask("GET", "/signals", Host="pipeline.svc")[0] == 200
        assert client.ask("GET", "/signals", Host="10.2.3.4:8190")[0] == 200  # the address of a pod
        assert [client.ask("GET", "/signals", token=f"wrong {n}")[0] for n in range(7)] == [401] * 5 + [
            429
        ] * 2
        status, said = client.ask("GET", "/signals")
        assert status == 429 and "too many failed logins" in said["message"]
        assert client.ask("GET", "/health")[0] == 503  # needs no token; no pipeline runs here
    state.close()


def test_a_reader_sees_everything_and_changes_nothing(client: Client) -> None:
    client.report()
    client.state.send("a", "log", {}, "command")
    for path in ("/status", "/signals", "/signals/a"):
        assert client.ask("GET", path, token=READER)[0] == 200
    status, said = client.post(LOG | {"id": "b"}, token=READER)
    assert status == 403 and "role: operator" in said["message"]
    assert [one.id for one in client.state.signals()] == ["a"]


def test_requests_of_a_token_are_limited_and_others_go_on(tmp_path: Path) -> None:
    state = StateStore(tmp_path)
    tokens = {"few": {"token": READER, "requests_per_second_max": 2}, "many": {"token": TOKEN}}
    with served.serving(section("127.0.0.1:0", tokens=tokens), state) as address:
        client = Client(state, address)
        answers = [client.ask("GET", "/signals", token=READER)[0] for _ in range(50)]
        assert answers[:2] == [200, 200] and 429 in answers
        assert client.ask("GET", "/signals")[0] == 200
    state.close()


def test_connections_are_encrypted_where_the_file_says_so(tmp_path: Path) -> None:
    cert, key = certificate.write(tmp_path)
    state = StateStore(tmp_path / "state")
    config = section("127.0.0.1:0", tls={"cert": cert, "key": key})
    with served.serving(config, state) as address:
        host, _, port = address.rpartition(":")
        context = ssl.create_default_context(cafile=str(cert))
        secure = http.client.HTTPSConnection(host, int(port), timeout=20, context=context)
        secure.request("GET", "/signals", headers={"Authorization": f"Bearer {TOKEN}"})
        assert secure.getresponse().status == 200
        secure.close()
        with pytest.raises((http.client.HTTPException, OSError)):
            Client(state, address).ask("GET", "/health")
    state.close()


def test_a_token_in_a_file_may_be_changed_at_any_time(tmp_path: Path) -> None:
    state, file = StateStore(tmp_path / "state"), tmp_path / "token"
    config = section("127.0.0.1:0", tokens={"one": {"token": {"file": str(file)}}})
    with served.serving(config, state) as address:
        client = Client(state, address)
        for content in (None, "", "short"):
            if content is not None:
                file.write_text(content)
            status, said = client.ask("GET", "/signals", token=content or "x" * 16)
            assert status == 401 and str(tmp_path) not in json.dumps(said)
        for token in (TOKEN, READER):
            file.write_text(f"{token}\n")
            answers = [client.ask("GET", "/signals", token=one)[0] for one in (TOKEN, READER)]
            assert answers == ([200, 401] if token == TOKEN else [401, 200])
    state.close()
