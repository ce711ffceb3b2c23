"""To whom the password is told. The server is one of our own that asks for it in the way of a plugin."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.errors import ConfigError, PenstockError
from penstock.sources.mysql.connection import connect
from penstock.sources.mysql.options import MySqlOptions

PASSWORD = "hunter2-hunter2"
PROTOCOL_41, SECURE, PLUGINS = 1 << 9, 1 << 15, 1 << 19


class Impostor:
    """Greets as a server without TLS does, asks for the password by a plugin, and keeps what it is told."""

    def __init__(self, plugin: bytes, data: bytes = b"") -> None:
        self._plugin = plugin
        self._data = data
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.heard = b""
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Impostor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self._thread.join(10)

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(5)
        flags = PROTOCOL_41 | SECURE | PLUGINS
        greeting = b"\x0a8.0.15\0" + struct.pack("<I", 7) + b"12345678\0"
        greeting += struct.pack("<HBHHB", flags & 0xFFFF, 45, 2, flags >> 16, 21) + bytes(10)
        greeting += b"123456789012\0mysql_native_password\0"
        with connection:
            self._say(connection, 0, greeting)
            try:
                self.heard += connection.recv(4096)
                self._say(connection, 2, b"\xfe" + self._plugin + b"\0" + self._data)
                self.heard += connection.recv(4096)
            except OSError:
                return

    @staticmethod
    def _say(connection: socket.socket, number: int, data: bytes) -> None:
        connection.sendall(struct.pack("<I", len(data))[:3] + bytes([number]) + data)


def source(port: int, **options: Any) -> MySqlOptions:
    told = {"port": port, "user": "u", "password": PASSWORD, "connect_timeout": "3s"}
    return MySqlOptions.model_validate(told | options)


@pytest.fixture(
    params=[(b"mysql_clear_password", b""), (b"dialog", b"\x04Password: ")], ids=["clear", "dialog"]
)
def impostor(request: pytest.FixtureRequest) -> Iterator[Impostor]:
    with Impostor(*request.param) as impostor:
        yield impostor


def test_the_password_is_not_told_to_a_server_that_has_not_proven_itself(impostor: Impostor) -> None:
    with pytest.raises(ConfigError, match="asks for the password in clear text") as caught:
        connect(source(impostor.port))
    assert "verify_ca" in caught.value.hint and "source.allow_cleartext_password" in caught.value.hint
    impostor.__exit__()
    assert PASSWORD.encode() not in impostor.heard


def test_it_is_told_if_the_operator_says_so(impostor: Impostor) -> None:
    with pytest.raises(PenstockError):  # it never lets us in
        connect(source(impostor.port, allow_cleartext_password=True))
    impostor.__exit__()
    assert PASSWORD.encode() in impostor.heard


def test_the_old_way_of_hiding_it_is_never_used() -> None:
    with (
        Impostor(b"mysql_old_password", b"12345678\0") as impostor,
        pytest.raises(ConfigError, match="protects it from nobody"),
    ):
        connect(source(impostor.port, allow_cleartext_password=True))


def test_a_connection_does_not_keep_the_password(mysql_server: Any) -> None:
    told = {"port": mysql_server.port, "user": mysql_server.user, "password": mysql_server.password}
    with connect(MySqlOptions.model_validate(told)) as connection:
        assert connection.password == b""
