"""Turns PyMySQL's errors and socket errors into Penstock's.

`ConfigError` for problems that the operator must fix, `TransientError` for problems that may go away."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pymysql
from pymysql.constants import CR

from penstock.errors import ConfigError, LoginRefused, PenstockError, SourceUnreachable, TransientError
from penstock.sources.mysql.answers import ERROR_TEXT_MAX, malformed
from penstock.sources.mysql.options import MySqlOptions

_LOGIN_REFUSED = {1045, 1129, 1130, 1698, 1820, 1862, 3118, 3955, 4151}
"""Wrong password; host blocked, or not allowed; wrong plugin; password to be changed, or expired; account
locked, locked for a time, locked at MariaDB."""
_NO_PRIVILEGE = {1227, 1142, 1143, 1370}
_LOGIN_HINT = "Check source.user and source.password, and that the account may connect from this host."
_LOGIN_HINTS = {
    1129: "TRUNCATE TABLE performance_schema.host_cache; or FLUSH HOSTS; at the source.",
    1130: "Create the account for this host, for example as 'user'@'%'.",
    1820: "Give the account a new password, and give it to Penstock.",
    1862: "Give the account a new password, and give it to Penstock.",
    3118: "ALTER USER … ACCOUNT UNLOCK; at the source.",
    4151: "ALTER USER … ACCOUNT UNLOCK; at the source.",
}
TOO_MANY = {1040, 1203, 1226}
_GOING_DOWN = {1053, 1077, 1079, 1927, 3168, 3169}
_NEEDS_TLS = 3159
_UNREACHABLE = {CR.CR_CONNECTION_ERROR, CR.CR_CONN_HOST_ERROR, CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST}


NOT_AN_ANSWER = (
    ValueError, TypeError, LookupError, AttributeError, AssertionError, ArithmeticError, NameError,
    struct.error,
)  # fmt: skip
"""What is raised when an answer is read that has other columns, rows or values than any server gives."""


@contextmanager
def fitting() -> Iterator[None]:
    """For blocks that ask the server and read its answers. An answer that does not fit the question becomes
    an error of PyMySQL, like a lost connection."""
    try:
        yield
    except NOT_AN_ANSWER as error:
        # The error's own text may contain what the server sent.
        raise malformed(f"its answer does not fit what was asked ({type(error).__name__})") from error


@contextmanager
def answers_of(config: MySqlOptions) -> Iterator[None]:
    """Explains the errors of a block that asks the server and reads its answers."""
    try:
        with fitting():
            yield
    except (pymysql.Error, OSError) as error:
        raise explain(error, config) from error


class TlsRefused(OSError):
    """One side refuses the other's certificate, protocol or ciphers. TLS errors on an established connection
    mean instead that it is lost."""


def code_of(error: BaseException) -> int:
    """The code of a server's or client's error; 0 if it has none."""
    if isinstance(error, PenstockError):
        return int(error.details.get("code") or 0)
    known = isinstance(error, pymysql.Error) and error.args and isinstance(error.args[0], int)
    return int(error.args[0]) if known else 0


def is_refusal(error: BaseException) -> bool:
    """Whether the server or its storage engine (codes below 1000) has refused a statement. Other errors, such
    as a lost connection or a shutdown, say nothing about the statement."""
    code = code_of(error)
    return (0 < code < 2000 or code >= 3000) and code not in _GOING_DOWN | TOO_MANY


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
    if code == CR.CR_MALFORMED_PACKET or not isinstance(error, (pymysql.Error, OSError, RuntimeError)):
        what = text if code else f"what it sends cannot be read ({type(error).__name__})"
        return _no_server(what, config)
    if code in _UNREACHABLE or isinstance(error, OSError):
        return _unreachable(cause, text, config, code)
    if isinstance(error, pymysql.InterfaceError) and not code:
        return _unreachable(None, "the connection is closed", config, code)
    if not code and isinstance(error, pymysql.Error):
        return _no_server(str(error.args[0])[:ERROR_TEXT_MAX] if error.args else "", config)
    if code in (CR.CR_SSL_CONNECTION_ERROR, _NEEDS_TLS):
        return _tls_failed(text, config, code)
    if code in _LOGIN_REFUSED:
        return LoginRefused(
            f"The source {where} refuses user {config.user!r}: {text}.",
            hint=_LOGIN_HINTS.get(code, _LOGIN_HINT),
            code=code,
        )
    if code in TOO_MANY:
        return TransientError(
            f"The source {where} has no connection to spare: {text}.",
            hint="Raise max_connections (or the account's limit), or lower snapshot.parallel.",
            code=code,
        )
    if code in _NO_PRIVILEGE | {1044}:
        return ConfigError(f"The source {where} refuses user {config.user!r}: {text}.", code=code)
    if code in (1049, CR.CR_AUTH_PLUGIN_CANNOT_LOAD) or (
        isinstance(error, RuntimeError) and not isinstance(error, pymysql.Error)
    ):
        return ConfigError(f"The source {where} cannot be used: {text}.", code=code)
    return TransientError(f"The source {where} answered: {text}.", code=code)


def _no_server(what: str, config: MySqlOptions) -> SourceUnreachable:
    return SourceUnreachable(
        f"What answers at {config.host}:{config.port} does not speak MySQL's protocol, or was cut off: "
        f"{what}.",
        hint="Check source.host and source.port, and firewalls and proxies on the way. If a MySQL or MariaDB "
        "server answers there, please report this with its version.",
        code=CR.CR_MALFORMED_PACKET,
    )


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
    if isinstance(cause, TlsRefused):
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
