"""Encrypted connections, as the system's own library and gRPC make them."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from pathlib import Path

import pytest
from tests.serve import certificate
from tests.serve.conftest import database_of
from tests.serve.raw_client import RawClient
from tests.serve.serving import LONG_MS, eventually, rows_of, serving

from penstock.access.door import tls_context
from penstock.client import connect
from penstock.errors import ConfigError, TransientError
from penstock.testing.servers import MySqlServer


def test_all_listeners_are_encrypted_and_clients_can_check_the_certificate(
    source: MySqlServer, tmp_path: Path
) -> None:
    database = database_of(source, "serve_tls")
    cert, key = certificate.write(tmp_path)
    context = ssl.create_default_context(cafile=str(cert))
    options = {
        "listen": {"canal": "127.0.0.1:0", "grpc": "127.0.0.1:0"},
        "http": {"listen": "127.0.0.1:0"},
        "tls": {"cert": str(cert), "key": str(key)},
        "destinations": {"example": {"filter": rf"{database.name}\..*", "start": "earliest", "ddl": False}},
    }
    with serving(source, tmp_path / "server", **options) as served:
        database.execute("INSERT INTO orders VALUES (1, 'a')")
        with RawClient(served.address, tls=context) as client:
            client.subscribe()
            assert [row[3]["id"] for row in rows_of(client.get(3, LONG_MS)[1])] == ["1"]
        secure = http.client.HTTPSConnection(served.listening["http"], timeout=20, context=context)
        secure.request("GET", "/health")
        assert json.load(secure.getresponse()) == {"healthy": True}
        with connect(served.listening["grpc"], certificates=cert) as server:
            assert next(server.read("example", start="earliest")).changes[0]["after"]["id"] == 1
        for address in served.listening.values():
            assert not _answers_in_plain(address)
        with connect(served.listening["grpc"]) as server, pytest.raises(TransientError):
            server.destinations()
        # Others are not held up by somebody who never begins to encrypt.
        host, _, port = served.address.rpartition(":")
        with socket.create_connection((host, int(port))), RawClient(served.address, tls=context) as client:
            eventually(lambda: client.seed, "handshake")


def _answers_in_plain(address: str) -> bool:
    """Whether anything but an alert comes back."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=15) as plain:
        plain.sendall(b"GET /health HTTP/1.1\r\n\r\n" * 2)
        try:
            return plain.recv(100)[:1] not in (b"", b"\x15")
        except ConnectionError:
            return False


def test_a_key_that_does_not_fit_is_refused_before_the_start(tmp_path: Path) -> None:
    cert, _ = certificate.write(tmp_path)
    (tmp_path / "other").mkdir()
    _, key = certificate.write(tmp_path / "other")
    for wrong in (key, tmp_path / "none.pem"):
        with pytest.raises(ConfigError, match="cannot be used"):
            tls_context(cert, wrong)
