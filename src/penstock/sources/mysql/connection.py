"""Sockets to MySQL: the only module that opens them.

`connect` makes a PyMySQL connection with the pipeline's TLS and time limits (`timeouts.py`). Errors become
Penstock's: `ConfigError` for problems that the operator must fix, `TransientError` for problems that may go
away. `Replication` turns a connection into a stream of the binary log, and passes its bytes on as they
arrive.

**Who learns the password.** The server at the address chooses the plugin that proves the password. So an
impostor may ask for it in clear text. There are three cases:

- `mysql_clear_password` and `dialog` (PAM, LDAP) send it in clear text. They are answered only if the
  server's certificate was verified, or if `source.allow_cleartext_password` allows it. `mysql_old_password`
  protects it so badly that it is never answered.
- `caching_sha2_password` and `sha256_password` send it encrypted if the server's cache does not have the
  account: inside TLS, or with a public key that the server sends. An eavesdropper cannot read it, but without
  a verified certificate an impostor can. They are answered nevertheless: they are the default of MySQL 8,
  whose own certificates cannot be verified, and MySQL's clients answer them, too. `doctor` warns.
- `mysql_native_password` and `ed25519` send a proof that is valid for one login.
"""

from __future__ import annotations

import functools
import io
import math
import select
import socket
import ssl
import struct
import time
from typing import Any

import pymysql
import pymysql.cursors
from pymysql.constants import CR
from pymysql.protocol import FieldDescriptorPacket, MysqlPacket

from penstock.errors import ConfigError, PenstockError
from penstock.sources.mysql.answers import ERROR_TEXT_MAX, GRACE_S, malformed
from penstock.sources.mysql.faults import TOO_MANY, TlsRefused, code_of, explain
from penstock.sources.mysql.options import MySqlOptions
from penstock.sources.mysql.timeouts import TimedSocket, WaitLimits, resolve, send_all, watch_peer

READ_BYTES = 512 * 1024
"""Bytes of the stream that are read at once: few calls while there is a backlog, and little memory."""
_RECEIVE_BUFFER_BYTES = 4 * 1024**2
"""Bytes that the kernel may receive before they are read. So the server goes on sending while an fsync takes
tens of milliseconds."""

# Commands of the client protocol, and flags of those that ask for the log.
_COM_QUIT = 0x01
_COM_BINLOG_DUMP = 0x12
_COM_REGISTER_REPLICA = 0x15
_COM_BINLOG_DUMP_GTID = 0x1E
_DUMP_NON_BLOCK = 0x01
_THROUGH_GTID = 0x04

_WITHOUT_LIMITS = (
    "SET SESSION sql_select_limit = 18446744073709551615, sql_big_selects = 1"
    " /*!50708 , max_execution_time = 0 */ /*M! , max_statement_time = 0 */"
)
"""A server, or its `init_connect`, may limit every session: rows of a result, sizes of joins, the time. The
first would hide tables, columns and rows without an error. The comments are for the server: each executes
its own."""

_GOODBYE_S = 5
"""Seconds for ending a connection in order. The server notices a lost one by itself."""

CLEARTEXT_PLUGINS = ("mysql_clear_password", "dialog")
_NETWORK_STATES = ("sending to client", "writing to net", "reading from net", "receiving from client")
"""States of a session that waits for the network, as SHOW PROCESSLIST prints them in all releases."""


def connect(
    config: MySqlOptions, *, read_timeout_s: float | None = None, role: str = "", slow_rows: bool = False
) -> Any:
    """A PyMySQL connection (utf8mb4, autocommit, no limits), which the caller closes. `role`: its purpose,
    which the server shows as `program_name` in `performance_schema.session_connect_attrs`.
    `read_timeout_s`: a silence of this length ends the connection, whatever the server does. None: see
    `source.read_timeout`. `slow_rows`: the server may take any time to find the rows of an answer, one after
    the other."""
    silence_s = config.read_timeout / 1000 if read_timeout_s is None else read_timeout_s
    limits = WaitLimits(config.connect_timeout / 1000, silence_s)
    try:
        connection: Any = _Connection(
            limits,
            may_reveal=config.allow_cleartext_password,
            host=config.host,
            port=config.port,
            user=config.user,
            password=config.current_password(),
            charset="utf8mb4",
            autocommit=True,
            program_name=f"penstock {role}".strip(),
            defer_connect=True,
            **_tls(config),
        )
        connection.connect(_reach(config, limits, silence_s))
        query(connection, _WITHOUT_LIMITS)
    except Exception as error:  # PyMySQL does not check that packets are what it expects
        raise explain(error, config) from error
    connection.password = b""
    limits.connected()
    limits.answers.grace_s = math.inf if slow_rows else GRACE_S + 2 * config.read_timeout / 1000
    if read_timeout_s is None:
        limits.is_at_work = functools.partial(is_at_work, config, connection.thread_id())
    return connection


def _reach(config: MySqlOptions, limits: WaitLimits, silence_s: float) -> socket.socket:
    """A socket to the first of the host's addresses that answers. Each address gets its share of the time
    that is left."""
    failure: OSError | None = None
    addresses = resolve(config.host, config.port, limits)
    for left, (family, kind, protocol, _, address) in zip(
        range(len(addresses), 0, -1), addresses, strict=True
    ):
        one = socket.socket(family, kind, protocol)
        limits.use(one)
        try:
            watch_peer(one, silence_s)
            one.settimeout(limits.seconds() / left)
            one.connect(address)
            limits.check()
            return one
        except OSError as error:
            one.close()
            limits.check()
            failure = limits.late() if isinstance(error, TimeoutError) else error
    assert failure is not None
    raise failure


class _Connection(pymysql.connections.Connection):
    """A connection whose waits and answers have limits (`timeouts.py`). PyMySQL's own are switched off: they
    do not cover TLS and writes, and they end slow queries."""

    _sock: Any

    def __init__(self, limits: WaitLimits, *, may_reveal: bool, **options: Any) -> None:
        self._limits = limits
        self._may_reveal = may_reveal
        self._reader: io.BufferedReader | None = None
        super().__init__(**options)

    @property
    def _rfile(self) -> io.BufferedReader | None:
        return self._reader

    @_rfile.setter
    def _rfile(self, file: Any) -> None:
        """The file that PyMySQL reads from. PyMySQL sets it for the plain socket, and again for TLS."""
        if file is not None:
            self._limits.use(self._sock)
            file = io.BufferedReader(TimedSocket(self._sock, self._limits), 64 * 1024)
        self._reader = file

    def _get_server_information(self) -> None:
        self._limits.phase = "greet"
        super()._get_server_information()  # type: ignore[misc]

    def _request_authentication(self) -> None:
        self._limits.phase = "finish TLS and the login"
        try:
            super()._request_authentication()  # type: ignore[misc]
        except TimeoutError as error:  # of the TLS handshake
            raise self._limits.late() from error
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError):
            raise  # the connection was cut, and neither side has refused the other's certificate
        except ssl.SSLError as error:
            raise TlsRefused(str(error)) from error

    def _execute_command(self, command: int, sql: str | bytes) -> None:
        self._limits.answers.asked()
        super()._execute_command(command, sql)  # type: ignore[misc]

    def query(self, sql: str | bytes, unbuffered: bool = False) -> Any:
        """Raises `OperationalError` also if the answer is not what the statement asks for."""
        try:
            found = super().query(sql, unbuffered)
            if _asks_for_rows(sql) and not self._result.field_count:  # type: ignore[attr-defined]
                raise malformed("its answer has no rows where there must be some or none")
            return found
        except (PenstockError, OSError):
            raise
        except Exception as error:
            code = code_of(error)
            if not code or code == CR.CR_MALFORMED_PACKET:
                self._force_close()  # type: ignore[attr-defined]
            if code or isinstance(error, pymysql.InterfaceError):
                raise
            raise malformed(f"its answer cannot be read ({type(error).__name__})") from error

    def _read_packet(self, packet_type: Any = MysqlPacket) -> Any:
        try:
            self._limits.answers.packet(is_definition=packet_type is FieldDescriptorPacket)
            return super()._read_packet(packet_type)  # type: ignore[no-untyped-call]
        except pymysql.MySQLError as error:
            if code_of(error) == CR.CR_MALFORMED_PACKET:
                self._force_close()  # type: ignore[attr-defined]
            elif len(str(error.args[-1])) > ERROR_TEXT_MAX:
                raise type(error)(error.args[0], str(error.args[-1])[:ERROR_TEXT_MAX]) from None
            raise

    def _read_bytes(self, num_bytes: int) -> bytes:
        assert self._reader is not None
        self._limits.answers.expect(num_bytes)
        try:
            data = self._reader.read(num_bytes)
        except OSError as error:
            self._force_close()  # type: ignore[attr-defined]
            raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, f"{error}") from error
        self._limits.answers.arrived(len(data))
        if len(data) < num_bytes:
            self._force_close()  # type: ignore[attr-defined]
            raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, "it closed the connection")
        return data

    def _write_bytes(self, data: bytes) -> None:
        try:
            send_all(self._sock, self._limits, data)
        except OSError as error:
            self._force_close()  # type: ignore[attr-defined]
            raise pymysql.err.OperationalError(CR.CR_SERVER_GONE_ERROR, f"{error}") from error

    def close(self) -> None:
        self._limits.hurry(_GOODBYE_S)
        super().close()

    def _process_auth(self, plugin_name: bytes, auth_packet: Any, handler: Any = None) -> Any:
        name = plugin_name.decode("ascii", "replace")
        if name == "mysql_old_password":
            raise ConfigError(
                f"The server at {self.host}:{self.port} asks for the password by {name}, which protects it "
                "from nobody.",
                hint="Give the account another authentication plugin, for example caching_sha2_password.",
            )
        if name in CLEARTEXT_PLUGINS and not (self._may_reveal or is_verified(self)):
            raise ConfigError(
                f"The server at {self.host}:{self.port} asks for the password in clear text ({name}), and it "
                "has not proven who it is.",
                hint="Set source.tls to verify_ca or verify_identity, with source.tls_ca. Or set "
                "source.allow_cleartext_password: true, if whoever answers there may know the password.",
            )
        return super()._process_auth(plugin_name, auth_packet, handler)  # type: ignore[misc]

    def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
        """Without special options in `source`, TLS is used if the server offers it, and certificates are not
        checked. PyMySQL would still read the machine's certificate authorities, which takes 20 ms of CPU per
        connection. This method avoids that."""
        if sslp:
            context: ssl.SSLContext = super()._create_ssl_ctx(sslp)  # type: ignore[misc]
            return context
        return _without_authorities()


def _asks_for_rows(sql: str | bytes) -> bool:
    words = sql[:40] if isinstance(sql, str) else sql[:40].decode("latin1")
    return words.lstrip(" (").upper().startswith(("SELECT ", "SHOW ", "EXPLAIN ", "XA RECOVER"))


def address(connection: Any) -> str:
    """The server of a connection, for messages."""
    return f"{connection.host}:{connection.port}"


def is_encrypted(connection: Any) -> bool:
    return isinstance(connection._sock, ssl.SSLSocket)


def is_verified(connection: Any) -> bool:
    """Whether the server has shown a certificate that was verified."""
    return is_encrypted(connection) and bool(connection._sock.context.verify_mode == ssl.CERT_REQUIRED)


def is_at_work(config: MySqlOptions, thread: int) -> bool:
    """Whether the server still executes the statement of its connection `thread`. A second connection asks. A
    session that waits for the network does not execute anything: its rows would have arrived. True also if
    the server refuses the second connection because it has too many connections already."""
    try:
        other = connect(config, read_timeout_s=config.connect_timeout / 1000, role="look")
        try:
            rows = query(other, "SHOW PROCESSLIST")
        finally:
            other._force_close()
    except (PenstockError, pymysql.Error, OSError) as error:
        return explain(error, config).details.get("code") in TOO_MANY
    for row in rows:
        if int(row[0]) == thread:
            return row[4] not in ("Sleep", "Killed") and str(row[6] or "").lower() not in _NETWORK_STATES
    return False


@functools.cache
def _without_authorities() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _tls(config: MySqlOptions) -> dict[str, Any]:
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
        # This flag is on by default from Python 3.13. The certificates that MySQL makes do not satisfy it.
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


def hang_up(connection: Any) -> None:
    """Says goodbye to the server and waits some seconds for it to close the connection. So the next
    connection does not count beside this one."""
    try:
        connection._limits.hurry(_GOODBYE_S)
        connection._execute_command(_COM_QUIT, b"")
        until = time.monotonic() + _GOODBYE_S
        while connection._rfile.read1(4096) and time.monotonic() < until:
            pass
    except (pymysql.Error, OSError):
        pass  # the connection is closed already
    finally:
        connection._force_close()


def query(connection: Any, sql: str, arguments: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All rows of a query. Raises PyMySQL's errors, which `explain` turns into Penstock's."""
    with connection.cursor() as cursor:
        cursor.execute(sql, arguments or None)
        return list(cursor.fetchall())


def query_named(connection: Any, sql: str) -> list[dict[str, Any]]:
    """All rows of a query, by column name."""
    with connection.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


class Replication:
    """Streams the binary log over a connection. It owns the connection: `close` closes both."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._socket: Any = connection._sock
        # Enough for the source to go on sending while we write.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)

    def register(self, server_id: int, host_name: str) -> None:
        """Shows the receiver in SHOW REPLICAS."""
        name = host_name.encode()[:60]
        data = struct.pack("<IB", server_id, len(name)) + name + b"\0\0" + struct.pack("<HII", 0, 0, 0)
        self._connection._execute_command(_COM_REGISTER_REPLICA, data)
        self._connection._read_ok_packet()

    def dump(self, server_id: int, file: str, position: int, *, block: bool = True) -> None:
        """Starts to stream from a position in a binlog file. Without `block`, the stream ends at the end of
        the log."""
        flags = 0 if block else _DUMP_NON_BLOCK
        data = struct.pack("<IHI", min(position, 0xFFFFFFFF), flags, server_id) + file.encode()
        self._connection._execute_command(_COM_BINLOG_DUMP, data)
        self._socket = self._connection._sock

    def dump_gtid(self, server_id: int, executed: bytes) -> None:
        """Starts to stream all transactions that are not in the encoded GTID set."""
        data = struct.pack("<HIIQI", _THROUGH_GTID, server_id, 0, 4, len(executed)) + executed
        self._connection._execute_command(_COM_BINLOG_DUMP_GTID, data)
        self._socket = self._connection._sock

    def fileno(self) -> int:
        return int(self._socket.fileno())

    def wait(self, timeout_s: float, *others: int) -> bool:
        """Waits until there is something to read. False if the time is up, or if the other descriptor is
        readable."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        readable, _, _ = select.select([self._socket, *others], [], [], timeout_s)
        return self._socket in readable

    def read(self) -> bytes | None:
        """The bytes that have arrived, at most `READ_BYTES`, without waiting. None: nothing yet. Raises
        `ConnectionError` at the end of the stream.

        Over TLS, the library returns one record (16 KiB) at a time, so several are collected.
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
