"""Its oracle is a server of our own that answers each line with the same line."""

from __future__ import annotations

import contextlib
import errno
import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from penstock.testing.proxy import Proxy


class Echo(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        for line in self.rfile:
            self.wfile.write(line)


@pytest.fixture(scope="module")
def echo_port() -> Iterator[int]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(echo_port: int) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", echo_port) as proxy:
        yield proxy


def reach(proxy: Proxy, timeout_s: float = 20) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", proxy.port), timeout_s)
    connection.settimeout(timeout_s)
    return connection


def says(connection: socket.socket, text: bytes) -> bytes:
    connection.sendall(text)
    return hears(connection, len(text))


def hears(connection: socket.socket, size: int) -> bytes:
    heard = b""
    while len(heard) < size and (part := connection.recv(size - len(heard))):
        heard += part
    return heard


def is_silent(connection: socket.socket) -> bool:
    connection.settimeout(0.2)
    try:
        return not connection.recv(1) and False
    except TimeoutError:
        return True
    finally:
        connection.settimeout(20)


def test_bytes_pass_in_both_directions_and_so_does_the_end(proxy: Proxy) -> None:
    big = b"x" * 1_000_000 + b"\n"
    with reach(proxy) as connection:
        sender = threading.Thread(target=connection.sendall, args=(big,))
        sender.start()
        assert hears(connection, len(big)) == big
        sender.join()
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
    assert proxy.passed_bytes == 2 * len(big) and proxy.accepted == 1


def test_what_a_stall_held_back_flows_on(proxy: Proxy) -> None:
    with reach(proxy) as old:
        assert says(old, b"a\n") == b"a\n"
        proxy.stall()
        with reach(proxy) as new:
            old.sendall(b"b\n")
            new.sendall(b"c\n")
            assert is_silent(old) and is_silent(new)
            proxy.pass_on()
            assert hears(old, 2) == b"b\n" and hears(new, 2) == b"c\n"


def test_a_dropped_connection_stays_half_open_and_new_ones_are_not_answered(proxy: Proxy) -> None:
    with reach(proxy) as old:
        assert says(old, b"a\n") == b"a\n"
        proxy.drop()
        old.sendall(b"b\n")
        assert is_silent(old)
        with pytest.raises(TimeoutError):
            reach(proxy, 0.3)
        proxy.pass_on()
        with reach(proxy) as new:
            assert says(new, b"c\n") == b"c\n"
        assert is_silent(old)


def test_a_dropped_connection_answers_no_keepalive_but_a_stalled_one_does(proxy: Proxy) -> None:
    with reach(proxy) as stalled, reach(proxy) as dropped:
        for connection in (stalled, dropped):
            assert says(connection, b"a\n") == b"a\n"
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in (("TCP_KEEPIDLE", 1), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 2)):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        proxy.stall()
        stalled.settimeout(5)
        with pytest.raises(TimeoutError) as waited:
            stalled.recv(1)
        assert waited.value.errno is None, "our own timeout"
        proxy.drop()
        with pytest.raises(TimeoutError) as lost:
            dropped.recv(1)
        assert lost.value.errno == errno.ETIMEDOUT


def test_a_server_that_does_not_answer_delays_nobody_else() -> None:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        proxy = stack.enter_context(Proxy("127.0.0.1", listener.getsockname()[1]))
        one = stack.enter_context(reach(proxy))
        server = stack.enter_context(listener.accept()[0])
        fill(listener, stack)
        other = stack.enter_context(reach(proxy))
        other.sendall(b"a")
        began = time.monotonic()
        one.sendall(b"b")
        assert hears(server, 1) == b"b"
        proxy.stall()
        proxy.pass_on()
        assert time.monotonic() - began < 2
        with pytest.raises(ConnectionResetError):
            other.recv(1)


def fill(listener: socket.socket, stack: contextlib.ExitStack) -> None:
    """Connects until the listener's queue is full. Then the kernel drops the SYN of new connections."""
    for _ in range(64):
        filler = stack.enter_context(socket.socket())
        filler.settimeout(0.1)
        try:
            filler.connect(listener.getsockname())
        except TimeoutError:
            return
    raise AssertionError("the queue is never full")


def test_a_cut_resets_what_there_is_and_lets_new_connections_in(proxy: Proxy) -> None:
    with reach(proxy) as old:
        assert says(old, b"a\n") == b"a\n"
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            old.recv(1)
        with reach(proxy) as new:
            assert says(new, b"b\n") == b"b\n"


def test_refused_connections_are_let_in_again_at_the_same_port(proxy: Proxy) -> None:
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError) as caught:
        reach(proxy)
    assert caught.value.errno == errno.ECONNREFUSED
    proxy.pass_on()
    with reach(proxy) as connection:
        assert says(connection, b"a\n") == b"a\n"


def test_a_slow_network_passes_no_more_than_its_rate(proxy: Proxy) -> None:
    proxy.slow(bytes_per_second=20_000)
    began = time.monotonic()
    with reach(proxy) as connection:
        assert says(connection, b"x" * 4_999 + b"\n")
    assert time.monotonic() - began >= 2 * 5_000 / 20_000 - 0.05


def test_each_connection_stalls_after_so_many_bytes_of_the_server(proxy: Proxy) -> None:
    with reach(proxy) as old:
        assert says(old, b"a\n") == b"a\n"
        proxy.stall_after(bytes=3)
        with reach(proxy) as new:
            for connection in (old, new):
                connection.sendall(b"12345\n")
                assert hears(connection, 3) == b"123" and is_silent(connection)
            proxy.pass_on()
            assert hears(old, 3) == hears(new, 3) == b"45\n"


def test_a_server_that_is_gone_resets_the_client() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with Proxy("127.0.0.1", port) as proxy, pytest.raises(ConnectionResetError), reach(proxy) as connection:
        connection.recv(1)
