"""Sockets to MySQL: the only module that opens them.

`connect` gives a PyMySQL connection with the pipeline's TLS and time limits; what can go wrong is told as
ours: `ConfigError` for what the operator must mend, `TransientError` for what may pass. `Replication` is
the same connection after it has been turned into a stream of the binary log; the bytes are handed on as
they come.
"""

from __future__ import annotations

import functools
import select
import socket
import ssl
import struct
from typing import Any

import pymysql
import pymysql.cursors
from pymysql.constants import CR

from penstock.config import SourceConfig
from penstock.errors import ConfigError, PenstockError, TransientError

READ_BYTES = 512 * 1024
_RECEIVE_BUFFER = 4 * 1024**2

_COM_QUIT = 0x01
_COM_BINLOG_DUMP = 0x12
_COM_REGISTER_REPLICA = 0x15
_COM_BINLOG_DUMP_GTID = 0x1E
_DUMP_NON_BLOCK = 0x01
_THROUGH_GTID = 0x04

_GOODBYE_S = 5

_ACCESS_DENIED = {1045, 1698, 1044, 1820, 1862, 3118, 3955}
_TOO_MANY = {1040, 1203, 1226}
_GOING_DOWN = {1053, 1077, 1079, 1927, 3168, 3169}
_UNREACHABLE = {CR.CR_CONNECTION_ERROR, CR.CR_CONN_HOST_ERROR, CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST}


class SourceUnreachable(TransientError):
    """Nobody answers at the source's address."""


class SourceBehind(SourceUnreachable):
    """A replica answers, but it has yet to apply what we hold."""


def connect(config: SourceConfig, *, read_timeout_s: float | None = None, role: str = "") -> Any:
    """A PyMySQL connection (utf8mb4, autocommit). The caller closes it. `role`: what it is for; the server
    shows it in `performance_schema.session_connect_attrs`, as `program_name`."""
    greeting_s = max(1, config.connect_timeout // 1000)
    try:
        connection: Any = _Connection(
            host=config.host,
            port=config.port,
            user=config.user,
            password=config.password.encode(),
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=greeting_s,
            # PyMySQL's own limit ends when the connection is made: a peer that never greets would hold us.
            read_timeout=greeting_s,
            program_name=f"penstock {role}".strip(),
            **_tls(config),
        )
        connection._read_timeout = read_timeout_s
        return connection
    except (pymysql.Error, OSError, RuntimeError) as error:
        raise explain(error, config) from error


class _Connection(pymysql.connections.Connection):
    """Where nothing is asked of TLS it is used if the server has it, without a look at its certificate.
    PyMySQL reads the machine's authorities all the same, 20 ms of CPU for every connection: here it does
    not."""

    def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
        if sslp:
            context: ssl.SSLContext = super()._create_ssl_ctx(sslp)  # type: ignore[misc]
            return context
        return _without_authorities()


@functools.cache
def _without_authorities() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _tls(config: SourceConfig) -> dict[str, Any]:
    if config.tls == "disabled":
        return {"ssl_disabled": True}
    if config.tls == "preferred" and not (config.tls_ca or config.tls_cert):
        return {}
    for option in ("tls_ca", "tls_cert", "tls_key"):
        path = getattr(config, option)
        if path is not None and not path.is_file():
            raise ConfigError(f"source.{option} is {path}, which is not a file.", hint="Check its path.")
    try:
        context = ssl.create_default_context(cafile=str(config.tls_ca) if config.tls_ca else None)
        # The certificates that MySQL makes for itself lack what this flag (on by default from 3.13) wants.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.check_hostname = config.tls == "verify_identity"
        if config.tls not in ("verify_ca", "verify_identity"):
            context.verify_mode = ssl.CERT_NONE
        if config.tls_cert:
            context.load_cert_chain(config.tls_cert, config.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"The TLS files of the source cannot be used: {error}.",
            hint="Check source.tls_ca, source.tls_cert and source.tls_key.",
        ) from error
    return {"ssl": context}


def explain(error: BaseException, config: SourceConfig) -> PenstockError:
    """The same failure as an error of ours."""
    if isinstance(error, PenstockError):
        return error
    where = f"{config.host}:{config.port}"
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    cause = getattr(error, "original_exception", None)
    if code in _ACCESS_DENIED:
        return ConfigError(
            f"The source {where} refuses user {config.user!r}: {text}.",
            hint="Check source.user and source.password, and that the account may connect from this host.",
            code=code,
        )
    if (
        isinstance(error, ssl.SSLError)
        or isinstance(cause, ssl.SSLError)
        or code == CR.CR_SSL_CONNECTION_ERROR
    ):
        return ConfigError(
            f"TLS with the source {where} failed: {text}.",
            hint=f"source.tls is {config.tls}; check source.tls_ca, or choose `required` or `preferred`.",
            code=code,
        )
    if isinstance(cause, socket.gaierror):
        return ConfigError(
            f"The source's host name {config.host!r} cannot be resolved: {cause.strerror}.",
            hint="Check source.host.",
        )
    if code in (1227, 1142, 1143, 1370):
        return ConfigError(f"The source {where} refuses user {config.user!r}: {text}.", code=code)
    if code == 1049 or (isinstance(error, RuntimeError) and not isinstance(error, pymysql.Error)):
        return ConfigError(f"The source {where} cannot be used: {text}.", code=code)
    if code in _UNREACHABLE or isinstance(error, OSError):
        return SourceUnreachable(
            f"The source {where} cannot be reached: {text}.",
            hint="Check source.host and source.port, and that the server runs and lets this host in.",
            code=code,
        )
    return TransientError(f"The source {where} answered: {text}.", code=code)


def hang_up(connection: Any) -> None:
    """Takes leave of the server, and returns when it has closed its end (or after some seconds): who connects
    next is not one more."""
    try:
        connection._execute_command(_COM_QUIT, b"")
        connection._sock.settimeout(_GOODBYE_S)
        while connection._sock.recv(4096):
            pass
    except (pymysql.Error, OSError):
        pass  # it is gone already
    finally:
        connection._force_close()


def query(connection: Any, sql: str, arguments: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All rows. Raises PyMySQL's errors; `explain` makes ours of them."""
    with connection.cursor() as cursor:
        cursor.execute(sql, arguments or None)
        return list(cursor.fetchall())


def query_named(connection: Any, sql: str) -> list[dict[str, Any]]:
    """All rows, by column name."""
    with connection.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


class Replication:
    """A connection that streams the binary log. Owns it: `close` closes both."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._socket: Any = connection._sock
        # Enough for the source to go on sending while we write.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)

    def register(self, server_id: int, host_name: str) -> None:
        """Shows the receiver in SHOW REPLICAS."""
        name = host_name.encode()[:60]
        data = struct.pack("<IB", server_id, len(name)) + name + b"\0\0" + struct.pack("<HII", 0, 0, 0)
        self._connection._execute_command(_COM_REGISTER_REPLICA, data)
        self._connection._read_ok_packet()

    def dump(self, server_id: int, file: str, position: int, *, block: bool = True) -> None:
        """Streams from a place in a binlog file on. Without `block` the stream ends where the log does."""
        flags = 0 if block else _DUMP_NON_BLOCK
        data = struct.pack("<IHI", min(position, 0xFFFFFFFF), flags, server_id) + file.encode()
        self._connection._execute_command(_COM_BINLOG_DUMP, data)
        self._socket = self._connection._sock

    def dump_gtid(self, server_id: int, executed: bytes) -> None:
        """Streams every transaction the server has that is not in the encoded GTID set."""
        data = struct.pack("<HIIQI", _THROUGH_GTID, server_id, 0, 4, len(executed)) + executed
        self._connection._execute_command(_COM_BINLOG_DUMP_GTID, data)
        self._socket = self._connection._sock

    def fileno(self) -> int:
        return int(self._socket.fileno())

    def wait(self, timeout_s: float, *others: int) -> bool:
        """Until there is something to read; false when time is up or another descriptor has something."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        readable, _, _ = select.select([self._socket, *others], [], [], timeout_s)
        return self._socket in readable

    def read(self) -> bytes | None:
        """What has arrived, up to READ_BYTES, without waiting; None: nothing yet. `ConnectionError` at the
        end.

        Over TLS the library gives one record (16 KiB) at a time, so they are gathered.
        """
        self._socket.settimeout(0)
        parts: list[bytes] = []
        size = 0
        try:
            while size < READ_BYTES:
                part = self._socket.recv(READ_BYTES - size)
                if not part:
                    if parts:
                        break
                    raise ConnectionResetError("the server closed the connection")
                parts.append(part)
                size += len(part)
                if not isinstance(self._socket, ssl.SSLSocket):
                    break
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        self._connection._force_close()
