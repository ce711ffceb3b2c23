"""Strangers who send much, or nothing: what a server keeps of it is bounded, before and behind the login."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import grpc
import pytest
from pyarrow import flight
from tests.serve import certificate
from tests.serve.serving import Serving, serving

from penstock.testing.scenario import wait_for
from penstock.testing.servers import MySqlServer

TOKEN = "0123456789abcdef"
GROWTH_BYTES_MAX = 64 * 1024**2
SENT_BYTES = 400 * 1024**2
"""What a stranger sends on one connection, if he is let."""
CONNECTIONS = 1500
DO_ACTION = "/arrow.flight.protocol.FlightService/DoAction"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"
LISTENERS = ("canal", "http", "grpc")
WEBSOCKET = (
    b"GET /destinations/example/events HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
HEADERS = b"\0\x40\0\x09\0\0\0\0\x01" + b"\0\x01a\x01b" * 3276 + b"abcd"
"""A frame of HTTP/2 that continues the headers of a call."""


@pytest.fixture(scope="module", params=["plain", "tls"])
def served(
    request: pytest.FixtureRequest, source: MySqlServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("attacks")
    options: dict[str, Any] = {
        "listen": dict.fromkeys(("canal", "grpc"), "127.0.0.1:0"),
        "http": {"listen": "127.0.0.1:0"},
        "users": {"reader": {"password": "secret"}},
        "tokens": {"all": {"token": TOKEN}},
        "failed_logins_per_minute_max": 1_000_000,
        "connections_max": 300,
    }
    if request.param == "tls":
        cert, key = certificate.write(folder)
        options["tls"] = {"cert": str(cert), "key": str(key)}
    with serving(source, folder / "server", **options) as made:
        yield made


PLAIN = pytest.mark.parametrize("served", ["plain"], indirect=True)
"""For what is the same behind the handshake of TLS."""


@contextlib.contextmanager
def bounded(served: Serving) -> Iterator[None]:
    """Fails if the server's memory has grown by more than `GROWTH_BYTES_MAX` at any time meanwhile."""
    assert served.process is not None
    process = Path("/proc", str(served.process.pid))
    (process / "clear_refs").write_text("5")  # the peak is counted anew
    before = memory(process, "VmRSS")
    yield
    grown = memory(process, "VmHWM") - before
    assert 0 <= grown < GROWTH_BYTES_MAX, f"grown by {grown / 1024**2:.0f} MiB"


def memory(process: Path, name: str) -> int:
    [line] = [one for one in (process / "status").read_text().splitlines() if one.startswith(f"{name}:")]
    return int(line.split()[1]) * 1024


def opened(served: Serving, listener: str) -> socket.socket:
    host, _, port = served.listening[listener].rpartition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def encrypted(served: Serving, listener: str) -> socket.socket:
    """A connection behind the handshake, if there is one."""
    found = opened(served, listener)
    if not (served.folder.parent / "cert.pem").exists():
        return found
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"] if listener == "grpc" else [])
    return context.wrap_socket(found)


def flood(connection: socket.socket, head: bytes, piece: bytes) -> int:
    """Sends until the server ends the connection or reads no more. Returns the bytes that it took."""
    sent = 0
    connection.settimeout(3)
    with contextlib.suppress(OSError), connection:
        connection.sendall(head)
        while sent < SENT_BYTES:
            connection.sendall(piece)
            sent += len(piece)
    return sent


MUCH = {
    "canal: a packet of 2 GiB": ("canal", b"\x7f\xff\xff\xff", b"x" * 2**20),
    "canal: a login without end": ("canal", struct.pack(">i", 8192), b"\x0a\x01x" * 2**18),
    "http: a line without end": ("http", b"GET /", b"x" * 2**20),
    "http: headers without end": ("http", b"GET / HTTP/1.1\r\n", b"a: b\r\n" * 2**17),
    "http: a body": ("http", b"POST /states HTTP/1.1\r\nContent-Length: 4000000000\r\n\r\n", b"x" * 2**20),
    "http: chunks": (
        "http", b"POST /states HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"100000\r\n" + b"x" * 2**20,
    ),
    "websocket: frames without a token": (
        "http", WEBSOCKET,
        b"\x82\xff\0\0\0\0\x7f\xff\xff\xff" + b"x" * 2**20,
    ),
    "grpc: no HTTP/2": ("grpc", b"", b"x" * 2**20),
    "grpc: a frame of 16 MiB": ("grpc", PREFACE + b"\xff\xff\xff\0\0\0\0\0\x01", b"x" * 2**20),
    "grpc: settings without end": ("grpc", PREFACE, b"\0\0\0\x04\0\0\0\0\0" * 2**16),
    "grpc: pings without end": ("grpc", PREFACE, (b"\0\0\x08\x06\0\0\0\0\0" + b"x" * 8) * 2**16),
    "grpc: headers without end": (
        "grpc", PREFACE + b"\0\0\0\x01\0\0\0\0\x01", HEADERS * 64,
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("attack", MUCH)
def test_what_a_stranger_sends_without_end_is_not_kept(served: Serving, attack: str) -> None:
    listener, head, piece = MUCH[attack]
    with bounded(served):
        flood(encrypted(served, listener), head, piece)
        with ThreadPoolExecutor(8) as pool:  # as many as send it at once
            list(pool.map(lambda _: flood(encrypted(served, listener), head, piece[:65536]), range(16)))
    assert answers(served)


@pytest.mark.slow_for("tls")
@pytest.mark.parametrize(
    "said",
    [pytest.param(b"", id="nothing", marks=pytest.mark.slow), pytest.param(b"x" * 30_000, id="something")],
)
@pytest.mark.parametrize("listener", LISTENERS)
def test_connections_that_end_nothing_are_bounded(served: Serving, listener: str, said: bytes) -> None:
    with contextlib.ExitStack() as stack, bounded(served):
        for _ in range(CONNECTIONS):
            with contextlib.suppress(OSError):
                connection = stack.enter_context(opened(served, listener))
                connection.setblocking(False)
                connection.send(said)
        wait_for(lambda: not unread(served, listener), "that the server reads what it accepts")
    assert answers(served)


def unread(served: Serving, listener: str) -> int:
    """Bytes of accepted connections that the server has not read, and connections that wait for it."""
    end = f":{int(served.listening[listener].rpartition(':')[2]):04X}"
    sockets = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    owned = [one for one in sockets if one[1].endswith(end) and one[9] != "0"]  # those of a process
    return sum(int(one[4].partition(":")[2], 16) for one in owned)


def answers(served: Serving) -> bool:
    """Waits until each listener answers again: those that said nothing are closed after ten seconds."""
    deadline = time.monotonic() + 40
    for listener, ask in (("http", healthy), ("canal", greeted), ("grpc", refused)):
        while True:
            with contextlib.suppress(OSError):
                if ask(served):
                    break
            assert time.monotonic() < deadline, f"{listener} does not answer"
            time.sleep(0.1)
    return True


def healthy(served: Serving) -> bool:
    with encrypted(served, "http") as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        return bool(connection.recv(100).startswith(b"HTTP/1.1 200"))


def greeted(served: Serving) -> bool:
    with encrypted(served, "canal") as connection:
        return len(connection.recv(100)) > 8


def refused(served: Serving) -> bool:
    return bool(call(served, b"", token="wrong")[0] == grpc.StatusCode.UNAUTHENTICATED)


def call(served: Serving, message: bytes, *, token: str = TOKEN, **options: Any) -> tuple[Any, str]:
    """Status and text of a call with gRPC's own client."""
    settings = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    cert = served.folder.parent / "cert.pem"
    address = served.listening["grpc"]
    with (
        grpc.secure_channel(address, grpc.ssl_channel_credentials(cert.read_bytes()), settings)
        if cert.exists()
        else grpc.insecure_channel(address, settings)
    ) as channel:
        metadata = [("authorization", f"Bearer {token}"), *options.pop("headers", [])]
        try:
            channel.unary_unary(DO_ACTION)(message, metadata=metadata, timeout=30, **options)
        except grpc.RpcError as error:
            return error.code(), error.details()
    return grpc.StatusCode.OK, ""


def of_action(kind: str, body: bytes) -> bytes:
    return bytes(flight.Action(kind, body).serialize())


@PLAIN
@pytest.mark.parametrize("token", ["wrong", pytest.param(TOKEN, marks=pytest.mark.slow)])
def test_flight_takes_no_large_message_also_if_it_is_compressed(served: Serving, token: str) -> None:
    with bounded(served):
        for _ in range(2):
            code, _ = call(served, b"\0" * SENT_BYTES, token=token)
            assert code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED)
        small, large = bytes(60_000), bytes(128 * 1024**2)
        for message in (small, large):
            code, _ = call(served, message, token=token, compression=grpc.Compression.Gzip)
            assert code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED)
    assert answers(served)


@PLAIN
@pytest.mark.slow
def test_flight_takes_no_message_that_comes_slowly(served: Serving) -> None:
    """Without a token it is not waited for; with one, for ten seconds."""
    with grpc.insecure_channel(served.listening["grpc"]) as channel:
        for token, code in (("wrong", "UNAUTHENTICATED"), (TOKEN, "DEADLINE_EXCEEDED")):
            headers, nothing = (
                [("authorization", f"Bearer {token}")],
                iter(Queue[bytes]().get, b""),
            )
            stream = channel.stream_stream(DO_ACTION)(nothing, metadata=headers, timeout=30)
            with pytest.raises(grpc.RpcError) as raised:
                next(stream)
            assert raised.value.code().name == code


@PLAIN
@pytest.mark.parametrize(
    "body",
    [
        b"[" * 60_000, b'{"filter":' * 6_000, b'{"start":' + b"[" * 800 + b"]" * 800 + b"}", b"\xff\xfe",
        b"[]", b"NaN", b'{"batch": {"a": 1}}', b'{"batch": [' + b"9" * 5_000 + b"]}",
        b'{"batch": ' + b"9" * 5_000 + b"}",
    ],
    ids=range(9),
)  # fmt: skip
@pytest.mark.parametrize("kind", ["acknowledge", "destinations", "no action"])
def test_what_is_no_request_of_flight_is_refused_without_a_trace(
    served: Serving, kind: str, body: bytes
) -> None:
    code, text = call(served, of_action(kind, body))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "JSON object" in text and not any(one in text for one in ("Error", "Traceback", ".py"))


@PLAIN
def test_headers_of_flight_are_bounded(served: Serving) -> None:
    code, _ = call(served, of_action("destinations", b""), headers=[("more", "x" * 100_000)])
    assert code != grpc.StatusCode.OK
    assert answers(served)
