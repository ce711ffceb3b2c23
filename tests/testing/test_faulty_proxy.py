"""The HTTP proxy that tests put in front of an S3 server."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator

import pytest

from penstock.testing.faulty_proxy import FaultyProxy

ANSWERS = {
    "/without": b"HTTP/1.1 200 OK\r\n\r\nwhole",
    "/with": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole",
    "/nothing": b"HTTP/1.1 204 No Content\r\n\r\n",
}


@pytest.fixture
def port() -> Iterator[int]:
    """Of a server that ends each answer by closing the connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                asked = client.recv(65536).decode().split(" ")[1]
                client.sendall(ANSWERS[asked])

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(10)


def test_an_answer_without_a_length_ends_with_the_connection(port: int) -> None:
    with FaultyProxy("127.0.0.1", port) as proxy:
        client = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=10)
        for path in ("/with", "/nothing", "/with"):  # by one connection
            client.request("GET", path)
            assert client.getresponse().read() == (b"" if path == "/nothing" else b"whole")
        client.request("GET", "/without")
        answer = client.getresponse()
        assert answer.length is None
        assert answer.read() == b"whole"
