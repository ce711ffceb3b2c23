"""A client of the protocol with Google's Protobuf library, for what the Java client cannot do: many at once,
and hostile ones."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from types import TracebackType
from typing import Any

from tests.serve.entry import CanalEntry
from typing_extensions import Self


class Failed(Exception):
    """The server's answer was an error."""


class RawClient:
    def __init__(
        self,
        address: str,
        *,
        client_id: str = "1001",
        destination: str = "example",
        login: bool = True,
        tls: ssl.SSLContext | None = None,
        origin: str = "127.0.0.1",
    ) -> None:
        """`origin`: the address from which it connects."""
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=30, source_address=(origin, 0))
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self.names = {"destination": destination, "client_id": client_id}
        packet = self.receive()
        assert (packet.type, packet.version) == (1, 1)
        self.seed = CanalEntry.Handshake.FromString(packet.body).seeds
        if login:
            self.log_in("", b"")

    def log_in(self, user: str, password: bytes, **more: Any) -> None:
        self.send(2, CanalEntry.ClientAuth(username=user, password=password, **more))
        self._acknowledged()

    def subscribe(self, filter: str = "") -> None:
        self.send(4, CanalEntry.Sub(**self.names, filter=filter))
        self._acknowledged()

    def unsubscribe(self) -> None:
        self.send(5, CanalEntry.Sub(**self.names))
        self._acknowledged()

    def get(self, size: int, milliseconds: int = 2000, **more: Any) -> tuple[int, list[bytes]]:
        self.send(6, CanalEntry.Get(**self.names, fetch_size=size, timeout=milliseconds, unit=2, **more))
        return self.batch()

    def batch(self) -> tuple[int, list[bytes]]:
        packet = self.receive()
        if packet.type == 3:
            raise Failed(CanalEntry.Ack.FromString(packet.body).error_message)
        assert packet.type == 7
        found = CanalEntry.Messages.FromString(packet.body)
        return found.batch_id, list(found.messages)

    def acknowledge(self, batch_id: int) -> None:
        self.send(8, CanalEntry.BatchOf(**self.names, batch_id=batch_id))

    def roll_back(self, batch_id: int = 0) -> None:
        self.send(12, CanalEntry.BatchOf(**self.names, batch_id=batch_id))

    def send(self, kind: int, body: Any) -> None:
        packet = CanalEntry.Packet(version=1, type=kind, body=body.SerializeToString())
        self.send_bytes(packet.SerializeToString())

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(data)) + data)

    def receive(self) -> Any:
        [length] = struct.unpack(">i", self._exactly(4))
        return CanalEntry.Packet.FromString(self._exactly(length))

    def _exactly(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            part = self.socket.recv(length - len(data))
            if not part:
                raise ConnectionResetError("the server has closed the connection")
            data += part
        return bytes(data)

    def _acknowledged(self) -> None:
        packet = self.receive()
        assert packet.type == 3
        if packet.body and (error := CanalEntry.Ack.FromString(packet.body)).error_code:
            raise Failed(error.error_message)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
