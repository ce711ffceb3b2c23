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
import select
import socket
import ssl
import struct
from typing import Any

import pymysql
import pymysql.cursors
from pymysql.constants import CR

from penstock.errors import ConfigError, PenstockError, SourceUnreachable, TransientError
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

_ACCESS_DENIED = {1045, 1698, 1044, 1820, 1862, 3118, 3955}
_NO_PRIVILEGE = {1227, 1142, 1143, 1370}
_TOO_MANY = {1040, 1203, 1226}
_GOING_DOWN = {1053, 1077, 1079, 1927, 3168, 3169}
_HOST_BLOCKED, _HOST_NOT_ALLOWED, _NEEDS_TLS = 1129, 1130, 3159
_UNREACHABLE = {CR.CR_CONNECTION_ERROR, CR.CR_CONN_HOST_ERROR, CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST}

CLEARTEXT_PLUGINS = ("mysql_clear_password", "dialog")
_NETWORK_STATES = ("sending to client", "writing to net", "reading from net", "receiving from client")
"""States of a session that waits for the network, as SHOW PROCESSLIST prints them in all releases."""


class _TlsRefused(OSError):
    """One side refuses the other's certificate, protocol or ciphers. TLS errors on an established connection
    mean instead that it is lost."""


def connect(config: MySqlOptions, *, read_timeout_s: float | None = None, role: str = "") -> Any:
    """A PyMySQL connection (utf8mb4, autocommit, no limits), which the caller closes. `role`: its purpose,
    which the server shows as `program_name` in `performance_schema.session_connect_attrs`.
    `read_timeout_s`: a silence of this length ends the connection, whatever the server does. None: see
    `source.read_timeout`."""
    silence_s = config.read_timeout / 1000 if read_timeout_s is None else read_timeout_s
    limits = WaitLimits(config.connect_timeout / 1000, silence_s)
    try:
        connection: Any = _Connection(
            limits,
            may_reveal=config.allow_cleartext_password,
            host=config.host,
            port=config.port,
            user=config.user,
            password=config.password.reveal().encode(),
            charset="utf8mb4",
            autocommit=True,
            program_name=f"penstock {role}".strip(),
            defer_connect=True,
            **_tls(config),
        )
        connection.connect(_reach(config, limits, silence_s))
        query(connection, _WITHOUT_LIMITS)
    except (pymysql.Error, OSError, RuntimeError) as error:
        raise explain(error, config) from error
    except (IndexError, ValueError, struct.error, UnboundLocalError) as error:
        # PyMySQL does not check that packets are what it expects.
        raise SourceUnreachable(
            f"What answers at {config.host}:{config.port} does not speak MySQL's protocol, or was cut off.",
            hint="Check source.host and source.port, and firewalls and proxies on the way.",
        ) from error
    connection.password = b""
    limits.connected()
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
    """A connection whose waits `WaitLimits` limits. PyMySQL's own limits are switched off: they do not cover
    TLS and writes, and they end slow queries."""

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
            raise _TlsRefused(str(error)) from error

    def _read_bytes(self, num_bytes: int) -> bytes:
        assert self._reader is not None
        try:
            data = self._reader.read(num_bytes)
        except OSError as error:
            self._force_close()  # type: ignore[attr-defined]
            raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, f"{error}") from error
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
        return explain(error, config).details.get("code") in _TOO_MANY
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


def code_of(error: BaseException) -> int:
    """The code of a server's or client's error; 0 if it has none."""
    if isinstance(error, PenstockError):
        return int(error.details.get("code") or 0)
    known = isinstance(error, pymysql.Error) and error.args and isinstance(error.args[0], int)
    return int(error.args[0]) if known else 0


def is_refusal(error: BaseException) -> bool:
    """Whether the server has refused a statement. Other errors, such as a lost connection or a shutdown, say
    nothing about the statement."""
    code = code_of(error)
    return (1000 <= code < 2000 or code >= 3000) and code not in _GOING_DOWN | _TOO_MANY


def is_denied(error: BaseException) -> bool:
    """Whether the server has refused because the account lacks a privilege."""
    return code_of(error) in _NO_PRIVILEGE | {1044, 1045}


def explain(error: BaseException, config: MySqlOptions) -> PenstockError:
    """Turns PyMySQL's errors and socket errors into Penstock's."""
    if isinstance(error, PenstockError):
        return error
    where = f"{config.host}:{config.port}"
    code = code_of(error)
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    cause = error if isinstance(error, OSError) else getattr(error, "original_exception", error.__cause__)
    if code in _UNREACHABLE or isinstance(error, OSError):
        return _unreachable(cause, text, config, code)
    if isinstance(error, pymysql.InterfaceError) and not code:
        return _unreachable(None, "the connection is closed", config, code)
    if code in (CR.CR_SSL_CONNECTION_ERROR, _NEEDS_TLS):
        return _tls_failed(text, config, code)
    if code in _ACCESS_DENIED:
        return ConfigError(
            f"The source {where} refuses user {config.user!r}: {text}.",
            hint="Check source.user and source.password, and that the account may connect from this host.",
            code=code,
        )
    if code == _HOST_NOT_ALLOWED:
        return ConfigError(
            f"The source {where} lets no account in from this host: {text}.",
            hint=f"Create the account {config.user!r} for this host, for example as '{config.user}'@'%'.",
            code=code,
        )
    if code == _HOST_BLOCKED:
        return ConfigError(
            f"The source {where} has blocked this host after many broken connections: {text}.",
            hint="TRUNCATE TABLE performance_schema.host_cache; or FLUSH HOSTS; at the source.",
            code=code,
        )
    if code in _TOO_MANY:
        return TransientError(
            f"The source {where} has no connection to spare: {text}.",
            hint="Raise max_connections (or the account's limit), or lower snapshot.parallel.",
            code=code,
        )
    if code in _NO_PRIVILEGE:
        return ConfigError(f"The source {where} refuses user {config.user!r}: {text}.", code=code)
    if code in (1049, CR.CR_AUTH_PLUGIN_CANNOT_LOAD) or (
        isinstance(error, RuntimeError) and not isinstance(error, pymysql.Error)
    ):
        return ConfigError(f"The source {where} cannot be used: {text}.", code=code)
    return TransientError(f"The source {where} answered: {text}.", code=code)


def _tls_failed(text: str, config: MySqlOptions, code: int) -> ConfigError:
    return ConfigError(
        f"TLS with the source {config.host}:{config.port} failed: {text}.",
        hint=f"source.tls is {config.tls}; check source.tls_ca, or choose `required` or `preferred`.",
        code=code,
    )


def _unreachable(cause: BaseException | None, text: str, config: MySqlOptions, code: int) -> PenstockError:
    """The error for a server that was not reached, with what answered at its address."""
    where = f"{config.host}:{config.port}"
    hint = "Check source.host and source.port, and that the server runs and lets this host in."
    if isinstance(cause, _TlsRefused):
        return _tls_failed(str(cause), config, code)
    if isinstance(cause, socket.gaierror):
        message = f"The source's host name {config.host!r} cannot be resolved: {cause.strerror}."
        hint = "Check source.host, and the name servers of this machine."
    elif isinstance(cause, ConnectionRefusedError):
        message = f"The source {where} cannot be reached: it refuses connections, so nothing listens there."
    elif isinstance(cause, TimeoutError):
        message = f"The source {where} cannot be reached: it does not answer ({cause})."
        hint = (
            "Check source.host and source.port, and firewalls and proxies in between. The limits are "
            f"source.connect_timeout ({config.connect_timeout} ms) and source.read_timeout "
            f"({config.read_timeout} ms)."
        )
    else:
        message = f"The source {where} cannot be reached: {text}."
    return SourceUnreachable(message, hint=hint, code=code)


def hang_up(connection: Any) -> None:
    """Says goodbye to the server and waits some seconds for it to close the connection. So the next
    connection does not count beside this one."""
    try:
        connection._limits.hurry(_GOODBYE_S)
        connection._execute_command(_COM_QUIT, b"")
        while connection._rfile.read1(4096):
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
