"""A TCP proxy on 127.0.0.1 that simulates network faults between a client and a server.

    with Proxy("127.0.0.1", server.port) as proxy:
        connect(port=proxy.port)
        proxy.stall()
        ...
        proxy.pass_on()

A command takes effect at once, for existing and for new connections:

- `pass_on()`: everything is forwarded, also what was delayed by a stall.
- `stall()`: connections stay open and new ones are accepted, but nothing is forwarded.
- `drop()`: existing connections are half-open for good: every packet that arrives is dropped, TCP keepalive
  included, and neither side is informed. New ones are not answered (their SYN is dropped) until the next
  command.
- `cut()`: connections are reset (RST); new ones are forwarded.
- `refuse()`: connections are reset; new ones are refused.
- `slow(bytes_per_second=N)`: forwards N bytes a second, over all connections and directions together.
- `stall_after(bytes=N)`: each connection, also a new one, passes N more bytes from the server to the client
  and then stalls.

A stalled connection still answers TCP keepalive, because the kernel does. A proxy that hangs behaves in the
same way. `drop` acts like a NAT that has forgotten a connection. One thread does everything. It never waits
for a peer, not even while it connects to the server, and buffers at most 64 KiB per direction.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

_BUFFER_BYTES = 64 * 1024
"""Bytes that wait in one direction of a connection. A real network holds about as many."""
_CONNECT_S = 5.0
"""How long the server may take to accept a connection. Then the client's is reset."""
_COMMAND_S = 10.0
"""How long a command may take. The proxy's thread answers within milliseconds, unless the machine hangs."""
_TICK_S = 0.02
"""How often a slowed connection is looked at, and one to a server that has not accepted it yet."""
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with timeout 0: closing sends RST."""
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27  # socket(7); Python has no names for them
_KEEP_NOTHING = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
"""A BPF program of one instruction, "return 0": the kernel drops each packet before TCP sees it."""


@dataclass(eq=False)
class _Flow:
    """One direction of a connection."""

    source: socket.socket
    target: socket.socket
    from_server: bool
    buffered: bytearray = field(default_factory=bytearray)
    ended: bool = False
    """Whether the source has closed its side. `closed` follows once `buffered` is empty."""
    closed: bool = False
    left_bytes: int | None = None
    """Bytes that may still pass, after `stall_after`. None: no limit."""


@dataclass(eq=False)
class _Link:
    client: socket.socket
    server: socket.socket | None = None
    connects_until: float = 0.0
    """Time, as of `time.monotonic`, until which connecting to the server may take."""
    flows: tuple[_Flow, ...] = ()
    """Empty until the server has accepted the connection."""
    dropped: bool = False

    @property
    def ends(self) -> list[socket.socket]:
        return [self.client] if self.server is None else [self.client, self.server]

    def drop(self) -> None:
        self.dropped = True
        for end in self.ends:
            _drop_packets(end)

    def close(self, *, reset: bool) -> None:
        for end in self.ends:
            if reset:
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            end.close()


class Proxy:
    """Listens as soon as it is constructed, and forwards while its `with` block runs. Its methods may be
    called from any thread, and return once they have taken effect."""

    def __init__(self, target_host: str, target_port: int, *, port: int = 0) -> None:
        """`port`: the port to listen on; 0 means any free port."""
        first = socket.getaddrinfo(target_host, target_port, type=socket.SOCK_STREAM)[0]
        self._family: int = first[0]
        self._target: Any = first[4]
        self._listener: socket.socket | None = _listen(port)
        self.port: int = self._listener.getsockname()[1]
        self.accepted = 0
        """Connections accepted since the start."""
        self.passed_bytes = 0
        """Bytes forwarded since the start, both directions."""
        self._links: list[_Link] = []
        self._answering = True
        self._forwarding = True
        self._rate: int | None = None
        self._budget_bytes = 0.0
        self._budget_since = 0.0
        self._left_bytes: int | None = None
        self._commands: list[tuple[Callable[[], None], threading.Event]] = []
        self._lock = threading.Lock()
        self._wake, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        self._wake.send(b"x")
        self._thread.join(_COMMAND_S)
        self._wake.close()
        self._woken.close()

    @property
    def connections(self) -> int:
        """Number of open connections, including stalled and half-open ones."""
        return len(self._links)

    def pass_on(self) -> None:
        self._do(lambda: self._set_mode(forwarding=True))

    def stall(self) -> None:
        self._do(lambda: self._set_mode(forwarding=False))

    def slow(self, *, bytes_per_second: int) -> None:
        self._do(lambda: self._set_mode(forwarding=True, rate=bytes_per_second))

    def stall_after(self, *, bytes: int) -> None:
        self._do(lambda: self._set_mode(forwarding=True, left_bytes=bytes))

    def drop(self) -> None:
        def drop() -> None:
            self._set_mode(forwarding=False)
            for link in self._links:
                link.drop()
            assert self._listener is not None
            _drop_packets(self._listener)
            self._answering = False

        self._do(drop)

    def cut(self) -> None:
        def cut() -> None:
            self._set_mode(forwarding=True)
            self._reset_all()

        self._do(cut)

    def refuse(self) -> None:
        def refuse() -> None:
            self._set_mode(forwarding=True)
            self._reset_all()
            assert self._listener is not None
            self._listener.close()
            self._listener = None

        self._do(refuse)

    def _do(self, command: Callable[[], None]) -> None:
        done = threading.Event()
        with self._lock:
            self._commands.append((command, done))
        self._wake.send(b"x")
        if not done.wait(_COMMAND_S):
            raise RuntimeError("The proxy is not running. Use it inside its `with` block.")

    # The methods below run on the proxy's own thread.

    def _set_mode(self, *, forwarding: bool, rate: int | None = None, left_bytes: int | None = None) -> None:
        self._forwarding, self._rate, self._left_bytes = forwarding, rate, left_bytes
        self._budget_bytes, self._budget_since = 0.0, time.monotonic()
        for link in self._links:
            for flow in link.flows:
                flow.left_bytes = left_bytes if flow.from_server else None
        if self._listener is None:
            self._listener = _listen(self.port)
        elif not self._answering:
            self._listener.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
        self._answering = True

    def _reset_all(self) -> None:
        for link in self._links:
            link.close(reset=True)
        self._links.clear()

    def _run(self) -> None:
        try:
            while not self._closing:
                with selectors.DefaultSelector() as selector:
                    timeout_s = self._watch(selector)
                    ready = {key.fileobj for key, _ in selector.select(timeout_s)}
                self._run_commands()
                if self._listener in ready and self._answering:
                    self._accept()
                for link in list(self._links):
                    self._forward_link(link)
        finally:
            for link in self._links:
                link.close(reset=False)
            if self._listener is not None:
                self._listener.close()

    def _watch(self, selector: selectors.BaseSelector) -> float | None:
        """Registers the sockets on which something can be done now. Returns the timeout in seconds, or None
        for no timeout."""
        selector.register(self._woken, selectors.EVENT_READ)
        if self._listener is not None and self._answering:
            selector.register(self._listener, selectors.EVENT_READ)
        timeout_s = None
        interest: dict[socket.socket, int] = {}
        forwarding = [link for link in self._links if self._is_forwarding(link)]
        for link in forwarding:
            if link.server is not None and not link.flows:
                interest[link.server] = selectors.EVENT_WRITE  # it can be written to once it is connected
                timeout_s = _TICK_S  # `connects_until` may pass
        for flow in (flow for link in forwarding for flow in link.flows):
            if flow.buffered and (flow.left_bytes is None or flow.left_bytes > 0):
                if self._allowance() > 0:
                    interest[flow.target] = interest.get(flow.target, 0) | selectors.EVENT_WRITE
                else:
                    timeout_s = _TICK_S
            if not flow.ended and len(flow.buffered) < _BUFFER_BYTES:
                interest[flow.source] = interest.get(flow.source, 0) | selectors.EVENT_READ
        for end, events in interest.items():
            selector.register(end, events)
        return timeout_s

    def _run_commands(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)
        with self._lock:
            commands, self._commands = self._commands, []
        for command, done in commands:
            command()
            done.set()

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            client, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        client.setblocking(False)
        self.accepted += 1
        self._links.append(_Link(client))

    def _is_forwarding(self, link: _Link) -> bool:
        return self._forwarding and not link.dropped

    def _forward_link(self, link: _Link) -> None:
        if not self._is_forwarding(link):
            return
        try:
            if not link.flows:
                self._connect_server(link)
            for flow in link.flows:
                self._forward(flow)
        except OSError:
            link.close(reset=True)
            self._links.remove(link)
            return
        if link.flows and all(flow.closed for flow in link.flows):
            link.close(reset=False)
            self._links.remove(link)

    def _connect_server(self, link: _Link) -> None:
        """Begins to connect, or looks how far that is. Raises `OSError` if it has failed."""
        if link.server is None:
            link.server = socket.socket(self._family, socket.SOCK_STREAM)
            link.server.setblocking(False)
            link.connects_until = time.monotonic() + _CONNECT_S
            result = link.server.connect_ex(self._target)
        else:
            result = link.server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if result not in (0, errno.EINPROGRESS):
            raise OSError(result, os.strerror(result))
        if not _is_connected(link.server):
            if time.monotonic() > link.connects_until:
                raise TimeoutError("the server does not accept the connection")
            return
        server = link.server
        for end in link.ends:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.flows = (
            _Flow(link.client, server, from_server=False),
            _Flow(server, link.client, from_server=True, left_bytes=self._left_bytes),
        )

    def _forward(self, flow: _Flow) -> None:
        with contextlib.suppress(BlockingIOError):
            while not flow.ended and (room := _BUFFER_BYTES - len(flow.buffered)) > 0:
                received = flow.source.recv(room)
                flow.ended = not received
                flow.buffered += received
        limits = [len(flow.buffered), self._allowance()]
        if flow.left_bytes is not None:
            limits.append(flow.left_bytes)
        if (size := min(limits)) > 0:
            with contextlib.suppress(BlockingIOError):
                sent = flow.target.send(flow.buffered[:size])
                del flow.buffered[:sent]
                self.passed_bytes += sent
                self._budget_bytes -= sent
                if flow.left_bytes is not None:
                    flow.left_bytes -= sent
        if flow.ended and not flow.buffered and not flow.closed:
            flow.closed = True
            with contextlib.suppress(OSError):
                flow.target.shutdown(socket.SHUT_WR)

    def _allowance(self) -> int:
        """Returns the number of bytes that may be sent now. Unused allowance adds up for at most a quarter of
        a second."""
        if self._rate is None:
            return _BUFFER_BYTES
        now = time.monotonic()
        saved = self._budget_bytes + (now - self._budget_since) * self._rate
        self._budget_bytes = min(saved, max(1.0, self._rate / 4))
        self._budget_since = now
        return int(self._budget_bytes)


def _is_connected(end: socket.socket) -> bool:
    try:
        end.getpeername()
    except OSError as error:
        if error.errno == errno.ENOTCONN:
            return False
        raise
    return True


def _drop_packets(end: socket.socket) -> None:
    """Makes the socket receive nothing more, as if the network had lost it."""
    program = struct.pack("HP", 1, ctypes.addressof(_KEEP_NOTHING))
    end.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


def _listen(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(socket.SOMAXCONN)
    listener.setblocking(False)
    return listener
