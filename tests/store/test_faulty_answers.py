"""What answers in place of an object store: it is waited for, and is taken for no object."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.connections.faulty import bounded_memory
from tests.store.conftest import options

from penstock.store.base import Store
from penstock.store.credentials import GivenKeys, Keys
from penstock.store.errors import StoreUnavailable
from penstock.store.opening import open_store
from penstock.testing.faulty_peer import ANY_PROTOCOL, HTTP, FaultyPeer

ACTS: dict[str, Callable[[Store], object]] = {
    "get": lambda store: store.get("one"),
    "put": lambda store: store.put_if_absent("one", b"x"),
    "list": lambda store: list(store.objects("")),
}
UNBOUNDED_LISTS = {"a body without end", "chunks without end"}
"""The library below reads the answer to a list whole, and reserves memory of the length that it announces
(docs/security.md). These would fill the machine's."""
URLS = {"s3": "s3://lake/x", "gcs": "gs://lake/x", "azure": "az://lake/x"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", URLS)
@pytest.mark.parametrize("act", ACTS)
def test_no_answer_of_something_else_is_taken_for_one_of_a_store(act: str, kind: str) -> None:
    with FaultyPeer("127.0.0.1", 1) as peer:
        for fault in (*ANY_PROTOCOL, *HTTP):
            if act == "list" and fault.name in UNBOUNDED_LISTS:
                continue
            peer.play(fault, at="connect")
            try:
                with bounded_memory(), pytest.raises(StoreUnavailable):
                    ACTS[act](store_at(peer.port, kind))
            except BaseException as error:
                raise AssertionError(f"{fault}: {error}") from error
            assert peer.played, fault


def store_at(port: int, kind: str) -> Store:
    limits = options(f"http://127.0.0.1:{port}", seconds=1, attempts=2, request=0.5)
    if kind == "azure":
        keys = GivenKeys(Keys("devstoreaccount1", "c2VjcmV0"))
        limits = replace(limits, account="devstoreaccount1", credentials=keys)
    return open_store(URLS[kind], limits)


class Site(BaseHTTPRequestHandler):
    """A web server at a store's address: it has a front page, whatever the parameters, and nothing else."""

    missing = b""

    def do_GET(self) -> None:
        found = "list" in self.path or "prefix" in self.path
        body = b"<!DOCTYPE html><html><body>Welcome</body></html>" if found else self.missing
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("missing", [b"<html>404</html>", b"404 page not found", b""])
def test_a_web_server_at_the_address_of_a_store_is_not_an_empty_store(missing: bytes) -> None:
    site = type("OwnSite", (Site,), {"missing": missing})
    with ThreadingHTTPServer(("127.0.0.1", 0), site) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(StoreUnavailable, match=r"s3://lake|something else|HTML"):
            list(store_at(server.server_port, "s3").objects(""))
        server.shutdown()
